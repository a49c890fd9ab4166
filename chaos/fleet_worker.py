"""A worker of the fleet as a program: its settings as JSON in the first argument.

It leaves on SIGTERM and hands back what it runs. `clock` is how many seconds its clock is wrong by.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from geminorum import Cli
from geminorum.errors import FleetUnavailable
from geminorum.fleet import Worker

_RESTART_SECONDS = 0.2


def _set_clock(seconds: float) -> None:
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)


async def main(
    url: str,
    executable: str,
    slots: int,
    name: str,
    tenants: Sequence[str] | None = None,
    clock: float = 0.0,
) -> None:
    _set_clock(clock)
    transports = {"cli": Cli(executable=executable, grace=0.5)}
    is_told_to_leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    while not is_told_to_leave.is_set():
        worker = Worker(url, transports, slots=slots, name=name, tenants=tenants)
        loop.add_signal_handler(signal.SIGTERM, partial(_leave, worker, is_told_to_leave))
        try:
            await worker.run()
            return
        except FleetUnavailable:  # At its start; whoever supervises it would start it again.
            await asyncio.sleep(_RESTART_SECONDS)


def _leave(worker: Worker, is_told_to_leave: asyncio.Event) -> None:
    # Perhaps between two workers: the next one would never hear of it.
    is_told_to_leave.set()
    worker.stop()
    worker.hand_back()


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
