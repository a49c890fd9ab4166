"""Events of a worker's runs to the database: in batches, in order, and only while they are its own.

One statement writes what all runs of the worker have said since the last one. It locks the rows of
their jobs, so no event of an attempt can appear after another worker has taken the job over.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from geminorum.errors import FleetUnavailable
from geminorum.events import Event, encode
from geminorum.fleet.database import Connection, Database

log = logging.getLogger("geminorum.fleet")

EVENTS_CHANNEL = "geminorum_events"
ENDED = "!"
"""Behind the name of a job that is over."""
_BATCH_SECONDS, _RETRY_SECONDS = 0.02, 0.2
_MAX_WAITING_BYTES = 16 * 1024 * 1024
"""Of one worker: from here on its runs wait for the database."""
_MAX_NAMED = 200
"""Jobs in one notification, whose payload has 8,000 bytes at most; more are not named."""
# Each job is looked up by its key: otherwise the planner, which knows little of tables that grow
# this fast, reads all jobs that run. `OFFSET 0` keeps the conditions out of there.
_WRITE = """
WITH owned AS MATERIALIZED (
    SELECT new.* FROM unnest(
        %s::uuid[], %s::integer[], %s::integer[], %s::integer[], %s::bytea[]
    ) AS new (job, attempt, seq, count, data) CROSS JOIN LATERAL (
        SELECT state, attempt FROM geminorum_jobs WHERE id = new.job OFFSET 0 FOR SHARE
    ) AS held WHERE held.state = 'running' AND held.attempt = new.attempt
), written AS (
    INSERT INTO geminorum_events (job, attempt, seq, count, data) SELECT * FROM owned
    ON CONFLICT DO NOTHING
)
SELECT DISTINCT job, attempt FROM owned
"""


class Chunk(NamedTuple):
    """Consecutive events of one attempt; `seq` is the number of the last of `size`."""

    job: uuid.UUID
    attempt: int
    seq: int
    size: int
    data: bytes


class AttemptLog:
    """The events of one attempt: numbers them, and keeps those that are not written yet."""

    def __init__(self, job: uuid.UUID, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self._seq = 0
        self._waiting: list[bytes] = []
        self.size = 0
        """Bytes that wait."""

    def add(self, events: Sequence[Event]) -> int:
        """Takes events in; returns their bytes."""
        lines = [encode(event) for event in events]
        size = sum(map(len, lines))
        self._waiting += lines
        self.size += size
        return size

    def take(self) -> Chunk | None:
        """What waits, as a chunk; None if nothing does."""
        if not self._waiting:
            return None
        lines, self._waiting, self.size = self._waiting, [], 0
        self._seq += len(lines)
        return Chunk(self.job, self.attempt, self._seq, len(lines), b"\n".join(lines))


class EventWriter:
    """Writes the events of all runs of a worker; `run` does the work until it is cancelled."""

    def __init__(self, database: Database, on_lost: Callable[[uuid.UUID, int], None]) -> None:
        """`on_lost` learns of an attempt that is no longer the worker's."""
        self._database, self._on_lost = database, on_lost
        self._logs: dict[tuple[uuid.UUID, int], AttemptLog] = {}
        self._unwritten: list[Chunk] = []
        """Taken from the logs; a connection that broke may have written them or not."""
        self._unannounced: set[uuid.UUID] = set()
        """Jobs with events that are written, and whose followers do not know yet."""
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._written = asyncio.Condition()

    def open(self, job: uuid.UUID, attempt: int) -> AttemptLog:
        opened = self._logs[job, attempt] = AttemptLog(job, attempt)
        return opened

    def close(self, log: AttemptLog) -> None:
        self._logs.pop((log.job, log.attempt), None)

    async def add(self, log: AttemptLog, events: Sequence[Event]) -> None:
        """Takes events in; waits while too much waits for the database."""
        self._waiting_bytes += log.add(events)
        self._wake.set()
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            async with self._written:
                await self._written.wait_for(lambda: self._waiting_bytes <= _MAX_WAITING_BYTES)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._flush()
            except Exception as error:
                if not isinstance(error, FleetUnavailable):
                    log.exception("events cannot be written")
                self._wake.set()
                await asyncio.sleep(_RETRY_SECONDS)
            # What comes within this time goes along with the next statement.
            await asyncio.sleep(_BATCH_SECONDS)

    async def take_rest(self, log: AttemptLog) -> list[Chunk]:
        """What is not written yet of an attempt, for the transaction that ends it."""
        self.close(log)
        async with self._written:
            mine = [chunk for chunk in self._unwritten if chunk[:2] == (log.job, log.attempt)]
            self._unwritten = [chunk for chunk in self._unwritten if chunk not in mine]
            rest = log.take()
            self._count_waiting()
        return [*mine, *([rest] if rest else [])]

    async def _flush(self) -> None:
        # `take_rest` waits meanwhile: a chunk is written here, or by its caller.
        async with self._written:
            self._unwritten += [chunk for log in self._logs.values() if (chunk := log.take())]
            if self._unwritten or self._unannounced:
                async with self._database.statements() as connection:
                    await self._write(connection)
                    await self._announce(connection)
            self._count_waiting()

    async def _write(self, connection: Connection) -> None:
        if not self._unwritten:
            return
        owned = await write_chunks(connection, self._unwritten)
        lost = {chunk[:2] for chunk in self._unwritten} - owned
        self._unwritten = []
        self._unannounced |= {job for job, _ in owned}
        for job, attempt in lost:
            self._on_lost(job, attempt)

    async def _announce(self, connection: Connection) -> None:
        """In a transaction of its own, which has nothing to write to the disk: those that notify
        are committed one after the other, over the whole server."""
        if self._unannounced:
            await notify(connection, self._unannounced)
            self._unannounced = set()

    def _count_waiting(self) -> None:
        """Runs that have waited for the database go on if enough is written."""
        taken = sum(len(chunk.data) for chunk in self._unwritten)
        self._waiting_bytes = taken + sum(log.size for log in self._logs.values())
        self._written.notify_all()


async def write_chunks(
    connection: Connection, chunks: Sequence[Chunk]
) -> set[tuple[uuid.UUID, int]]:
    """Adds events of running attempts; returns these attempts.

    Chunks of others are passed over. One that is there already, because only the answer of the
    database was lost, stays.
    """
    # Jobs are locked in the same order by everybody.
    columns = [list(column) for column in zip(*sorted(chunks), strict=True)]
    return set(await (await connection.execute(_WRITE, columns)).fetchall())


async def notify(connection: Connection, jobs: set[uuid.UUID]) -> None:
    """Tells those who follow these jobs to look."""
    named = " ".join(job.hex for job in jobs) if len(jobs) <= _MAX_NAMED else ""
    await connection.execute("SELECT pg_notify(%s, %s)", (EVENTS_CHANNEL, named))


async def notify_end(connection: Connection, job: uuid.UUID) -> None:
    """Tells those who follow a job, or wait for it, that it is over."""
    await connection.execute("SELECT pg_notify(%s, %s)", (EVENTS_CHANNEL, job.hex + ENDED))
