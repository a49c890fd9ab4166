"""`python -m benchmarks.kill_us [ROUNDS [NAME …]]`: kill -9 of us, with the real CLI at work.

For each transport, a process of ours lets the agent run `sleep 300`, beside jobs that leave their
session and their environment, and is killed. Counted are the processes that live 3 s later, and
the temporary folders that are there after the next run. Exit code 1 when there are any.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.cold_start import MODEL, found_cli
from geminorum import Cli, Options, sync
from geminorum.testing import FakeGemini

TRANSPORTS = {
    "Cli": "nullcontext(Cli(executable=cli))",
    "Acp": "nullcontext(Acp(executable=cli))",
    "Pool": "sync.Pool(Acp(executable=cli))",
}
OURS = """
import sys
from contextlib import nullcontext
from geminorum import Acp, Cli, Options, sync

cli, folder, model = sys.argv[1:]
with {transport} as via:
    sync.ask("Sleep", Options(cwd=folder, model=model, approval="yolo"), via=via)
"""
SLEEP = "setsid sleep 300 & env -i setsid sleep 300 & touch asleep; sleep 300"
LIMIT_SECONDS, START_SECONDS = 3.0, 60.0


@dataclass(frozen=True, slots=True)
class Round:
    started: int
    """Processes below ours at the kill."""
    left: int
    seconds: float
    """Until none was left, or LIMIT_SECONDS."""
    folders: int
    """Temporary folders of ours after the next run."""


def main(rounds: int, names: Sequence[str]) -> int:
    print(f"{'transport':<6}{'kills':>6}{'processes':>11}{'left':>6}{'slowest':>9}{'folders':>9}")
    missed = 0
    for name in names:
        seen = [killed(TRANSPORTS[name]) for _ in range(rounds)]
        started, left, folders = (
            sum(getattr(one, what) for one in seen) for what in ("started", "left", "folders")
        )
        slowest = max(one.seconds for one in seen)
        print(
            f"{name:<6}{rounds:>6}{started:>11}{left:>6}{slowest:>7.2f} s{folders:>9}", flush=True
        )
        missed += left + folders
    return int(missed > 0)


def killed(transport: str) -> Round:
    """One kill, and one run after it."""
    # A temporary folder for us alone, in which everything that is left is ours.
    with tempfile.TemporaryDirectory() as room, FakeGemini(default="Awake.") as fake:
        temporary, work = Path(room, "tmp"), Path(room, "work")
        temporary.mkdir()
        work.mkdir()
        fake.call("run_shell_command", command=SLEEP)
        env = {**os.environ, **fake.env, "TMPDIR": str(temporary)}
        tree = _kill(transport, work, env)
        began = time.perf_counter()
        _wait(lambda: not _alive(tree), LIMIT_SECONDS)
        seconds, left = time.perf_counter() - began, _alive(tree)
        for process in left:
            process.kill()
        _run_next(work, env)
        return Round(len(tree), len(left), seconds, len([*temporary.glob("*gemin*")]))


def _kill(transport: str, work: Path, env: Mapping[str, str]) -> list[psutil.Process]:
    words = [
        sys.executable,
        "-c",
        OURS.format(transport=transport),
        str(found_cli()),
        str(work),
        MODEL,
    ]
    ours = subprocess.Popen(words, env=env)
    if not _wait(lambda: (work / "asleep").exists() or ours.poll() is not None, START_SECONDS):
        raise RuntimeError("the agent did not start")
    tree = psutil.Process(ours.pid).children(recursive=True)
    ours.kill()
    ours.wait()
    return tree


def _run_next(work: Path, env: Mapping[str, str]) -> None:
    code = f"from benchmarks.kill_us import next_run; next_run({str(work)!r})"
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def next_run(work: str) -> None:
    sync.ask("Hello", Options(cwd=work, model=MODEL), via=Cli(executable=found_cli()))


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if _is_alive(one)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False  # It ended between two looks.


def _wait(happened: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:] or [*TRANSPORTS]))
