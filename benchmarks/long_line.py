"""One huge line, in time that grows with its length and no faster."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.stand_in import StandIn, saying
from geminorum import ToolResult

MB = 1024 * 1024
SHORT, LONG = 4 * MB, 32 * MB
ROUNDS = 5


def measure() -> list[Figure]:
    with _line_of(SHORT) as short, _line_of(LONG) as long:
        rounds = [(_seconds(short, SHORT), _seconds(long, LONG)) for _ in range(ROUNDS)]
    # The best of several: what a busy machine adds is not ours.
    best_short, best_long = (min(column) for column in zip(*rounds, strict=True))
    return [
        Figure("a line of 4 MB", best_short * 1000, "ms"),
        Figure("a line of 32 MB", best_long * 1000, "ms"),
        Figure("32 MB, times 4 MB", best_long / best_short, at_most=LONG / SHORT * 1.5),
    ]


def _line_of(size: int) -> AbstractContextManager[StandIn]:
    result = {"type": "tool_result", "tool_id": "1", "status": "success", "output": "x" * size}
    end = {"type": "result", "status": "success", "stats": {"total_tokens": 1}}
    return saying(json.dumps(frame).encode() + b"\n" for frame in (result, end))


def _seconds(stand_in: StandIn, size: int) -> float:
    # A new process each time: in an old one 4 MB find room that was used before, 32 MB do not.
    command = [sys.executable, "-m", __name__, str(stand_in.folder)]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    arrived, seconds = json.loads(output)
    if arrived != size:
        raise RuntimeError(f"{arrived} of {size} bytes arrived")
    return float(seconds)


async def _consume(stand_in: StandIn) -> None:
    async with stand_in.run_with_all_said() as live:
        began = time.thread_time()
        sizes = [len(event.output) async for event in live if isinstance(event, ToolResult)]
        print(json.dumps([sum(sizes), time.thread_time() - began]))


if __name__ == "__main__":
    asyncio.run(_consume(StandIn(Path(sys.argv[1]))))
