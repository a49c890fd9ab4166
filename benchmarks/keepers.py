"""What it costs that nothing of a run outlives us: time for each run, and memory while it runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure
from benchmarks.stand_in import StandIn, saying
from geminorum.transports.process.keeper import KEEPERS, KeeperServer
from geminorum.transports.process.tree import Child

ROUNDS, RUNS, AT_ONCE = 15, 20, 10
RESULT = (
    b'{"type":"init","session_id":"s-1","model":"flash"}\n{"type":"result","status":"success"}\n'
)


def measure() -> list[Figure]:
    if not KEEPERS.is_available():
        return []  # A thing of Linux.
    with saying([RESULT]) as stand_in:
        # A process each and side by side, because the first run starts the server of the keepers.
        rounds = [_round(stand_in) for _ in range(ROUNDS + 1)][1:]
    first, later = (median(column) for column in zip(*rounds, strict=True))
    server, keeper = asyncio.run(_memory())
    return [
        Figure("added to the first run of a process", first, "ms", at_most=30.0),
        Figure("added to each later run", later, "ms", at_most=30.0),
        Figure(f"a keeper, {AT_ONCE} runs at a time", keeper, "MB PSS", at_most=2.0),
        Figure("the server that forks them, once for each process", server, "MB PSS"),
    ]


def _round(stand_in: StandIn) -> tuple[float, float]:
    kept, unkept = (_timed(stand_in, how) for how in ("kept", "unkept"))
    return kept[0] - unkept[0], kept[1] - unkept[1]


def _timed(stand_in: StandIn, how: str) -> tuple[float, float]:
    """Milliseconds of the first run, and of one of those that follow."""
    command = [sys.executable, "-m", __name__, str(stand_in.folder), how]
    first, later = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return first, later


async def _runs(stand_in: StandIn) -> None:
    seconds = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        async with stand_in.run() as live:
            async for _ in live:
                pass
        seconds.append(time.perf_counter() - began)
    print(json.dumps([seconds[0] * 1000, median(seconds[1:]) * 1000]))


async def _memory() -> tuple[float, float]:
    """The proportional share of memory: what forks have in common counts once."""
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await stack.enter_async_context(Child(["sleep", "60"], env={}))
        server = KEEPERS.pid
        keepers = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return _pss(server), sum(map(_pss, keepers)) / len(keepers)


def _pss(pid: object) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 2**10


if __name__ == "__main__":
    if sys.argv[2] == "unkept":
        KeeperServer.is_available = lambda self: False  # type: ignore[method-assign]
    asyncio.run(_runs(StandIn(Path(sys.argv[1]))))
