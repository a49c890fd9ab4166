"""A worker of the fleet as a program: its settings as JSON in the first argument."""

import asyncio
import json
import sys
import time

from geminorum import Acp, Cli
from geminorum.fleet import Worker


async def main(
    url: str, executable: str, slots: int = 4, name: str | None = None, clock: float = 0.0
) -> None:
    """`clock` is how many seconds its clock is wrong by."""
    right, right_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: right() + clock, lambda: right_ns() + int(clock * 1e9)
    transports = {
        "cli": Cli(executable=executable, grace=0.5),
        "acp": Acp(executable=executable, grace=0.5),
    }
    worker = Worker(url, transports, slots=slots, name=name)
    await worker.run()


asyncio.run(main(**json.loads(sys.argv[1])))
