"""One trial from outside: `python -m chaos.judge SEED [FAULT]` prints what does not hold, as JSON.

A subreaper: whatever the trial leaves behind comes back to it as a child.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from chaos import commands, invariants
from chaos.plan import COMMANDS, Plan, drawn
from chaos.stage import SimulatedApi, Stage

PR_SET_CHILD_SUBREAPER = 36
LONGEST_SECONDS, GONE_SECONDS, FROZEN_SECONDS = 90.0, 3.0, 0.4
start_process: Callable[..., Any] = subprocess.Popen
"""How a trial's process is started; `chaos.nursery` has a quicker way."""


def judged(plan: Plan, cli: str) -> list[str]:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        stack.callback(shutil.rmtree, folder)
        for name in ("work", "home", "tmp", "api"):
            (folder / name).mkdir()
        apis = [stack.enter_context(simulated_api(plan, folder)) for _ in range(_apis_needed(plan))]
        stage = Stage(folder, cli, tuple(apis))
        stage.save(plan)
        if plan.fault in COMMANDS:
            return commands.COMMITTED[plan.fault](plan, stage, watched)
        return _played(plan, stage)


def _apis_needed(plan: Plan) -> int:
    if plan.agent != "real":
        return 0
    return 2 if plan.fault == "kill api" else 1


def _played(plan: Plan, stage: Stage) -> list[str]:
    ended, found = watched(_subject(stage), stage)
    if ended == -signal.SIGKILL and plan.fault == "kill us":
        ended, more = watched(_subject(stage, "calm"), stage)
        found += more
        return found + _of_calm_report(_report(stage))
    report = _report(stage)
    if report is None:
        return [*found, f"ended with {ended} and no report"]
    told = {number: stage.told(number) for number in range(30)}
    return found + invariants.violations(plan, report, told)


def _of_calm_report(report: dict[str, Any] | None) -> list[str]:
    if report is None:
        return ["the next run wrote no report"]
    left = [f"left after the next run: {one}" for one in report["left"]]
    return left + invariants.of_next(report["next"])


def _subject(stage: Stage, *how: str) -> list[str]:
    return [sys.executable, "-m", "chaos.subject", str(stage.folder), *how]


def _report(stage: Stage) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(stage.report.read_text())
    except OSError:
        return None
    return found


def watched(
    command: list[str],
    stage: Stage,
    env: Mapping[str, str] | None = None,
    interfere: Any = lambda child: None,
) -> tuple[int, list[str]]:
    """How a program ended, and what is wrong with what it left."""
    stage.report.unlink(missing_ok=True)
    ours = {**os.environ, "TMPDIR": str(stage.temporary), **(env or {})}
    with (stage.folder / "stderr").open("wb+") as stderr:
        child = start_process(
            command, env=ours, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
        )
        interfere(child)
        code = _waited(child)
        found = _left_behind(stage)
        stderr.seek(0)
        found += invariants.noise(stderr.read().decode(errors="replace"))
    if code is None:
        return -1, [*found, f"did not end within {LONGEST_SECONDS:g} s"]
    return code, found


def _waited(child: Any) -> int | None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        code: int | None = child.poll()
        if code is not None:
            return code
        with suppress(psutil.Error):
            if psutil.Process(child.pid).status() == psutil.STATUS_STOPPED:
                time.sleep(FROZEN_SECONDS)
                child.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    child.send_signal(signal.SIGABRT)  # faulthandler says where it is.
    child.wait()
    return None


def _left_behind(stage: Stage) -> list[str]:
    """Processes that outlive their owner by three seconds."""
    deadline = time.monotonic() + GONE_SECONDS
    while (left := _below_us(stage)) and time.monotonic() < deadline:
        time.sleep(0.02)
    found = [f"outlived its owner: {_line(process)}" for process in left]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    return found


def _below_us(stage: Stage) -> list[psutil.Process]:
    known = {api.pid for api in stage.apis}
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.pid in known:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
                continue
            with suppress(ChildProcessError):  # Not ours yet, or no more.
                os.waitpid(process.pid, os.WNOHANG)
    return found


def _line(process: psutil.Process) -> str:
    try:
        return f"{process.pid} of {process.ppid()}: {' '.join(process.cmdline())}"
    except psutil.Error:
        return str(process)


@contextmanager
def simulated_api(plan: Plan, folder: Path) -> Iterator[SimulatedApi]:
    story = json.dumps(asdict(plan.story))
    env = {**os.environ, "TMPDIR": str(folder / "api")}
    command = [sys.executable, "-m", "chaos.api_process", story]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        yield SimulatedApi(**json.loads(process.stdout.readline()))


def main(seed: int, fault: str | None) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    plan = drawn(seed, fault)
    found = judged(plan, os.environ["CHAOS_CLI"])
    sys.stdout.write(json.dumps({"plan": plan.as_dict(), "violations": found}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
