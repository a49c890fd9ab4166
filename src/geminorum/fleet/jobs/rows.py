"""Jobs in the database: submits, ends and lists them, in a transaction of the caller's."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.errors import InvalidOptions
from geminorum.events import Event, encode
from geminorum.fleet import queue
from geminorum.fleet.database import Connection
from geminorum.fleet.events.writer import Chunk, notify_end, write_chunks
from geminorum.fleet.queue import QueueEntry
from geminorum.fleet.travel import JobSpec, Outcome, Via, title_in
from geminorum.hints import advice
from geminorum.runtime import typed

State: TypeAlias = Literal["queued", "running", "done"]
JOBS_CHANNEL, CANCEL_CHANNEL = "geminorum_jobs", "geminorum_cancel"

_spec_decoder = typed.decoder(JobSpec)
_outcome_decoder = typed.decoder(Outcome)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to submit."""

    spec: JobSpec
    via: Via
    tenant: str
    priority: int
    max_attempts: int
    idempotency_key: str | None = None
    pack: bytes | None = None
    id: uuid.UUID = msgspec.field(default_factory=uuid.uuid4)

    @property
    def lock(self) -> str | None:
        return lock_of(self.tenant, self.spec)

    def digest(self) -> bytes:
        """The same key has to mean the same job."""
        content = msgspec.json.encode((self.spec, self.via))
        return hashlib.sha256(content + b"\0" + (self.pack or b"")).digest()


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a list shows it."""

    id: str
    tenant: str
    via: str
    state: State
    status: str | None
    """How it ended, as `Result.status`; None while it has not."""
    attempt: int
    max_attempts: int
    priority: int
    worker: str | None
    waits_for: str | None
    """The limit that it waits for, in words."""
    is_cancelled: bool
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    usd: Decimal | None
    """The whole bill so far: all attempts, those that were lost too, as far as their cost is known.
    `Result.cost` is that of the last attempt alone."""
    title: str
    """The beginning of its prompt, on one line."""

    @property
    def stage(self) -> str:
        """One word for people: how it ended, or where it is."""
        if self.status is not None:
            return self.status
        if self.is_cancelled:
            return "stopping"
        return "waiting" if self.waits_for else self.state


_INSERT = """
INSERT INTO geminorum_jobs
    (id, entry, tenant, via, spec, pack, priority, max_attempts, idempotency_key, digest)
SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::text[], %s::bytea[], %s::bytea[],
    %s::integer[], %s::integer[], %s::text[], %s::bytea[])
