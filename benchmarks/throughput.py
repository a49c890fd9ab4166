"""Events per second through the whole of a run, beside bare decoding of the same bytes.

By the CPU time of the thread: everything is written before the clock starts, so nothing is waited
for, and what other programs take meanwhile is not ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.figures import Figure
from benchmarks.recording import answers
from benchmarks.stand_in import StandIn, saying
from geminorum.wire.stream_json.frames import Frame

EVENTS = 200_000
ROUNDS = 15


def measure() -> list[Figure]:
    typed, untyped = msgspec.json.Decoder(Frame).decode, msgspec.json.decode
    with saying(answers(EVENTS)) as stand_in:
        asyncio.run(_consumed(stand_in))  # The first run also loads the price list.
        # Side by side in every round, so that a busy machine slows all of them alike.
        rounds = [
            (
                asyncio.run(_consumed(stand_in)),
                _bare(typed, stand_in.recording),
                _bare(untyped, stand_in.recording),
                _leanest(typed, stand_in.recording),
            )
            for _ in range(ROUNDS)
        ]
    # The median of the rounds, not the best of each: a machine that is now fast and now slow
    # would have the best of one beside the best of another that was not its neighbour.
    ours, bare_typed, bare_untyped, leanest = map(median, zip(*rounds, strict=True))
    beside = [median(times[which] / times[0] for times in rounds) for which in (1, 2, 3)]
    return [
        Figure("a run: tail, cut, decode, judge, hand out", EVENTS / ours, "events/s"),
        Figure("bare msgspec, typed: read all, cut, decode", EVENTS / bare_typed, "events/s"),
        Figure("bare msgspec, untyped", EVENTS / bare_untyped, "events/s"),
        Figure("bare msgspec, typed, line by line", EVENTS / leanest, "events/s"),
        Figure("a run, of bare typed", beside[0], at_least=0.5),
        Figure("a run, of bare untyped", beside[1], at_least=0.5),
        # For comparison, without a target: a program that keeps nothing, waits for nothing and
        # judges nothing is no way to run an agent.
        Figure("a run, of bare typed, line by line", beside[2]),
    ]


async def _consumed(stand_in: StandIn) -> float:
    """Seconds to take in everything, once everything is written."""
    async with stand_in.run_with_all_said() as live:
        began = time.thread_time()
        count = 0
        async for _ in live:
            count += 1
        seconds = time.thread_time() - began
    if not live.result.ok or count < EVENTS:
        raise RuntimeError(f"only {count} events: {live.result.errors}")
    return seconds


def _bare(decode: Callable[[bytes], object], recording: Path) -> float:
    """All the bytes, cut into lines and decoded."""
    began = time.thread_time()
    for line in recording.read_bytes().split(b"\n"):
        if line:
            decode(line)
    return time.thread_time() - began


def _leanest(decode: Callable[[bytes], object], recording: Path) -> float:
    """The same with one line in memory at a time: the leanest that a program could be."""
    began = time.thread_time()
    with recording.open("rb") as file:
        for line in file:
            decode(line)
    return time.thread_time() - began
