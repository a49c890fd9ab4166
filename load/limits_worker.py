"""A worker that asks the API as often as it may: its settings as JSON in the first argument.

It leaves on SIGTERM. `clock` is how many seconds its clock is wrong by.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

from geminorum import Api
from geminorum.fleet import Worker


def look() -> str:
    """Looks around."""
    return "nothing new"


async def main(url: str, base_url: str, key: str, slots: int, clock: float) -> None:
    right, right_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: right() + clock, lambda: right_ns() + int(clock * 1e9)
    worker = Worker(url, {"api": Api(key, base_url, tools=[look])}, slots=slots)

    def leave() -> None:
        worker.stop()
        worker.hand_back()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