"""
# Two who submit the same key at the same time come one after the other. Keys share a thousand
# locks: a server has room for some thousands, and a batch may have more keys.
_LOCK_KEYS = """
SELECT pg_advisory_xact_lock(1734700646, bucket) FROM (
    SELECT DISTINCT hashtext(tenant || '/' || key) & 1023 AS bucket
    FROM unnest(%s::text[], %s::text[]) AS new (tenant, key) ORDER BY bucket
) AS buckets
"""
_WITH_KEYS = """
SELECT tenant, idempotency_key, id, digest FROM geminorum_jobs
WHERE (tenant, idempotency_key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""
_INFO = """
SELECT job.id::text, job.tenant, job.via, state, status, attempt, max_attempts::bigint + excused,
    priority, worker.name, coalesce(waits_for, CASE WHEN state = 'queued'
        THEN geminorum_obstacle(job.tenant) END),
    is_cancelled, submitted_at, job.started_at, finished_at,
    (SELECT sum(attempts.usd) FROM geminorum_attempts AS attempts WHERE attempts.job = job.id),
    substring(spec FOR 400)
FROM geminorum_jobs AS job LEFT JOIN geminorum_workers AS worker ON worker.id = job.worker
"""


async def submit(connection: Connection, jobs: Sequence[NewJob]) -> list[uuid.UUID]:
    """Queues jobs; returns their ids, or those of jobs that were submitted with the same keys."""
    known = await _jobs_with_same_keys(connection, jobs)
    new = [job for job in jobs if job.id not in known]
    if new:
        places = [QueueEntry(f"{job.via}/{job.tenant}", job.priority, job.lock) for job in new]
        entries = await queue.put(connection, places)
        rows = [_row(job, entry) for job, entry in zip(new, entries, strict=True)]
        await connection.execute(_INSERT, [list(column) for column in zip(*rows, strict=True)])
        await announce_jobs(connection)
    return [known.get(job.id, job.id) for job in jobs]


async def announce_jobs(connection: Connection) -> None:
    """Wakes the workers when the transaction is committed."""
    await connection.execute("SELECT pg_notify(%s, '')", (JOBS_CHANNEL,))


def lock_of(tenant: str, spec: JobSpec) -> str | None:
    """One run at a time in a session, over all machines."""
    session = spec.options.get("resume") or spec.options.get("session_id")
    return f"{tenant}/{session}" if session else None


def _row(job: NewJob, entry: int) -> tuple[Any, ...]:
    spec = msgspec.json.encode(job.spec)
    rest = job.priority, job.max_attempts, job.idempotency_key, job.digest()
    return job.id, entry, job.tenant, job.via, spec, job.pack, *rest


async def _jobs_with_same_keys(
    connection: Connection, jobs: Sequence[NewJob]
) -> dict[uuid.UUID, uuid.UUID]:
    """The earlier job for each of these that has one."""
    keyed = [job for job in jobs if job.idempotency_key is not None]
    if not keyed:
        return {}
    first = await _lock_and_find(connection, keyed)
    found: dict[uuid.UUID, uuid.UUID] = {}
    for job in keyed:
        id, digest = first.setdefault((job.tenant, job.idempotency_key), (job.id, job.digest()))
        if id != job.id:
            _require_same(job, digest)
            found[job.id] = id
    return found


async def _lock_and_find(
    connection: Connection, keyed: Sequence[NewJob]
) -> dict[tuple[str, str | None], tuple[uuid.UUID, bytes]]:
    """Id and digest of the jobs that have these keys already."""
    columns = [[job.tenant for job in keyed], [job.idempotency_key for job in keyed]]
    await connection.execute(_LOCK_KEYS, columns)
    rows = await (await connection.execute(_WITH_KEYS, columns)).fetchall()
    return {(tenant, key): (id, bytes(digest)) for tenant, key, id, digest in rows}


def _require_same(job: NewJob, digest: bytes) -> None:
    if digest != job.digest():
        hint = advice("use another {fleet.key|idempotency_key} for another job")
        text = f"idempotency_key={job.idempotency_key!r} belongs to a job that is not the same"
        raise InvalidOptions(text, hint=hint)


async def info_of(connection: Connection, job: uuid.UUID) -> JobInfo | None:
    row = await (await connection.execute(_INFO + "WHERE job.id = %s", (job,))).fetchone()
    return _info(row) if row else None


async def id_with_key(connection: Connection, tenant: str, key: str) -> uuid.UUID | None:
    query = "SELECT id FROM geminorum_jobs WHERE tenant = %s AND idempotency_key = %s"
    row = await (await connection.execute(query, (tenant, key))).fetchone()
    return row[0] if row else None


async def list_jobs(
    connection: Connection,
    *,
    tenant: str | None = None,
    state: State | None = None,
    limit: int = 100,
) -> list[JobInfo]:
    """The newest first."""
    wanted = """WHERE (%(tenant)s::text IS NULL OR job.tenant = %(tenant)s)
        AND (%(state)s::text IS NULL OR job.state = %(state)s)
        ORDER BY submitted_at DESC, job.id LIMIT %(limit)s"""
    values = {"tenant": tenant, "state": state, "limit": limit}
    return [
        _info(row) for row in await (await connection.execute(_INFO + wanted, values)).fetchall()
    ]


def _info(row: tuple[Any, ...]) -> JobInfo:
    *facts, spec = row
    return JobInfo(**dict(zip(JobInfo.__struct_fields__, [*facts, title_in(spec)], strict=True)))


async def outcome_of(connection: Connection, job: uuid.UUID) -> Outcome | None:
    """How a job ended; None while it has not."""
    query = "SELECT outcome FROM geminorum_jobs WHERE id = %s AND state = 'done'"
    row = await (await connection.execute(query, (job,))).fetchone()
    return _outcome_decoder.decode(bytes(row[0])) if row and row[0] is not None else None


async def patch_of(connection: Connection, job: uuid.UUID) -> bytes | None:
    query = "SELECT patch FROM geminorum_jobs WHERE id = %s"
    row = await (await connection.execute(query, (job,))).fetchone()
    return bytes(row[0]) if row and row[0] is not None else None


async def request_cancel(
    connection: Connection, job: uuid.UUID, closing: Sequence[Event], outcome: Outcome
) -> bool:
    """Ends a job that has not begun, with these events; asks the worker to end one that has.

    False if it was put back at this very moment: it has to be asked once more.
    """
    query = "SELECT entry FROM geminorum_jobs WHERE id = %s"
    row = await (await connection.execute(query, (job,))).fetchone()
    # The queue first, as those who take a job do: the other way round, both would wait forever.
    is_withdrawn = row is not None and await queue.withdraw(connection, row[0])
    query = "SELECT state, attempt FROM geminorum_jobs WHERE id = %s FOR UPDATE"
    row = await (await connection.execute(query, (job,))).fetchone()
    if row is None or row[0] == "done":
        return True
    state, attempt = row
    if is_withdrawn:
        await end_unbegun(connection, job, attempt, closing, outcome)
        return True
    # Whoever takes it ends it, if it is queued now.
    update = "UPDATE geminorum_jobs SET is_cancelled = true WHERE id = %s"
    await connection.execute(update, (job,))
    await connection.execute("SELECT pg_notify(%s, %s)", (CANCEL_CHANNEL, job.hex))
    return bool(state == "running")


async def end_unbegun(
    connection: Connection,
    job: uuid.UUID,
    attempt: int,
    closing: Sequence[Event],
    outcome: Outcome,
) -> None:
    """Ends a job behind its last attempt, with these events. Its caller holds the job's row."""
    # An attempt that never began has the number of the next one.
    update = """UPDATE geminorum_jobs SET state = 'running', attempt = %s, worker = NULL,
        waits_for = NULL, started_at = coalesce(started_at, clock_timestamp()) WHERE id = %s"""
    await connection.execute(update, (attempt + 1, job))
    data = b"\n".join(map(encode, closing))
    last = Chunk(job, attempt + 1, len(closing), len(closing), data)
    await end_job(connection, job, [last], outcome)


async def end_job(
    connection: Connection,
    job: uuid.UUID,
    chunks: Sequence[Chunk],
    outcome: Outcome,
    patch: bytes | None = None,
) -> None:
    """Writes the last events and the outcome. Its caller holds the job's row."""
    if chunks:
        await write_chunks(connection, chunks)
    update = """UPDATE geminorum_jobs SET state = 'done', finished_at = clock_timestamp(),
        status = %s, outcome = %s, patch = %s, waits_for = NULL, progress = NULL
        WHERE id = %s"""
    encoded = msgspec.json.encode(outcome)
    await connection.execute(update, (outcome.result.status, encoded, patch, job))
    await notify_end(connection, job)


def id_of(text: str | uuid.UUID) -> uuid.UUID:
    try:
        return text if isinstance(text, uuid.UUID) else uuid.UUID(text)
    except (ValueError, AttributeError) as error:
        raise InvalidOptions(f"{text!r} is no id of a job") from error


def decode_spec(data: bytes) -> JobSpec:
    """Raises InvalidOptions about a job that another version has written."""
    try:
        return _spec_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidOptions(f"the job cannot be read: {error}") from error
