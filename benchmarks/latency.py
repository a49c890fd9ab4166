"""How long an event is under way from the CLI's write to the consumer's hands."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from statistics import quantiles

from benchmarks.figures import Figure
from benchmarks.stand_in import running
from geminorum import TextDelta

EVENTS = 200
PAUSE = 0.01


def measure() -> list[Figure]:
    delays = asyncio.run(_delays())
    percentiles = quantiles(delays, n=100)
    return [
        Figure("from write to consumer, median", percentiles[49], "ms", at_most=5),
        Figure("from write to consumer, 99 of 100", percentiles[98], "ms"),
    ]


async def _delays() -> list[float]:
    delays = []
    with running(__name__) as stand_in:
        async with stand_in.run() as live:
            async for event in live:
                if isinstance(event, TextDelta):
                    delays.append((time.monotonic_ns() - int(event.text)) / 1_000_000)
    if len(delays) < EVENTS:
        raise RuntimeError(f"{len(delays)} of {EVENTS} events arrived")
    return delays


def _drip() -> None:
    """The CLI's part. Each line carries the time of its writing: the monotonic clock is one for
    all processes of a machine.
    """
    for _ in range(EVENTS):
        time.sleep(PAUSE)
        _write(type="message", role="assistant", delta=True, content=str(time.monotonic_ns()))
    _write(type="result", status="success", stats={})


def _write(**frame: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(frame).encode() + b"\n")


if __name__ == "__main__":
    _drip()
