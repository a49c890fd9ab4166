"""Checks whether an agent can run: four checks, always in the same order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

import geminorum
from geminorum.adapter_parts import OwnedFolder, nearest_existing, render
from geminorum.contracts.local_adapter.config import IN_CONFIG, GeminiLocalConfig
from geminorum.doctor import Check, cli_check, cwd_check, instructions_check, live_check

PROBE_TIMEOUT = 20.0
"""Seconds for the live probe; the CLI alone takes one or two to start."""


# The document's name. `__test__` below keeps pytest from collecting it in modules that import it.
def test_environment(
    config: GeminiLocalConfig,
    *,
    live: bool = True,  # noqa: PT028
    probe_timeout: float = PROBE_TIMEOUT,  # noqa: PT028
) -> list[Check]:
    """Checks the CLI, the working folder, the instructions file, and the model with a live probe.

    The probe costs a few tokens; it is skipped if it cannot succeed or `live` is off. The checks
    take seconds: in async code, use `await asyncio.to_thread(test_environment, config)`.
    """
    return list(environment_checks(config, live=live, probe_timeout=probe_timeout))


test_environment.__test__ = False  # type: ignore[attr-defined]


def environment_checks(
    config: GeminiLocalConfig, *, live: bool = True, probe_timeout: float = PROBE_TIMEOUT
) -> Iterator[Check]:
    """The checks of `test_environment` one by one, each made when you ask for it."""
    for check in _checks(config, live, probe_timeout):
        yield replace(check, fix=_fix_of(check))


def _checks(config: GeminiLocalConfig, live: bool, timeout: float) -> Iterator[Check]:
    cli = cli_check(config.executable, config.merged_env)
    yield cli
    folder = _folder_check(config)
    yield folder
    yield instructions_check(config.instructions_file)
    if live:
        yield _probe(config, timeout, can_run="fail" not in (cli.level, folder.level))


def _fix_of(check: Check) -> str:
    """What to do, in the keys of the config; where it has none, the detail has to do."""
    return render(check.fix, _words) or ("fix what the detail names" if check.fix else "")


def _words(name: str, value: str) -> str | None:
    if name == "doctor.live_timeout":
        return f"test_environment(config, probe_timeout={value})"
    return IN_CONFIG(name, value)


def _folder_check(config: GeminiLocalConfig) -> Check:
    """As for every run, but the first run creates a folder that is not there yet."""
    folder, above = config.folder, nearest_existing(config.folder)
    checked = cwd_check(above)
    if above == folder:
        return checked
    why = checked.detail if checked.level != "ok" else _obstacle(above, folder.relative_to(above))
    if why:
        fix = checked.fix or "choose another cwd"
        return Check("cwd", "fail", f"{folder} cannot be created: {why}", fix, "INVALID_OPTIONS")
    return Check("cwd", "ok", f"{folder} is not there yet; the first run creates it")


def _obstacle(above: Path, below: Path) -> str:
    """Why these folders cannot be created; empty where they can.

    Tries it in a folder of its own: removing `below` itself could take it from a run that starts.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".geminorum-", dir=above) as trial:
            Path(trial, below).mkdir(parents=True)
    except OSError as error:
        return str(error.strerror)
    return ""


def _probe(config: GeminiLocalConfig, timeout: float, *, can_run: bool) -> Check:
    if not can_run:
        return Check("live", "warn", "not tried, since it cannot succeed", "fix the checks above")
    transport, options = (
        geminorum.Cli(executable=config.executable, grace=config.grace_sec),
        config.options(),
    )
    if nearest_existing(config.folder) == config.folder:
        return live_check(options, transport, timeout)
    # A health check leaves no folders behind.
    with OwnedFolder("geminorum-kept-probe-") as elsewhere:
        return live_check(options.changed(cwd=elsewhere), transport, timeout)
