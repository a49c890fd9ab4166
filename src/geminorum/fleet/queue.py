"""Procrastinate as the fleet uses it: ten methods, all in a transaction of their caller's.

Procrastinate decides who gets which job, in what order, and one at a time for each lock. What a job
is, what it has said and how it ended is in tables of our own (`schema.py`). Nothing else imports
Procrastinate, so another queue would have to replace this module only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from geminorum.errors import FleetError, FleetUnavailable
from geminorum.fleet.database import Connection
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from procrastinate import exceptions, jobs, manager, psycopg_connector
else:
    exceptions = lazy_module("procrastinate.exceptions")
    jobs = lazy_module("procrastinate.jobs")
    manager = lazy_module("procrastinate.manager")
    psycopg_connector = lazy_module("procrastinate.psycopg_connector")

_TASK = "geminorum.run"
_QUEUE = "geminorum/"
"""A queue for each tenant, so that a worker can choose whose turn it is."""


class QueueEntry(NamedTuple):
    """What the queue has to know of a job."""

    tenant: str
    priority: int = 0
    lock: str | None = None
    """Of jobs with the same lock, one runs at a time, in their order."""


class Taken(NamedTuple):
    """A job that a worker was given."""

    entry: int
    attempt: int


async def put(connection: Connection, entries: Sequence[QueueEntry]) -> list[int]:
    """Queues jobs; returns the number of each entry."""
    made = [
        jobs.Job(
            queue=_QUEUE + one.tenant,
            priority=one.priority,
            lock=one.lock,
            queueing_lock=None,
            task_name=_TASK,
        )
        for one in entries
    ]
    async with _on(connection) as queue:
        return [job.id for job in await queue.batch_defer_jobs_async(made) if job.id is not None]


async def take(
    connection: Connection, worker: int, tenants: Sequence[str] | None = None
) -> Taken | None:
    """Gives the next job of these tenants to a worker; None if there is none."""
    queues = None if tenants is None else [_QUEUE + tenant for tenant in tenants]
    async with _on(connection) as queue:
        job = await queue.fetch_job(queues=queues, worker_id=worker)
    if job is None or job.id is None:
        return None
    return Taken(job.id, job.attempts + 1)


async def put_back(connection: Connection, entry: int, at: datetime) -> None:
    """Lets a running job be taken again, from `at` on."""
    async with _on(connection) as queue:
        await queue.retry_job_by_id_async(job_id=entry, retry_at=at)


async def hurry(connection: Connection, entries: Sequence[int]) -> None:
    """Lets jobs that were put back be taken now. Procrastinate itself has no word for that."""
    update = """UPDATE procrastinate_jobs SET scheduled_at = NULL
        WHERE id = ANY(%s) AND status = 'todo'"""
    await connection.execute(update, (list(entries),))


async def finish(connection: Connection, entry: int, *, succeeded: bool) -> None:
    status = jobs.Status.SUCCEEDED if succeeded else jobs.Status.FAILED
    async with _on(connection) as queue:
        await queue.finish_job_by_id_async(job_id=entry, status=status, delete_job=False)


async def withdraw(connection: Connection, entry: int) -> bool:
    """Takes a job out of the queue; False if it has begun or is over."""
    async with _on(connection) as queue:
        return bool(await queue.cancel_job_by_id_async(entry))


async def remove(connection: Connection, entries: Sequence[int]) -> None:
    """Forgets jobs that are over. Procrastinate itself only deletes all that are old."""
    delete = "DELETE FROM procrastinate_jobs WHERE id = ANY(%s)"
    await connection.execute(delete, (list(entries),))


async def locks_in_use(connection: Connection, locks: Sequence[str]) -> set[str]:
    """Those of them that a job has which waits or runs."""
    query = """SELECT DISTINCT lock FROM procrastinate_jobs
        WHERE lock = ANY(%s) AND status IN ('todo', 'doing')"""
    return {lock for (lock,) in await (await connection.execute(query, (list(locks),))).fetchall()}


async def register_worker(connection: Connection) -> int:
    async with _on(connection) as queue:
        return int(await queue.register_worker())


async def unregister_worker(connection: Connection, worker: int) -> None:
    async with _on(connection) as queue:
        await queue.unregister_worker(worker)


class _OneConnection:
    """A pool of one connection, whose transaction is its owner's affair."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        yield self._connection


@asynccontextmanager
async def _on(connection: Connection) -> AsyncIterator[manager.JobManager]:
    connector = psycopg_connector.PsycopgConnector()
    pool: Any = _OneConnection(connection)
    await connector.open_async(pool)
    with _without_wrapping():
        yield manager.JobManager(connector)


@contextmanager
def _without_wrapping() -> Iterator[None]:
    """Procrastinate wraps what the driver raises; our own callers know the driver's errors."""
    try:
        yield
    except exceptions.UniqueViolation as error:
        # Two jobs of one lock at the same moment. As after a deadlock, the next try succeeds.
        raise FleetUnavailable("another worker was quicker") from error
    except exceptions.ConnectorException as error:
        if error.__cause__ is None:
            raise FleetError(str(error)) from error
        raise error.__cause__ from None
