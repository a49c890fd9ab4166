"""Turns of a warm process beside headless runs, new sessions in it, and many sessions at once."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks.cold_start import MODEL, PROMPT, found_cli
from benchmarks.figures import Figure
from geminorum import Acp, Cli, Options, ask, connect
from geminorum.testing import FakeGemini
from geminorum.transports.acp.transport import WarmAcp

ROUNDS = 9
SESSIONS, WAIT = 50, 0.5


def measure() -> list[Figure]:
    return [*asyncio.run(_side_by_side()), *asyncio.run(_many_at_once())]


async def _side_by_side() -> list[Figure]:
    with FakeGemini(default="Hello") as fake, tempfile.TemporaryDirectory() as folder:
        options = Options(model=MODEL, cwd=folder, env=fake.env, home=fake.home)
        cli = Cli(executable=found_cli())
        transport = Acp(executable=found_cli()).warm(options)
        async with transport as warm, connect(options, via=warm) as chat:
            # One of each to warm up, then side by side: what slows one slows its neighbours.
            rounds = [
                (
                    await _timed(lambda: ask(PROMPT, options, via=cli)),
                    await _timed(lambda: chat.ask(PROMPT)),
                    await _timed(lambda: _in_a_new_session(warm, options)),
                )
                for _ in range(ROUNDS + 1)
            ][1:]
    headless, turn, fresh = (median(column) for column in zip(*rounds, strict=True))
    return [
        Figure("a headless run (Cli)", headless, "s"),
        Figure("a turn of a warm session (Acp)", turn * 1000, "ms"),
        Figure("a new session in a warm process, and a turn", fresh * 1000, "ms"),
        Figure("a warm turn, times faster", median(r[0] / r[1] for r in rounds), at_least=50),
        Figure("… in a new session", median(r[0] / r[2] for r in rounds), at_least=10),
    ]


async def _in_a_new_session(warm: WarmAcp, options: Options) -> None:
    async with connect(options, via=warm) as chat:
        await chat.ask(PROMPT)


async def _many_at_once() -> list[Figure]:
    with FakeGemini() as fake, tempfile.TemporaryDirectory() as folder:
        fake.say("Hello", delay=WAIT).always()
        options = Options(model=MODEL, cwd=Path(folder), env=fake.env, home=fake.home)
        async with AsyncExitStack() as stack:
            warm = await stack.enter_async_context(Acp(executable=found_cli()).warm(options))
            chats = [
                await stack.enter_async_context(connect(options, via=warm)) for _ in range(SESSIONS)
            ]
            # Opened one after another; the first turn of each waits for that.
            await asyncio.gather(*(chat.ask(PROMPT) for chat in chats))
            seconds = await _timed(lambda: asyncio.gather(*(chat.ask(PROMPT) for chat in chats)))
    what = f"{SESSIONS} sessions at once, an API that waits {WAIT:g} s"
    return [Figure(what, seconds, "s", at_most=2.0)]


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
