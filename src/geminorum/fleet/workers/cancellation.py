"""Stops the attempts of a worker whose jobs were cancelled."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from geminorum.errors import FleetUnavailable
from geminorum.fleet.database import Database
from geminorum.fleet.workers import claims

if TYPE_CHECKING:
    from geminorum.fleet.workers.attempt import Attempt

log = logging.getLogger("geminorum.fleet")

_RETRY_SECONDS = 0.25


class Cancellations:
    """Learns of cancelled jobs by notifications, and looks for itself if it may have missed one."""

    def __init__(
        self, database: Database, worker: int, attempts: Mapping[uuid.UUID, Attempt]
    ) -> None:
        """`attempts` are those that go on; the worker changes them."""
        self._database, self._worker, self._attempts = database, worker, attempts
        self._early: set[uuid.UUID] = set()
        """Jobs that may be on their way to this worker."""
        self._may_have_missed = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._may_have_missed.wait()
            self._may_have_missed.clear()
            try:
                await self._look()
            except FleetUnavailable:
                await self._retry_later()
            except Exception:  # Without a look, agents would go on whom somebody has cancelled.
                log.exception("cancelled jobs cannot be looked for")
                await self._retry_later()

    async def _retry_later(self) -> None:
        self._may_have_missed.set()
        await asyncio.sleep(_RETRY_SECONDS)

    def on_notification(self, named: str) -> None:
        """`named` is a job; empty if notifications may have been missed."""
        if not named:
            self._may_have_missed.set()
        elif (job := _id_in(named)) is not None:
            self._stop(job)

    def expect_job(self) -> None:
        """Before a job is claimed: one that was cancelled by now says so itself."""
        self._early.clear()

    def stop_early(self, job: uuid.UUID) -> None:
        """After a job was claimed: its cancellation may have come before it."""
        if job in self._early:
            self._stop(job)

    def _stop(self, job: uuid.UUID) -> None:
        if (attempt := self._attempts.get(job)) is not None:
            attempt.stop("cancel")
        else:
            self._early.add(job)

    async def _look(self) -> None:
        async with self._database.transaction() as connection:
            cancelled = await claims.find_cancelled(connection, self._worker)
        for job in cancelled:
            self._stop(job)


def _id_in(named: str) -> uuid.UUID | None:
    """Anybody who can connect can notify."""
    try:
        return uuid.UUID(named)
    except ValueError:
        return None
