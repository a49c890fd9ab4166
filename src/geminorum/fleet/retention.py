"""Removes jobs that were done long ago, with all that belongs to them, and lost workers."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from geminorum.fleet import queue
from geminorum.fleet.database import Connection, Database

_AT_ONCE = 500
"""Jobs in a transaction: nobody waits long for it, and no statement reaches its time limit."""
# Also by `submitted_at`, which has an index; a job ends after it was submitted.
_OLD = """state = 'done' AND submitted_at < now() - %(age)s AND finished_at < now() - %(age)s"""
_COUNT = f"""
SELECT (SELECT count(*) FROM geminorum_jobs WHERE {_OLD}),
    (SELECT count(*) FROM geminorum_workers WHERE is_lost)
"""
_DELETE = f"""
DELETE FROM geminorum_jobs WHERE id IN (
    SELECT id FROM geminorum_jobs WHERE {_OLD}
    ORDER BY submitted_at LIMIT %(at_once)s FOR UPDATE SKIP LOCKED)
RETURNING entry
"""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    jobs: int
    workers: int
    """Rows of workers that were lost."""


async def prune(database: Database, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
    """Removes the jobs that ended longer ago than that, by the database's clock.

    Jobs that wait or run stay, whatever their age. So do sessions: a later job may continue one.
    """
    if dry_run:
        return await _count(database, older_than)
    jobs = 0
    while removed := await _remove_some(database, older_than):
        jobs += removed
    async with database.transaction() as connection:
        workers = await _remove_lost_workers(connection)
    return Pruned(jobs=jobs, workers=workers)


async def _count(database: Database, age: timedelta) -> Pruned:
    async with database.transaction() as connection:
        row = await (await connection.execute(_COUNT.encode(), {"age": age})).fetchone()
    assert row is not None
    return Pruned(jobs=row[0], workers=row[1])


async def _remove_some(database: Database, age: timedelta) -> int:
    """Attempts and events go with their jobs, by their foreign keys."""
    async with database.transaction() as connection:
        values = {"age": age, "at_once": _AT_ONCE}
        cursor = await connection.execute(_DELETE.encode(), values)
        entries = [entry for (entry,) in await cursor.fetchall()]
        await queue.remove(connection, entries)
    return len(entries)


async def _remove_lost_workers(connection: Connection) -> int:
    """Whoever still has a job of one takes a worker without a row for lost, too."""
    delete = "DELETE FROM geminorum_workers WHERE is_lost RETURNING id"
    workers = await (await connection.execute(delete)).fetchall()
    for (worker,) in workers:
        await queue.unregister_worker(connection, worker)
    return len(workers)
