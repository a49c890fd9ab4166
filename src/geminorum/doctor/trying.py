"""Does the installed CLI behave as the CLIs in docs/versions.md do? Tried offline, in seconds."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from geminorum import testing
from geminorum.detect import CliProgram, find_cli, version_text
from geminorum.doctor.finding import Check, Finding, check_of, ok
from geminorum.doctor.program import found_check
from geminorum.environment import environment_of
from geminorum.errors import CliTooOld, GeminorumError, NewerCliWarning, Unsupported
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.runtime.lazy import lazy_module
from geminorum.transports.launch.newer_cli import NEWEST_TRIED

if TYPE_CHECKING:
    from geminorum import sync
    from geminorum.doctor import probes
    from geminorum.doctor.probes import Note, Probe
    from geminorum.transports.cli.transport import Cli
else:
    probes = lazy_module("geminorum.doctor.probes")
    sync = lazy_module("geminorum.sync")

OnCheck: TypeAlias = Callable[[Check], object]

_FIX = advice(
    "{install|python -m geminorum.install}  # the tested version, on which every row holds"
)
_SECONDS_TO_END = 2.0
"""Kept for ending what hangs; half of the time at most."""


def try_cli(
    options: Options | None = None,
    *,
    via: Cli | None = None,
    timeout: float = 20.0,
    on_check: OnCheck | None = None,
) -> list[Check]:
    """Tries the installed CLI against a simulated model: one check per row of docs/versions.md.

    Sends nothing to Google and touches neither the user's home nor a folder of theirs: of the
    options, only `env` counts. `ok`: the row holds. `warn`: geminorum refuses it on this CLI
    (`Unsupported`). `fail`: it does not hold, or did not finish (code "TIMEOUT"). `timeout` is for
    everything: finding the CLI, all rows, and ending what hangs. `on_check` gets each check as soon
    as it is known.
    """
    began = time.monotonic()
    options, tell = options or Options(), on_check or (lambda _: None)
    env = environment_of(options)
    executable = via.executable if via else None
    found = _program_check(executable, env)
    tell(found)
    if found.level == "fail":
        return [found]
    program = find_cli(executable, env)
    with warnings.catch_warnings(), sync.BackgroundLoop() as loop:
        # It recommends what is being done here.
        warnings.simplefilter("ignore", NewerCliWarning)
        work = _try_all(program.path, dict(options.env), began, timeout, tell)
        return [found, *loop.call(work)]


def seconds_for_probes(timeout: float, already: float) -> float:
    """What is left of the time after `already` seconds, less the time to end what hangs."""
    return max(0.0, timeout - already - min(_SECONDS_TO_END, timeout / 2))


@check_of("cli")
def _program_check(executable: str | os.PathLike[str] | None, env: dict[str, str]) -> Finding:
    check = found_check(executable, env)
    if check.level == "fail":
        return check.level, check.detail, check.fix, check.code
    return ok(_named(find_cli(executable, env)))


def _named(program: CliProgram) -> str:
    newest = version_text(NEWEST_TRIED)
    if program.version is None:
        return f"of an unknown version at {program.path}"
    if program.version[:2] > NEWEST_TRIED[:2]:
        version = version_text(program.version)
        return f"{version} at {program.path}, newer than {newest}, the newest in the table"
    return f"{version_text(program.version)} at {program.path}"


async def _try_all(
    executable: Path, env: dict[str, str], began: float, timeout: float, tell: OnCheck
) -> list[Check]:
    slots = asyncio.Semaphore(max(4, min(os.cpu_count() or 4, 8)))
    checks: dict[str, Check] = {}

    def note(row: str, problem: BaseException | None) -> None:
        if row not in checks:  # The first word counts: the end of a probe notes all its rows.
            checks[row] = _check_of(row, problem, timeout)
            tell(checks[row])

    tasks = [
        asyncio.create_task(_try(probe, executable, env, slots, note)) for probe in probes.PROBES
    ]
    try:
        left = seconds_for_probes(timeout, time.monotonic() - began)
        await asyncio.wait(tasks, timeout=left)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [checks[row] for row in probes.ROWS]


async def _try(
    probe: Probe, executable: Path, env: dict[str, str], slots: asyncio.Semaphore, note: Note
) -> None:
    """Notes every row of the probe, even if it breaks off."""
    problem: BaseException = probes.Differs("it was not tried")
    try:
        with testing.FakeGemini() as fake:
            await probe.work(probes.Bench(executable, env, fake, slots, note))
    except BaseException as error:
        problem = error
        raise
    finally:
        for row in probe.rows:
            note(row, problem)


def _check_of(row: str, problem: BaseException | None, timeout: float) -> Check:
    more = f"geminorum doctor --try --timeout {timeout * 3:g}  # the machine may be busy"
    match problem:
        case None:
            return Check(row, "ok", "works")
        case Unsupported() | CliTooOld():
            return Check(row, "warn", f"Unsupported: {problem.message}", _FIX)
        case GeminorumError():
            first_line = problem.message.partition("\n")[0]
            return Check(row, "fail", f"{problem.code}: {first_line}", _FIX, problem.code)
        case asyncio.CancelledError():
            return Check(row, "fail", f"did not finish within {timeout:g} seconds", more, "TIMEOUT")
        case _:
            return Check(row, "fail", f"does not hold: {problem}", _FIX)
