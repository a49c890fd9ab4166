"""The limits in the database: sets, lists and removes them, in a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Sequence

from geminorum.fleet import queue
from geminorum.fleet.database import Connection
from geminorum.fleet.jobs.rows import announce_jobs
from geminorum.fleet.limits.rules import Limit, LimitInfo, Rule

CHANNEL = "geminorum_limits"
_SET = """
INSERT INTO geminorum_limits (kind, key, tenant, model, amount, burst, refuses, label)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (kind, key, tenant, model) DO UPDATE SET amount = excluded.amount,
    burst = excluded.burst, refuses = excluded.refuses, label = excluded.label,
    set_at = clock_timestamp()
"""
# What was taken stays taken: at a higher rate, a bucket is full again sooner.
_RESCALE = """
UPDATE geminorum_buckets AS bucket SET full_at = clock_timestamp()
    + greatest(interval '0', bucket.full_at - clock_timestamp())
        * (limits.amount / %s)::double precision
FROM geminorum_limits AS limits
WHERE limits.id = bucket.limit_id
    AND kind = %s AND limits.key = %s AND limits.tenant = %s AND limits.model = %s
"""
_FIND = """
SELECT label FROM geminorum_limits
WHERE kind = %s AND key = %s AND tenant = %s AND model = %s FOR UPDATE
"""
_REMOVE = """
DELETE FROM geminorum_limits WHERE kind = %s AND key = %s AND tenant = %s AND model = %s
"""
_WAITING_FOR = """
SELECT entry FROM geminorum_jobs WHERE state = 'queued' AND waits_for = %s ORDER BY entry
"""
_RELEASE = """
UPDATE geminorum_jobs SET waits_for = NULL, not_before = clock_timestamp()
WHERE state = 'queued' AND waits_for = %s AND entry = ANY(%s)
"""
_LOCK = 0x67656D6C696D6974
"""Held by those who change limits, and shared by those who put a job back because of one."""
_LIST = """
SELECT kind, amount, nullif(key, ''), nullif(tenant, ''), nullif(model, ''), burst,
    CASE WHEN refuses THEN 'refuse' ELSE 'delay' END,
    CASE kind
        WHEN 'concurrency' THEN (
            SELECT coalesce(max(running.jobs), 0) FROM (
                SELECT count(*) AS jobs FROM geminorum_jobs AS job
                WHERE job.state = 'running' AND limits.tenant IN ('', '*', job.tenant)
                GROUP BY CASE limits.tenant WHEN '' THEN '' ELSE job.tenant END) AS running)
        WHEN 'usd_per_day' THEN (
            SELECT coalesce(max(used), 0) FROM geminorum_buckets
            WHERE limit_id = limits.id AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date)
        ELSE (
            SELECT coalesce(round((greatest(0, extract(epoch FROM
                max(full_at) - clock_timestamp()))::numeric * limits.amount / 60), 3), 0)
            FROM geminorum_buckets WHERE limit_id = limits.id)
    END,
    label
FROM geminorum_limits AS limits ORDER BY kind, key, tenant, model
"""
# `OFFSET 0` keeps PostgreSQL from looking for the obstacle of each job instead of each tenant.
_WAITING = """
SELECT label, sum(jobs) FROM (
    SELECT waits_for AS label, count(*) AS jobs FROM geminorum_jobs
    WHERE state <> 'done' AND waits_for IS NOT NULL GROUP BY waits_for
    UNION ALL
    SELECT geminorum_obstacle(tenant), jobs FROM (
        SELECT tenant, count(*) AS jobs FROM geminorum_jobs
        WHERE state = 'queued' AND waits_for IS NULL GROUP BY tenant OFFSET 0) AS queued
) AS waits
WHERE label IS NOT NULL GROUP BY label
"""
_RULES = """
SELECT id, kind, key, tenant, model, label, refuses FROM geminorum_limits
WHERE kind <> 'concurrency' ORDER BY id
"""


async def set_limit(connection: Connection, limit: Limit) -> None:
    """Adds a limit, or replaces the one of the same kind for the same key, tenant and model."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await _release_jobs(connection, _whose(limit))
    await connection.execute(_RESCALE, (limit.amount, *_whose(limit)))
    rest = limit.amount, limit.burst, limit.reaction == "refuse", limit.label
    await connection.execute(_SET, (*_whose(limit), *rest))
    await _announce(connection)


async def remove_limit(
    connection: Connection, kind: str, key: str | None, tenant: str | None, model: str | None
) -> bool:
    """False if there was none."""
    whose = kind, key or "", tenant or "", model or ""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await _release_jobs(connection, whose)
    is_removed = (await connection.execute(_REMOVE, whose)).rowcount == 1
    await _announce(connection)
    return is_removed


async def list_limits(connection: Connection) -> list[LimitInfo]:
    waiting = dict(await (await connection.execute(_WAITING)).fetchall())
    names = LimitInfo.__struct_fields__
    rows = await (await connection.execute(_LIST)).fetchall()
    return [
        LimitInfo(**dict(zip(names, (*facts, int(waiting.get(label, 0))), strict=True)))
        for *facts, label in rows
    ]


async def rules_of(connection: Connection) -> Sequence[Rule]:
    """Those that requests are compared with."""
    return [Rule(*row) for row in await (await connection.execute(_RULES)).fetchall()]


def _whose(limit: Limit) -> tuple[str, str, str, str]:
    return limit.kind, limit.key or "", limit.tenant or "", limit.model or ""


async def _release_jobs(connection: Connection, whose: tuple[str, ...]) -> None:
    """Lets jobs that went back into the queue because of a limit try again under the new one."""
    found = await (await connection.execute(_FIND, whose)).fetchone()
    if found is not None:
        rows = await (await connection.execute(_WAITING_FOR, found)).fetchall()
        entries = [entry for (entry,) in rows]
        # The queue first, as those who take a job do.
        await queue.hurry(connection, entries)
        await connection.execute(_RELEASE, (*found, entries))
        await announce_jobs(connection)


async def is_set(connection: Connection, label: str) -> bool:
    """Is there a limit of that name? Until the transaction ends, none changes."""
    await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK,))
    query = "SELECT 1 FROM geminorum_limits WHERE label = %s"
    return await (await connection.execute(query, (label,))).fetchone() is not None


async def _announce(connection: Connection) -> None:
    await connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))


async def remove_unused_buckets(connection: Connection) -> None:
    """A bucket that is full, and of another day, is made again when it is needed."""
    await connection.execute("""DELETE FROM geminorum_buckets WHERE full_at < clock_timestamp()
        AND day < (clock_timestamp() AT TIME ZONE 'UTC')::date""")
