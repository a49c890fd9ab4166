"""The fleet for synchronous code: `from geminorum.fleet import sync`, then `with sync.Fleet()`.

Each block runs an event loop in its own thread, as those of `geminorum.sync` do, and passes every
call to the asynchronous implementation there.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic

from geminorum.events import DataT, Event
from geminorum.fleet import client
from geminorum.fleet.client import DEFAULT_TENANT, JobRequest
from geminorum.fleet.events.feed import Numbered
from geminorum.fleet.jobs.details import JobDetails
from geminorum.fleet.jobs.rows import JobInfo, State
from geminorum.fleet.limits.rules import Limit, LimitInfo, LimitKind, Reaction
from geminorum.fleet.retention import Pruned
from geminorum.fleet.status import FleetStatus
from geminorum.fleet.travel import Via
from geminorum.options import Options
from geminorum.sync import BackgroundLoop
from geminorum.views.result import Result

if TYPE_CHECKING:
    from geminorum.workspace import Patch


class Fleet:
    """A connection to the workers' database; opened by `with Fleet() as fleet`."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: of a PostgreSQL; None: GEMINORUM_DB, or else one that geminorum runs itself."""
        self._fleet = client.Fleet(url)
        self._loop = BackgroundLoop()

    def __enter__(self) -> Fleet:
        self._loop.__enter__()
        try:
            self._loop.call(self._fleet.__aenter__())
        except BaseException:
            self._loop.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._loop.is_open:
            return  # Python shuts down, and the connections end with it.
        try:
            self._loop.call(self._fleet.__aexit__(None, None, None))
        finally:
            self._loop.__exit__()

    def submit(
        self,
        prompt: str,
        options: Options[DataT] | None = None,
        *,
        via: Via = "cli",
        tenant: str = DEFAULT_TENANT,
        workspace: str | os.PathLike[str] | None = None,
        priority: int = 0,
        idempotency_key: str | None = None,
        max_attempts: int = 3,
    ) -> Job[DataT]:
        """Queues a job for any worker, and returns at once. See `JobRequest` for the arguments."""
        submitted = self._fleet.submit(
            prompt,
            options,
            via=via,
            tenant=tenant,
            workspace=workspace,
            priority=priority,
            idempotency_key=idempotency_key,
            max_attempts=max_attempts,
        )
        return Job(self._loop.call(submitted), self._loop)

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Job[Any]]:
        """Queues several jobs, all or none."""
        jobs = self._loop.call(self._fleet.submit_many(requests))
        return [Job(job, self._loop) for job in jobs]

    def job(self, id: str | uuid.UUID) -> Job[Any]:
        """A job that was submitted before, by anybody."""
        return Job(self._loop.call(self._fleet.job(id)), self._loop)

    def job_with_key(self, key: str, *, tenant: str = DEFAULT_TENANT) -> Job[Any] | None:
        """The job that was submitted with this idempotency key; None if there is none."""
        job = self._loop.call(self._fleet.job_with_key(key, tenant=tenant))
        return None if job is None else Job(job, self._loop)

    def jobs(
        self, *, tenant: str | None = None, state: State | None = None, limit: int = 100
    ) -> list[JobInfo]:
        """Lists jobs, the newest first."""
        return self._loop.call(self._fleet.jobs(tenant=tenant, state=state, limit=limit))

    def find_job(self, beginning: str) -> Job[Any]:
        """The only job whose id begins like that; `InvalidOptions` if there are several."""
        return Job(self._loop.call(self._fleet.find_job(beginning)), self._loop)

    def status(self) -> FleetStatus:
        """Workers, queues, running jobs, limits that jobs wait for, and spending by tenant."""
        return self._loop.call(self._fleet.status())

    def prune(self, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
        """Removes jobs that ended longer ago than that, their sessions, and lost workers."""
        return self._loop.call(self._fleet.prune(older_than, dry_run=dry_run))

    def limits(self) -> list[LimitInfo]:
        """The limits over all workers, and how far each is used."""
        return self._loop.call(self._fleet.limits())

    def set_limit(
        self,
        kind: LimitKind,
        amount: float | Decimal,
        *,
        key: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
        burst: float | Decimal | None = None,
        reaction: Reaction = "delay",
    ) -> Limit:
        """Limits all workers together, as the asynchronous `set_limit` does."""
        setting = self._fleet.set_limit(
            kind, amount, key=key, tenant=tenant, model=model, burst=burst, reaction=reaction
        )
        return self._loop.call(setting)

    def remove_limit(
        self,
        kind: LimitKind,
        *,
        key: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
    ) -> bool:
        """Removes the limit that was set for the same; False if there was none."""
        removing = self._fleet.remove_limit(kind, key=key, tenant=tenant, model=model)
        return self._loop.call(removing)


class Job(Generic[DataT]):
    """A job of the fleet, wherever it runs."""

    def __init__(self, job: client.Job[DataT], loop: BackgroundLoop) -> None:
        self._job, self._loop = job, loop

    @property
    def id(self) -> str:
        return self._job.id

    def __repr__(self) -> str:
        return repr(self._job)

    def info(self) -> JobInfo:
        return self._loop.call(self._job.info())

    def details(self) -> JobDetails:
        """Its prompt, its options and its attempts, too."""
        return self._loop.call(self._job.details())

    def events(self, after: tuple[int, int] = (0, 0)) -> Iterator[Event]:
        """All events from the first one on, also of a job that is over; the last is its Done."""
        return (event for _, event in self.numbered_events(after))

    def numbered_events(
        self, after: tuple[int, int] = (0, 0)
    ) -> Iterator[tuple[tuple[int, int], Event]]:
        """Events with their cursors, (attempt, number): `after` continues behind one of them."""
        batches = self._job.event_batches(after)
        try:
            while batch := self._loop.call(_next(batches)):
                yield from batch
        finally:
            if self._loop.is_open:
                self._loop.call(batches.aclose())

    def read_events(
        self, after: tuple[int, int] = (0, 0), *, limit: int = 500
    ) -> list[tuple[tuple[int, int], Event]]:
        """Events with their cursors that are there now, no more than `limit`; does not wait."""
        return self._loop.call(self._job.read_events(after, limit=limit))

    def result(self) -> Result[DataT]:
        """Waits for the end; returns the Result, or raises the exception, as a local run would."""
        return self._loop.call(self._job.result())

    def wait(self) -> Result[DataT]:
        """Waits for the end; returns the Result also of a job that failed."""
        return self._loop.call(self._job.wait())

    def retry(self) -> Job[DataT]:
        """Submits a job that failed, or was cancelled, once more; returns the new job."""
        return Job(self._loop.call(self._job.retry()), self._loop)

    def cancel(self) -> None:
        """Stops the job, wherever it is. Its events, and its Done, can still be read."""
        self._loop.call(self._job.cancel())

    def patch(self) -> Patch | None:
        """What the agent changed in its workspace; None if the job had none, or is not over."""
        return self._loop.call(self._job.patch())


async def _next(batches: AsyncGenerator[Numbered, None]) -> Numbered | None:
    """None at the end, which as an exception would not come through a future."""
    return await anext(batches, None)
