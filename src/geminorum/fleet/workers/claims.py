"""Who works on a job: workers, the jobs that they take, and the end of each attempt.

A worker that has not reported for `LOST_SECONDS` by the database's clock is lost for good, and its
jobs are free for others. Before that, the lease of its agents has ended them: see `lease_times.py`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from geminorum.errors import FleetError, GeminorumError, Interrupted, UnknownJob
from geminorum.events import encode
from geminorum.fleet import queue
from geminorum.fleet.database import Connection
from geminorum.fleet.events.writer import Chunk, notify, write_chunks
from geminorum.fleet.jobs.rows import JOBS_CHANNEL, end_job, end_unbegun
from geminorum.fleet.limits import table as limits_table
from geminorum.fleet.travel import Outcome, ended_by
from geminorum.fleet.workers.lease_times import LOST_SECONDS
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = lazy_module("psycopg")

log = logging.getLogger("geminorum.fleet")

_CHANGED_LIMIT_SECONDS = 2.0
"""Before a job tries again whose limit is another by now."""
# `OFFSET 0` keeps PostgreSQL from looking for the obstacle of each job instead of each tenant.
_CHOOSE = """
SELECT via || '/' || tenant, tenant FROM (
    SELECT via, tenant, max(priority) AS urgent, min(submitted_at) AS oldest, (
        SELECT count(*) FROM geminorum_jobs AS running
        WHERE running.state = 'running' AND running.tenant = waiting.tenant) AS running
    FROM geminorum_jobs AS waiting
    WHERE state = 'queued' AND not_before <= clock_timestamp() AND via = ANY(%(vias)s)
        AND (%(tenants)s::text[] IS NULL OR tenant = ANY(%(tenants)s))
        AND tenant <> ALL(%(others)s)
    GROUP BY via, tenant OFFSET 0) AS choice
WHERE geminorum_obstacle(tenant) IS NULL
ORDER BY running, urgent DESC, oldest
"""
_LOCK_CONCURRENCY = """
SELECT pg_advisory_xact_lock(hashtextextended('geminorum/concurrency/' || id, 0))
FROM (SELECT id FROM geminorum_limits
    WHERE kind = 'concurrency' AND tenant IN ('', '*', %s) ORDER BY id) AS limits
"""
_TAKE = """
UPDATE geminorum_jobs SET state = 'running', attempt = %s, worker = %s, waits_for = NULL,
    started_at = coalesce(started_at, clock_timestamp())
WHERE entry = %s RETURNING
    id, tenant, via, max_attempts::bigint + excused, is_cancelled
"""
_LAST_SESSION = """
SELECT session FROM geminorum_attempts
WHERE job = %s AND session IS NOT NULL AND checkpoints > 0 ORDER BY number DESC LIMIT 1
"""
_IS_ALIVE = """
SELECT 1 FROM geminorum_workers
WHERE id = %s AND NOT is_lost AND heartbeat_at >= clock_timestamp() - %s * interval '1 s'
"""
# A heartbeat of the future is one from before the database's clock was set back.
_LOSE = """
UPDATE geminorum_workers SET is_lost = true
WHERE NOT is_lost AND heartbeat_at NOT BETWEEN clock_timestamp() - %(seconds)s * interval '1 s'
    AND clock_timestamp() + %(seconds)s * interval '1 s'
"""
_ORPHANS = """
SELECT job.id, job.entry, job.attempt, job.max_attempts::bigint + job.excused, job.is_cancelled
FROM geminorum_jobs AS job LEFT JOIN geminorum_workers AS worker ON worker.id = job.worker
WHERE job.state = 'running' AND coalesce(worker.is_lost, true) FOR UPDATE OF job SKIP LOCKED
"""
_STRAYS = """
SELECT id, entry, attempt, max_attempts::bigint + excused, is_cancelled FROM geminorum_jobs
WHERE state = 'running' AND worker = %s AND id <> ALL(%s) FOR UPDATE SKIP LOCKED
"""
_IS_CANCELLED = "SELECT 1 FROM geminorum_jobs WHERE id = %s AND is_cancelled"
_REQUEUE = """
UPDATE geminorum_jobs SET state = 'queued', worker = NULL, waits_for = %s, excused = excused + %s,
    progress = coalesce(%s, progress), not_before = clock_timestamp() + %s * interval '1 s'
