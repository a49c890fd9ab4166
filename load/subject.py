"""`python -m load.subject KIND NUMBER PROGRAM`: so many agents at once, in a process of their own.

Prints a line when it is warm, waits for one, and prints its figures as JSON at the end.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import msgspec
from benchmarks.cold_start import MODEL

from geminorum import Acp, Cli, Options, Run, connect, run
from geminorum.testing import FakeGemini
from load.stalls import StallMeter

PROMPT = "Say hello"
Agent = Callable[["Crowd"], Awaitable[None]]
"""Plays one agent from its start to its end, and tells the crowd of its first event."""


class Figures(msgspec.Struct, frozen=True):
    """What the user of a program with so many agents would notice."""

    failures: int
    wall: float
    """Seconds until the last agent has ended."""
    first_p50: float
    """Seconds from the common start to an agent's first event."""
    first_p99: float
    stall: float
    """The longest time, in seconds, for which the event loop kept others waiting."""
    cpu: float
    """Seconds of processor time that this process took for each agent."""


class Crowd:
    """Agents that start together."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._firsts: list[float] = []
        self.problems: list[str] = []
        """Why agents failed."""

    async def follow(self, live: Run) -> None:
        """Reads a run to its end."""
        is_first = True
        async with live:
            async for _ in live:
                if is_first:
                    self._firsts.append(time.perf_counter() - self._began)
                    is_first = False
        if not live.result.ok:
            self.problems.append(f"{live.result.exception()!r} {live.result.stderr}")

    async def measure(self, agent: Agent, number: int) -> Figures:
        async with StallMeter() as stalls:
            cpu, self._began = time.process_time(), time.perf_counter()
            await asyncio.gather(*(agent(self) for _ in range(number)))
            wall, cpu = time.perf_counter() - self._began, time.process_time() - cpu
        # Twice: of a single one, there are no percentiles.
        percentiles = quantiles(self._firsts * 2, n=100, method="inclusive")
        failures = len(self.problems)
        return Figures(
            failures, wall, percentiles[49], percentiles[98], stalls.longest, cpu / number
        )


@asynccontextmanager
async def stand_ins(program: Path, folder: Path) -> AsyncIterator[Agent]:
    """Runs of a program that prints 200 events, 2 ms apart."""
    options, via = Options(cwd=folder, home=folder), Cli(executable=program)
    yield lambda crowd: crowd.follow(run(PROMPT, options, via=via))


@asynccontextmanager
async def real_clis(program: Path, folder: Path) -> AsyncIterator[Agent]:
    """Headless runs of the real CLI, behind a simulated API."""
    with FakeGemini(default="Hello") as fake:
        options = Options(cwd=folder, env=fake.env, model=MODEL)
        yield lambda crowd: crowd.follow(run(PROMPT, options, via=Cli(executable=program)))


@asynccontextmanager
async def warm_sessions(program: Path, folder: Path) -> AsyncIterator[Agent]:
    """New sessions of one warm CLI, with one turn each."""
    with FakeGemini(default="Hello") as fake:
        options = Options(cwd=folder, env=fake.env, home=fake.home, model=MODEL)
        async with Acp(executable=program).warm(options) as warm:

            async def agent(crowd: Crowd) -> None:
                async with connect(options, via=warm) as chat:
                    await crowd.follow(chat.turn(PROMPT))

            yield agent


KINDS = {"stand-in": stand_ins, "cli": real_clis, "warm": warm_sessions}


async def main(kind: str, number: int, program: Path) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        async with KINDS[kind](program, Path(folder)) as agent:
            await Crowd().measure(agent, 1)
            sys.stdout.write("warm\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
            return await Crowd().measure(agent, number)


if __name__ == "__main__":
    figures = asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
    sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
