"""Removes jobs that were done long ago, with all that belongs to them, and lost workers."""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import partial

import msgspec

from geminorum.fleet import queue
from geminorum.fleet.database import Connection, Database
from geminorum.fleet.limits.table import remove_unused_buckets
from geminorum.fleet.workers.session_store import TenantStore
from geminorum.runtime.off_loop import run_off_loop

_AT_ONCE = 500
"""Jobs in a transaction: nobody waits long for it, and no statement reaches its time limit."""
# Both also by `submitted_at`, which has an index; a job ends after it was submitted.
_COUNT = """
SELECT (SELECT count(*) FROM geminorum_jobs
        WHERE state = 'done' AND submitted_at < now() - %(age)s AND finished_at < now() - %(age)s),
    (SELECT count(*) FROM geminorum_workers WHERE is_lost)
"""
_CHOOSE = """
SELECT id FROM geminorum_jobs
WHERE state = 'done' AND submitted_at < now() - %(age)s AND finished_at < now() - %(age)s
ORDER BY submitted_at LIMIT %(at_once)s
"""
# Of these jobs, and of no others.
_SESSIONS = """
SELECT DISTINCT job.tenant, attempt.session
FROM geminorum_attempts AS attempt JOIN geminorum_jobs AS job ON job.id = attempt.job
WHERE job.id = ANY(%(jobs)s) AND attempt.session IS NOT NULL AND NOT EXISTS (
    SELECT FROM geminorum_attempts AS other JOIN geminorum_jobs AS their ON their.id = other.job
    WHERE other.session = attempt.session AND their.tenant = job.tenant
        AND their.id <> ALL(%(jobs)s))
"""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    jobs: int
    workers: int
    """Rows of workers that were lost."""


async def prune(database: Database, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
    """Removes the jobs that ended longer ago than that, by the database's clock.

    With them go their events, packs and patches, and the sessions that only they used. Jobs that
    wait or run stay, whatever their age.
    """
    if dry_run:
        return await _count(database, older_than)
    jobs = 0
    while removed := await _remove_some(database, older_than):
        jobs += removed
    async with database.transaction() as connection:
        workers = await _remove_lost_workers(connection)
        await remove_unused_buckets(connection)
    return Pruned(jobs=jobs, workers=workers)


async def _count(database: Database, age: timedelta) -> Pruned:
    async with database.transaction() as connection:
        row = await (await connection.execute(_COUNT.encode(), {"age": age})).fetchone()
    assert row is not None
    return Pruned(jobs=row[0], workers=row[1])


async def _remove_some(database: Database, age: timedelta) -> int:
    """Sessions first: if this is cut short, the next one finds their jobs, and them, again."""
    async with database.transaction() as connection:
        values = {"age": age, "at_once": _AT_ONCE}
        cursor = await connection.execute(_CHOOSE.encode(), values)
        jobs = [job for (job,) in await cursor.fetchall()]
        sessions = await _sessions_of(connection, jobs)
    for tenant, session in sessions:
        store = TenantStore(database.url, tenant)
        await run_off_loop(partial(store.delete, session))
    async with database.transaction() as connection:
        # Attempts and events go with their jobs, by their foreign keys.
        delete = "DELETE FROM geminorum_jobs WHERE id = ANY(%s) RETURNING entry"
        entries = await (await connection.execute(delete, (jobs,))).fetchall()
        await queue.remove(connection, [entry for (entry,) in entries])
    return len(entries)


async def _sessions_of(connection: Connection, jobs: list[uuid.UUID]) -> list[tuple[str, str]]:
    """Tenants and sessions that no other job has, or waits to continue."""
    found = await (await connection.execute(_SESSIONS, {"jobs": jobs})).fetchall()
    held = await queue.locks_in_use(connection, [f"{one}/{session}" for one, session in found])
    return [(one, session) for one, session in found if f"{one}/{session}" not in held]


async def _remove_lost_workers(connection: Connection) -> int:
    """Whoever still has a job of one takes a worker without a row for lost, too."""
    delete = "DELETE FROM geminorum_workers WHERE is_lost RETURNING id"
    workers = await (await connection.execute(delete)).fetchall()
    for (worker,) in workers:
        await queue.unregister_worker(connection, worker)
    return len(workers)
