"""Can this agent run? Four checks, always in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminorum.contracts.local_adapter.config import GeminiLocalConfig
from geminorum.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from geminorum.doctor import Check

PROBE_TIMEOUT = 20.0
"""Seconds for the live probe; the CLI alone takes one or two to start."""


# The shape's own name. pytest takes it for a test, so tests call it by its module.
def test_environment(
    config: GeminiLocalConfig,
    *,
    live: bool = True,  # noqa: PT028
    probe_timeout: float = PROBE_TIMEOUT,  # noqa: PT028
) -> list[Check]:
    """The CLI, the working folder, the instructions file, and a live probe of the model.

    The probe costs a few tokens; it is not tried where it cannot succeed, nor without `live`.
    Takes seconds: `await asyncio.to_thread(test_environment, config)` in async code.
    """
    from geminorum.doctor import cli_check, instructions_check

    checks = [
        cli_check(config.executable, config.merged_env),
        _folder_check(config),
        instructions_check(config.instructions_file),
    ]
    return [*checks, _probe(config, checks, probe_timeout)] if live else checks


def _folder_check(config: GeminiLocalConfig) -> Check:
    """As for every run, but a folder that is not there yet will be made by the first one."""
    from geminorum.doctor import Check, cwd_check
    from geminorum.doctor.finding import nearest_existing

    if config.folder.exists():
        return cwd_check(config.folder)
    above = cwd_check(nearest_existing(config.folder))
    if above.level != "ok":
        why = f"{config.folder} cannot be created: {above.detail}"
        return Check("cwd", "fail", why, above.fix, "INVALID_OPTIONS")
    return Check("cwd", "ok", f"{config.folder} is not there yet; the first run creates it")


def _probe(config: GeminiLocalConfig, checks: list[Check], timeout: float) -> Check:
    from geminorum.doctor import Check, live_check
    from geminorum.transports.cli import Cli

    cli, folder, _ = checks
    if "fail" in (cli.level, folder.level):
        return Check("live", "warn", "not tried, since it cannot succeed", "mend the checks above")
    door, options = Cli(executable=config.executable, grace=config.grace_sec), config.options()
    if config.folder.exists():
        return live_check(options, door, timeout)
    # A health check leaves no folders behind.
    with OwnedFolder("geminorum-kept-probe-") as elsewhere:
        return live_check(options.changed(cwd=elsewhere), door, timeout)
