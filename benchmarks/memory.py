"""What a long run leaves in memory when each event is used and forgotten: nothing."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.recording import tool_work
from benchmarks.stand_in import StandIn, saying

SHORT, LONG = 100_000, 400_000


def measure() -> list[Figure]:
    # A process each, because a peak never comes down again.
    short, long = _peak_of(SHORT), _peak_of(LONG)
    growth = (long - short) / (LONG - SHORT) * 100_000
    return [
        Figure(f"peak after {SHORT:,} events", short, "MB"),
        Figure(f"peak after {LONG:,} events", long, "MB"),
        Figure("growth for each 100,000 events", growth, "MB", at_most=2.0),
    ]


def _peak_of(events: int) -> float:
    with saying(tool_work(events)) as stand_in:
        command = [sys.executable, "-m", __name__, str(stand_in.folder)]
        output = subprocess.run(command, check=True, capture_output=True).stdout
    seen, peak = json.loads(output)
    if seen < events:
        raise RuntimeError(f"{seen} of {events} events arrived")
    return float(peak)


async def _consume(folder: Path) -> None:
    count = 0
    async with StandIn(folder).run() as live:
        async for _ in live:
            count += 1
    print(json.dumps([count, _peak()]))


def _peak() -> float:
    """The most memory this process ever had, in MB."""
    if sys.platform == "linux":
        # Not ru_maxrss: a process inherits that from the one that started it.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 2**10
    in_bytes = sys.platform == "darwin"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if in_bytes else 2**10)


if __name__ == "__main__":
    asyncio.run(_consume(Path(sys.argv[1])))
