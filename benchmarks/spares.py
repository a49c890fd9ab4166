"""Runs over CLIs that were started ahead, beside cold runs and plain `gemini`."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from benchmarks.cold_start import MODEL, PROMPT, ColdStart, found_cli
from benchmarks.figures import Figure
from geminorum import Cli, Options, ask, connect
from geminorum.testing import FakeGemini

ROUNDS, PAUSE_SECONDS = 7, 2.0


def measure() -> list[Figure]:
    with FakeGemini(default="Hello") as fake, tempfile.TemporaryDirectory() as folder:
        plain = ColdStart(found_cli(), Path(folder), fake.env)
        options = Options(model=MODEL, cwd=folder, env=fake.env)
        return asyncio.run(_side_by_side(plain, options))


async def _side_by_side(plain: ColdStart, options: Options) -> list[Figure]:
    cold = Cli(executable=found_cli(), spare=0)
    async with (
        Cli(executable=found_cli(), spare=1) as ahead,
        connect(options, via=Cli(executable=found_cli())) as chat,
        connect(options, via=cold) as cold_chat,
    ):
        # One of each to warm up, then side by side: what slows one slows its neighbours.
        rounds = [
            (
                await asyncio.to_thread(plain.plain),
                await _timed(lambda: ask(PROMPT, options, via=cold)),
                await _timed(lambda: ask(PROMPT, options, via=ahead)),
                await _timed(lambda: cold_chat.ask(PROMPT)),
                await _timed(lambda: chat.ask(PROMPT)),
            )
            for _ in range(ROUNDS + 1)
        ][1:]
    columns = [median(column) for column in zip(*rounds, strict=True)]
    return [
        Figure("plain `gemini`", columns[0], "s"),
        Figure("a cold run", columns[1], "s"),
        Figure("a run over a CLI started ahead", columns[2] * 1000, "ms"),
        Figure("… of a cold run", median(r[2] / r[1] for r in rounds), at_most=0.15),
        Figure("… of plain", median(r[2] / r[0] for r in rounds), at_most=0.08),
        Figure("the next turn of a chat, started ahead", columns[4] * 1000, "ms"),
        Figure("… of a cold one", median(r[4] / r[3] for r in rounds), at_most=0.2),
    ]


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    # As long as it takes somebody to think of the next prompt.
    await asyncio.sleep(PAUSE_SECONDS)
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