WHERE id = %s RETURNING not_before
"""
_FORGET_SESSION = "UPDATE geminorum_attempts SET checkpoints = 0 WHERE job = %s AND number = %s"


class Claim(NamedTuple):
    """A job that a worker has taken."""

    job: uuid.UUID
    entry: int
    attempt: int
    tenant: str
    via: str
    max_attempts: int
    is_cancelled: bool
    session: str | None
    """Which an earlier attempt has left, with its work in it."""

    @property
    def is_last(self) -> bool:
        return self.attempt >= self.max_attempts


class Content(NamedTuple):
    """What an attempt works with; it may have many megabytes."""

    spec: bytes
    pack: bytes | None
    progress: bytes | None
    """A patch: what an earlier attempt had changed in the workspace."""


class Orphan(NamedTuple):
    """A job whose worker was lost."""

    job: uuid.UUID
    entry: int
    attempt: int
    max_attempts: int
    is_cancelled: bool


async def register(connection: Connection, name: str, slots: int, about: dict[str, Any]) -> int:
    """Adds a worker; returns its number."""
    worker = await queue.register_worker(connection)
    insert = "INSERT INTO geminorum_workers (id, name, slots, about) VALUES (%s, %s, %s, %s::jsonb)"
    await connection.execute(insert, (worker, name, slots, msgspec.json.encode(about).decode()))
    return worker


async def unregister(connection: Connection, worker: int) -> None:
    await connection.execute("DELETE FROM geminorum_workers WHERE id = %s", (worker,))
    await queue.unregister_worker(connection, worker)


async def beat(connection: Connection, worker: int, *, is_draining: bool) -> bool:
    """Reports that a worker lives; False if it was given up."""
    update = """UPDATE geminorum_workers SET heartbeat_at = clock_timestamp(), is_draining = %s
        WHERE id = %s AND NOT is_lost"""
    return (await connection.execute(update, (is_draining, worker))).rowcount == 1


async def take(
    connection: Connection,
    worker: int,
    name: str,
    vias: Sequence[str],
    tenants: Sequence[str] | None,
    avoided: Collection[str] = (),
) -> Claim | None:
    """Gives a worker the next job; the tenant with the fewest running jobs comes first.

    None of the `avoided` tenants, and of none whose jobs would only wait for a limit.
    """
    # One that was stopped for a while and does not know yet that it was given up gets nothing.
    alive = await connection.execute(_IS_ALIVE, (worker, LOST_SECONDS))
    if await alive.fetchone() is None:
        return None
    wanted = {"vias": list(vias), "tenants": None if tenants is None else list(tenants)}
    wanted["others"] = list(avoided)
    choices = await (await connection.execute(_CHOOSE, wanted)).fetchall()
    for choice, tenant in choices:
        taken = None
        try:
            # Without a job, it keeps no lock: others may want the same ones in another order.
            async with connection.transaction() as savepoint:
                if await _has_room(connection, tenant):
                    taken = await queue.take(connection, worker, [choice])
                if taken is None:
                    raise psycopg.Rollback(savepoint)
                return await _claim(connection, taken, worker, name)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            if taken is None:
                raise
            await _set_aside(connection, taken, error)
            return None
    return None


async def _set_aside(connection: Connection, taken: queue.Taken, error: Exception) -> None:
    """Ends a job whose rows cannot be: it must not come again and again, before all others."""
    text = f"the job cannot begin: its rows in the database are damaged ({type(error).__name__})"
    log.error("entry %s of the queue: %s", taken.entry, text, exc_info=error)
    await queue.withdraw(connection, taken.entry)
    query = "SELECT id, attempt FROM geminorum_jobs WHERE entry = %s FOR UPDATE"
    row = await (await connection.execute(query, (taken.entry,))).fetchone()
    if row is not None:
        job, attempt = row
        with suppress(psycopg.DataError):  # Then its followers wait, and nobody else does.
            async with connection.transaction():
                closing, outcome = ended_by(FleetError(text))
                await end_unbegun(connection, job, attempt, closing, outcome)


async def _has_room(connection: Connection, tenant: str) -> bool:
    """May another job of the tenant run? Until the transaction ends, nobody else takes one."""
    locked = await connection.execute(_LOCK_CONCURRENCY, (tenant,))
    if not locked.rowcount:
        return True
    # Now that nobody else can: another may have been faster.
    query = "SELECT geminorum_obstacle(%s) IS NULL"
    row = await (await connection.execute(query, (tenant,))).fetchone()
    return row is not None and bool(row[0])


async def _claim(
    connection: Connection, taken: queue.Taken, worker: int, name: str
) -> Claim | None:
    """None if the queue has an entry without a job."""
    cursor = await connection.execute(_TAKE, (taken.attempt, worker, taken.entry))
    row = await cursor.fetchone()
    if row is None:  # Somebody else's: it is never ours, and must not come again and again.
        await queue.finish(connection, taken.entry, succeeded=False)
        return None
    job, tenant, via, max_attempts, is_cancelled = row
    insert = "INSERT INTO geminorum_attempts (job, number, worker) VALUES (%s, %s, %s)"
    await connection.execute(insert, (job, taken.attempt, name))
    last = await (await connection.execute(_LAST_SESSION, (job,))).fetchone()
    session = last[0] if last else None
    return Claim(
        *(job, taken.entry, taken.attempt, tenant, via, max_attempts, is_cancelled), session
    )


async def content_of(connection: Connection, job: uuid.UUID) -> Content:
    """After the job was taken, and outside of a transaction: a worker that stops reading in the
    midst of so much would hold the job, and the server would wait for it without an end."""
    query = "SELECT spec, pack, progress FROM geminorum_jobs WHERE id = %s"
    row = await (await connection.execute(query, (job,), binary=True)).fetchone()
    if row is None:
        raise UnknownJob(f"the fleet has no job {job} any more")
    spec, pack, progress = (None if one is None else bytes(one) for one in row)
    return Content(spec or b"", pack, progress)


async def hold(connection: Connection, job: uuid.UUID, attempt: int) -> bool:
    """Locks a job for the end of an attempt; False if it is no longer this attempt's."""
    query = """SELECT 1 FROM geminorum_jobs
        WHERE id = %s AND state = 'running' AND attempt = %s FOR UPDATE"""
    return await (await connection.execute(query, (job, attempt))).fetchone() is not None


