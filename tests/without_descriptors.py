"""A program that runs out of descriptors in mid-run: `without_descriptors.py TRANSPORT PROGRAM
SCENE…`.

Prints how each scene ended as JSON. A program of its own, because the limit is one of the process.
"""

import asyncio
import json
import os
import resource
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from geminorum import Acp, Api, Cli, Done, Options, Pool, run
from geminorum.errors import GeminorumError
from geminorum.testing import FakeGemini
from geminorum.transports import Transport
from geminorum.transports.process.keeper import KEEPERS

MOST = 128
LIMIT = 40.0


@asynccontextmanager
async def opened(kind: str, program: str) -> AsyncIterator[tuple[Transport, Options]]:
    here = Options(cwd=Path.cwd(), home=Path.cwd(), timeout=LIMIT)
    match kind:
        case "cli":
            yield Cli(executable=program, grace=0.5), here
        case "acp":
            yield Acp(executable=program, grace=0.5), here
        case "pool":
            async with Pool(Acp(executable=program, grace=0.5)) as pool:
                yield pool, here
        case "api":
            async with FakeGemini() as fake:
                fake.hang("Once").always()
                env = dict(fake.env)
                yield Api(grace=0.5), Options(env=env, model="gemini-2.5-flash", timeout=LIMIT)


is_enough = threading.Event()


def exhaust_once() -> list[int]:
    """Takes all descriptors that the process may have."""
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken


def keep_exhausting() -> list[int]:
    """Takes those as well that are given back."""
    taken = exhaust_once()

    def take() -> None:
        while not is_enough.wait(0.0002):
            taken.extend(exhaust_once())

    threading.Thread(target=take, daemon=True).start()
    return taken


def reach_the_time_limit() -> None:
    """Without waiting for it."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + LIMIT


def without_keepers() -> None:
    """As on a system that has none for us."""
    KEEPERS.is_available = lambda: False


async def scene(kind: str, program: str, exhaust: Callable[[], list[int]]) -> dict[str, Any]:
    told: list[Any] = []
    taken: list[int] = []
    async with opened(kind, program) as (transport, options):
        async with run("Hi", options, via=transport) as live:
            async for event in live:
                told.append(event)
                if event.type == "text_delta":
                    taken = taken or exhaust()
                    reach_the_time_limit()
        is_enough.set()
        for fd in taken:
            os.close(fd)
        alive = [] if kind == "pool" else left()
    return {
        "error": type(live.result.exception()).__name__,
        "text": live.result.text,
        "done": [type(event) for event in told].count(Done),
        "alive": alive,
        "left": left(),
        "homes": [str(home) for home in Path(os.environ["TMPDIR"]).glob("geminorum-*")],
    }


async def openings(kind: str, program: str) -> list[str]:
    """What comes of opening a run with no descriptor left, with one, with two … until it opens."""
    outcomes = []
    async with opened(kind, program) as (transport, options):
        for spare in range(MOST):
            taken = exhaust_once()
            for fd in taken[:spare]:
                os.close(fd)
            outcomes.append(await opening(transport, options))
            for fd in taken[spare:]:
                os.close(fd)
            if outcomes[-1] == "open":
                break
    return [*outcomes, *left()]


async def opening(transport: Transport, options: Options) -> str:
    try:
        async with run("Hi", options, via=transport) as live:
            pass
    except GeminorumError as error:
        return type(error).__name__
    except Exception as error:
        return f"not ours: {error!r}"
    status, text = live.result.status, live.result.errors
    return "open" if status == "interrupted" else f"{status} {text}"


def played(name: str, kind: str, program: str) -> Any:
    if name == "opening":
        return asyncio.run(openings(kind, program))
    if name == "without keepers":
        without_keepers()
    is_enough.clear()
    return asyncio.run(scene(kind, program, keep_exhausting if name == "greedy" else exhaust_once))


def left() -> list[str]:
    """What is left of the agents; the keepers and their server are not among them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            found += [words] if "stand_in" in words else []
        except psutil.Error:
            continue
    return found


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
    kind, program, *names = sys.argv[1:]
    sys.stdout.write(json.dumps({name: played(name, kind, program) for name in names}))
