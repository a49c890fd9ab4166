"""A worker: takes jobs of the fleet, and runs their agents."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from geminorum._version import __version__
from geminorum.errors import FleetUnavailable, GeminorumError
from geminorum.fleet import schema
from geminorum.fleet.database import WORKER_IDLE_SECONDS, Database
from geminorum.fleet.events.writer import EventWriter
from geminorum.fleet.jobs.reports import Happening, WorkerReport
from geminorum.fleet.jobs.rows import CANCEL_CHANNEL, JOBS_CHANNEL
from geminorum.fleet.limits.gate import Gatehouse
from geminorum.fleet.limits.table import CHANNEL as LIMITS_CHANNEL
from geminorum.fleet.workers import claims, takeover
from geminorum.fleet.workers.attempt import ROOM_PREFIX, Attempt
from geminorum.fleet.workers.cancellation import Cancellations
from geminorum.fleet.workers.claims import Claim
from geminorum.fleet.workers.heartbeat import Heartbeat
from geminorum.fleet.workers.running_bill import RunningBill
from geminorum.runtime.off_loop import run_off_loop
from geminorum.system.owned_folder import sweep, temporary_folder
from geminorum.transports import Transport
from geminorum.transports.process.agent_lease import AGENT_LEASE

log = logging.getLogger("geminorum.fleet")

_LOOK_SECONDS, _RETRY_SECONDS = 1.0, 0.25
_MAX_STARTING = max(4, 2 * (os.cpu_count() or 1))
"""Agents that a worker starts at the same time: a start is much work, for which the events of those
that run would have to wait. Another worker may start the next one sooner, too."""
_UNSURE_SECONDS = 60.0
"""After a failure to take jobs: a lost connection may have given the worker one all the same."""
_MOST_PER_SLOT = 2
"""Jobs of which one runs: the others wait for limits."""
_REST_SECONDS = 5.0
"""Without new jobs after one that failed because of this machine: longer than the job waits, so
that another worker takes it."""


class Worker:
    """Runs jobs until it is told to stop: `await Worker(url, transports).run()`."""

    def __init__(
        self,
        url: str,
        transports: Mapping[str, Transport],
        *,
        slots: int = 4,
        tenants: Sequence[str] | None = None,
        name: str | None = None,
        on_report: Callable[[WorkerReport], object] | None = None,
    ) -> None:
        """`transports` has one for each `via` that this machine can serve.

        `on_report` learns of each job that begins and ends; what it raises is logged.
        """
        self._database = Database(url, connections=6, idle_seconds=WORKER_IDLE_SECONDS)
        self._transports, self._slots, self._tenants = transports, slots, tenants
        self.name = name or f"{platform.node() or 'worker'}:{os.getpid()}"
        # A connection of its own: transactions of the others wait for what it has written.
        self._events = Database(url, connections=1, idle_seconds=WORKER_IDLE_SECONDS)
        self._writer = EventWriter(self._events, self._on_lost)
        self._attempts: dict[uuid.UUID, Attempt] = {}
        self._bill = RunningBill(self._database, self._attempts)
        self._house = Gatehouse(url, self._database)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._rests_until = self._unsure_until = -math.inf
        self._cancellations: Cancellations | None = None
        self._on_report = on_report

    @property
    def running(self) -> int:
        """How many jobs run."""
        return len(self._attempts)

    def stop(self) -> None:
        """Takes no more jobs; `run` returns when those that run have ended."""
        self._is_stopping = True
        self._wake.set()

    def hand_back(self) -> None:
        """Ends the agents that run, and lets other workers continue them."""
        for attempt in list(self._attempts.values()):
            attempt.stop("hand_back")

    async def run(self) -> None:
        async with self._database, self._events, self._house:
            await schema.require_current(self._database)
            await self._house.book.read()
            await run_off_loop(_remove_rooms_of_the_dead)
            writing = asyncio.create_task(self._writer.run())
            billing = asyncio.create_task(self._bill.run())
            reading = asyncio.create_task(self._house.book.run())
            channels = JOBS_CHANNEL, CANCEL_CHANNEL, LIMITS_CHANNEL
            listening = asyncio.create_task(
                self._database.listen(*channels, on_message=self._on_message)
            )
            try:
                while not (self._is_stopping and not self._attempts):
                    await self._live_once()
            finally:
                await _end_tasks(writing, billing, reading, listening, *self._tasks)
                # Other agents of this process have nothing to do with our heartbeat.
                AGENT_LEASE.end()

    async def _live_once(self) -> None:
        """From one registration until the worker is given up, or has nothing left to do."""
        try:
            async with self._database.transaction() as connection:
                worker = await claims.register(connection, self.name, self._slots, self._about())
        except FleetUnavailable as error:
            log.warning("%s", error.message)
            await asyncio.sleep(_RETRY_SECONDS)
            return
        self._report("registered")
        heartbeat = Heartbeat(self._database, worker, AGENT_LEASE.renew)
        self._cancellations = Cancellations(self._database, worker, self._attempts)
        beating = asyncio.create_task(heartbeat.run())
        working = asyncio.create_task(self._work(worker, heartbeat, self._cancellations))
        cancelling = asyncio.create_task(self._cancellations.run())
        sweeping = asyncio.create_task(takeover.sweep(self._database))
        try:
            await asyncio.wait({beating, working}, return_when=asyncio.FIRST_COMPLETED)
            await _report_failure(working)
        finally:
            await _end_tasks(working, sweeping, cancelling)
            # Before others learn that the worker is gone, and take its jobs.
            await self._lose_all()
            await self._unregister(worker)
            await _end_tasks(beating)

    def _about(self) -> dict[str, Any]:
        tenants = None if self._tenants is None else [*self._tenants]
        return {"version": __version__, "vias": sorted(self._transports), "tenants": tenants}

    async def _work(self, worker: int, heartbeat: Heartbeat, cancellations: Cancellations) -> None:
        while not self._is_stopping or self._attempts:
            heartbeat.is_draining = self._is_stopping
            self._wake.clear()
            try:
                await self._free_strays(worker)
                while self._has_room() and (claim := await self._take(worker, cancellations)):
                    self._begin(claim)
                    cancellations.stop_early(claim.job)
            except Exception as error:
                await self._recover(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()

    def _has_room(self) -> bool:
        if self._is_stopping or time.monotonic() < self._rests_until:
            return False
        starting = sum(attempt.is_starting for attempt in self._attempts.values())
        # A job that waits for a limit lends its slot to another tenant, within reason.
        is_free = len(self._attempts) - len(self._waiting()) < self._slots
        has_memory = len(self._attempts) < _MOST_PER_SLOT * self._slots
        return is_free and has_memory and starting < _MAX_STARTING

    def _waiting(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if attempt.is_waiting]

    async def _take(self, worker: int, cancellations: Cancellations) -> Claim | None:
        is_lent = len(self._attempts) >= self._slots
        avoided = {attempt.claim.tenant for attempt in self._waiting()} if is_lent else set()
        cancellations.expect_job()
        async with self._database.transaction() as connection:
            vias = list(self._transports)
            return await claims.take(connection, worker, self.name, vias, self._tenants, avoided)

    async def _free_strays(self, worker: int) -> None:
        if time.monotonic() < self._unsure_until:
            await takeover.free_strays(self._database, worker, list(self._attempts))

    async def _recover(self, error: Exception) -> None:
        """From a failure to take jobs, which is no reason to end those that run."""
        if isinstance(error, FleetUnavailable):
            log.warning("%s", error.message)
        else:
            log.error("the worker cannot take jobs", exc_info=error)
        self._unsure_until = time.monotonic() + _UNSURE_SECONDS
        await asyncio.sleep(_RETRY_SECONDS)

    def _begin(self, claim: Claim) -> None:
        transport = self._transports[claim.via]
        own = self._database, self._writer, self._house
        attempt = Attempt(claim, transport, *own, self._wake.set)
        self._attempts[claim.job] = attempt
        task = asyncio.create_task(self._see_through(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, attempt: Attempt) -> None:
        began = time.monotonic()
        self._report("begun", attempt.claim)
        try:
            await attempt.run()
        except Exception:
            log.exception("the end of job %s cannot be written", attempt.claim.job)
            self._unsure_until = time.monotonic() + _UNSURE_SECONDS
        finally:
            if attempt.met_setup_error:
                self._rests_until = time.monotonic() + _REST_SECONDS
            if self._attempts.get(attempt.claim.job) is attempt:
                del self._attempts[attempt.claim.job]
            self._wake.set()
            seconds = round(time.monotonic() - began, 3)
            self._report("ended", attempt.claim, ending=attempt.ending, seconds=seconds)

    def _report(self, what: Happening, claim: Claim | None = None, **more: Any) -> None:
        if self._on_report is None:
            return
        if claim is not None:
            about = {"attempt": claim.attempt, "tenant": claim.tenant, "via": claim.via}
            more |= {"job": str(claim.job), **about}
        try:
            self._on_report(WorkerReport(what=what, worker=self.name, **more))
        except Exception:
            log.exception("on_report of worker %s", self.name)

    async def _lose_all(self) -> None:
        """The worker was given up: what it ran is another's by now."""
        for attempt in list(self._attempts.values()):
            attempt.stop("lost")
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _on_lost(self, job: uuid.UUID, number: int) -> None:
        attempt = self._attempts.get(job)
        if attempt is not None and attempt.claim.attempt == number:
            attempt.stop("lost")

    def _on_message(self, channel: str, payload: str) -> None:
        self._wake.set()
        if channel in (LIMITS_CHANNEL, ""):
            self._house.book.note_change()
        if channel in (CANCEL_CHANNEL, "") and self._cancellations is not None:
            self._cancellations.on_notification(payload)

    async def _unregister(self, worker: int) -> None:
        with suppress(GeminorumError):
            async with self._database.transaction() as connection:
                await claims.unregister(connection, worker)


def _remove_rooms_of_the_dead() -> None:
    """What workers that were killed have left on this machine."""
    sweep(ROOM_PREFIX, [temporary_folder()])


async def _report_failure(working: asyncio.Task[None]) -> None:
    """A defect must not pass in silence, nor be repeated at full speed."""
    if working.done() and (error := working.exception()) is not None:
        log.error("the worker starts again after a failure", exc_info=error)
        await asyncio.sleep(_RETRY_SECONDS)


async def _end_tasks(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