async def finish(
    connection: Connection,
    held: Claim | Orphan,
    chunks: Sequence[Chunk],
    outcome: Outcome,
    patch: bytes | None = None,
    *,
    usd: Decimal | None = None,
) -> None:
    """Ends a job that is held. `usd`: what this attempt has cost; None: what was noted last."""
    await _end_attempt(connection, held, outcome.result.status, usd)
    await end_job(connection, held.job, chunks, outcome, patch)
    await queue.finish(connection, held.entry, succeeded=outcome.result.ok)


async def finish_with(
    connection: Connection,
    held: Claim | Orphan,
    error: GeminorumError,
    *,
    usd: Decimal | None = None,
) -> None:
    """Ends a job that is held with an error, behind all that its attempt has written."""
    events, outcome = ended_by(error)
    query = "SELECT coalesce(max(seq), 0) FROM geminorum_events WHERE job = %s AND attempt = %s"
    row = await (await connection.execute(query, (held.job, held.attempt))).fetchone()
    assert row is not None
    data = b"\n".join(map(encode, events))
    last = Chunk(held.job, held.attempt, row[0] + len(events), len(events), data)
    await finish(connection, held, [last], outcome, usd=usd)


async def put_back(
    connection: Connection,
    held: Claim | Orphan,
    chunks: Sequence[Chunk],
    ending: str,
    seconds: float = 0.0,
    *,
    usd: Decimal | None = None,
    waits_for: str | None = None,
    is_excused: bool = False,
    has_work: bool = True,
    progress: bytes | None = None,
) -> bool:
    """Lets another attempt begin, `seconds` from now; `usd` as in `finish`. False if the job was
    cancelled meanwhile: then it is over.

    `waits_for` is the limit that this one would have had to wait for. An attempt that `is_excused`
    is none of those that a job may have. Without `has_work`, its session is not worth continuing;
    with it, the next begins with its `progress`, a patch of the workspace.
    """
    if chunks:
        await write_chunks(connection, chunks)
        await notify(connection, {held.job})
    if await (await connection.execute(_IS_CANCELLED, (held.job,))).fetchone() is not None:
        # No worker would take it for that while its tenant waits for a limit.
        await finish_with(connection, held, Interrupted("the job was cancelled"), usd=usd)
        return False
    if waits_for is not None and not await limits_table.is_set(connection, waits_for):
        # It was raised or removed while the attempt ended: whoever did that has not seen this job.
        waits_for, seconds = None, min(seconds, _CHANGED_LIMIT_SECONDS)
    values = waits_for, int(is_excused), progress if has_work else None, seconds, held.job
    row = await (await connection.execute(_REQUEUE, values)).fetchone()
    assert row is not None
    await queue.put_back(connection, held.entry, row[0])
    await _end_attempt(connection, held, ending, usd)
    if not has_work:
        # The CLI takes the prompt out of a session whose first request failed.
        await connection.execute(_FORGET_SESSION, (held.job, held.attempt))
    await connection.execute("SELECT pg_notify(%s, '')", (JOBS_CHANNEL,))
    return True


