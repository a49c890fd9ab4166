"""A worker's heartbeat, and the lease of its agents, which ends with it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from geminorum.errors import FleetUnavailable
from geminorum.fleet.database import Connection, Database, explained
from geminorum.fleet.workers import claims
from geminorum.fleet.workers.lease_times import BEAT_SECONDS, LEASE_SECONDS

log = logging.getLogger("geminorum.fleet")


class Heartbeat:
    """Reports a worker on a connection of its own, so that nothing else can hold it up."""

    def __init__(self, database: Database, worker: int, renew: Callable[[float], object]) -> None:
        """`renew` extends the lease of the agents by some seconds."""
        self._database, self._worker, self._renew = database, worker, renew
        self._connection: Connection | None = None
        self.is_draining = False
        self.deadline = time.monotonic() + LEASE_SECONDS
        """Of the lease, by our own clock."""

    async def run(self) -> None:
        """Returns when the worker was given up, or could not report in time."""
        try:
            while True:
                sent = time.monotonic()
                if not await self._beat():
                    return
                if self.deadline > sent:
                    await asyncio.sleep(max(0.0, sent + BEAT_SECONDS - time.monotonic()))
                else:
                    log.warning("the worker could not report for %g s", LEASE_SECONDS)
                    return
        finally:
            await self._hang_up()

    async def _beat(self) -> bool:
        """False if the worker was given up, or its lease is over. A database that does not answer
        changes nothing."""
        sent = time.monotonic()
        try:
            async with asyncio.timeout_at(self._loop_deadline()):
                is_alive = await self._report()
        except (FleetUnavailable, TimeoutError):
            await self._hang_up()
            return True
        left = sent + LEASE_SECONDS - time.monotonic()
        if not is_alive or left <= 0:  # An answer that took so long came after the agents' end.
            return False
        self.deadline = sent + LEASE_SECONDS
        self._renew(left)
        return True

    async def _report(self) -> bool:
        with explained(self._database.url):
            if self._connection is None:
                self._connection = await self._database.connect()
            return await claims.beat(self._connection, self._worker, is_draining=self.is_draining)

    def _loop_deadline(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.time() + max(0.0, self.deadline - time.monotonic()) + BEAT_SECONDS

    async def _hang_up(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                await self._connection.close()
            self._connection = None
