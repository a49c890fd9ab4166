"""A worker of the fleet as a program: its settings as JSON in the first argument."""

import asyncio
import json
import sys

from geminorum import Acp, Cli
from geminorum.fleet import Worker


async def main(url: str, executable: str, slots: int = 4, name: str | None = None) -> None:
    transports = {
        "cli": Cli(executable=executable, grace=0.5),
        "acp": Acp(executable=executable, grace=0.5),
    }
    worker = Worker(url, transports, slots=slots, name=name)
    await worker.run()


asyncio.run(main(**json.loads(sys.argv[1])))