async def note_checkpoint(
    connection: Connection, job: uuid.UUID, attempt: int, session: str
) -> None:
    """Remembers that the session of an attempt has been saved: the next one continues it."""
    update = """UPDATE geminorum_attempts SET session = %s, checkpoints = checkpoints + 1
        WHERE job = %s AND number = %s AND ended_at IS NULL"""
    await connection.execute(update, (session, job, attempt))


async def note_spending(
    connection: Connection, spent: Mapping[tuple[uuid.UUID, int], Decimal]
) -> None:
    """Writes what attempts that go on have cost so far: it stays if they are lost."""
    update = """UPDATE geminorum_attempts SET usd = new.usd
        FROM unnest(%s::uuid[], %s::integer[], %s::numeric[]) AS new (job, number, usd)
        WHERE geminorum_attempts.job = new.job AND geminorum_attempts.number = new.number
            AND ended_at IS NULL"""
    rows = [(*attempt, usd) for attempt, usd in spent.items()]
    await connection.execute(update, [list(column) for column in zip(*rows, strict=True)])


async def lose_workers(connection: Connection) -> list[Orphan]:
    """Gives up the workers that are silent; returns, and holds, the jobs that have none."""
    await connection.execute(_LOSE, {"seconds": LOST_SECONDS})
    return [Orphan(*row) for row in await (await connection.execute(_ORPHANS)).fetchall()]


async def hold_strays(
    connection: Connection, worker: int, known: Sequence[uuid.UUID]
) -> list[Orphan]:
    """The jobs that are a worker's, other than those it knows of: the connection was lost before it
    heard that it got them."""
    cursor = await connection.execute(_STRAYS, (worker, list(known)))
    return [Orphan(*row) for row in await cursor.fetchall()]


async def find_cancelled(connection: Connection, worker: int) -> list[uuid.UUID]:
    """The jobs that a worker runs, and that were cancelled."""
    query = """SELECT id FROM geminorum_jobs
        WHERE state = 'running' AND worker = %s AND is_cancelled"""
    return [job for (job,) in await (await connection.execute(query, (worker,))).fetchall()]


async def _end_attempt(
    connection: Connection, held: Claim | Orphan, ending: str, usd: Decimal | None
) -> None:
    update = """UPDATE geminorum_attempts SET ended_at = clock_timestamp(), ending = %s,
        usd = coalesce(%s, usd) WHERE job = %s AND number = %s"""
    await connection.execute(update, (ending, usd, held.job, held.attempt))
