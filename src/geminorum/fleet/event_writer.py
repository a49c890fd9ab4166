"""Events of a worker's runs to the database: in batches, in order, and only while they are its own.

One statement writes what all runs of the worker have said since the last one. It locks the rows of
their jobs, so no event of an attempt can appear after another worker has taken the job over.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from geminorum.errors import FleetUnavailable
from geminorum.events import Event, encode
from geminorum.fleet.database import Connection, Database

EVENTS_CHANNEL = "geminorum_events"
_BATCH_SECONDS, _RETRY_SECONDS = 0.02, 0.2
_MAX_WAITING_BYTES = 16 * 1024 * 1024
"""Of one worker: from here on its runs wait for the database."""
_MAX_NAMED = 200
"""Jobs in one notification, whose payload has 8,000 bytes at most; more are not named."""
_INSERT = """
INSERT INTO geminorum_events (job, attempt, seq, count, data)
SELECT new.job, new.attempt, new.seq, new.count, new.data
FROM unnest(%s::uuid[], %s::integer[], %s::integer[], %s::integer[], %s::bytea[])
    AS new (job, attempt, seq, count, data)
JOIN geminorum_jobs ON geminorum_jobs.id = new.job
WHERE geminorum_jobs.state = 'running' AND geminorum_jobs.attempt = new.attempt
ORDER BY new.job
FOR SHARE OF geminorum_jobs
ON CONFLICT DO NOTHING
RETURNING job
"""
_OWNED = """
SELECT id FROM geminorum_jobs JOIN unnest(%s::uuid[], %s::integer[]) AS mine (job, attempt)
ON id = mine.job AND geminorum_jobs.attempt = mine.attempt WHERE state = 'running'
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

    def add(self, events: Sequence[Event]) -> None:
        lines = [encode(event) for event in events]
        self._waiting += lines
        self.size += sum(map(len, lines))

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
        self._news = asyncio.Event()
        self._written = asyncio.Condition()

    def open(self, job: uuid.UUID, attempt: int) -> AttemptLog:
        log = self._logs[job, attempt] = AttemptLog(job, attempt)
        return log

    def close(self, log: AttemptLog) -> None:
        self._logs.pop((log.job, log.attempt), None)

    async def add(self, log: AttemptLog, events: Sequence[Event]) -> None:
        """Takes events in; waits while too much waits for the database."""
        log.add(events)
        self._news.set()
        if self._size() > _MAX_WAITING_BYTES:
            async with self._written:
                await self._written.wait_for(lambda: self._size() <= _MAX_WAITING_BYTES)

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._flush()
            except FleetUnavailable:
                self._news.set()
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
        return [*mine, *([rest] if rest else [])]

    async def _flush(self) -> None:
        # `take_rest` waits meanwhile: a chunk is written here, or by its caller.
        async with self._written:
            self._unwritten += [chunk for log in self._logs.values() if (chunk := log.take())]
            if self._unwritten:
                async with self._database.transaction() as connection:
                    await write_chunks(connection, self._unwritten)
                    lost = await _lost_in(connection, self._unwritten)
                self._unwritten = []
                for job, attempt in lost:
                    self._on_lost(job, attempt)
            self._written.notify_all()

    def _size(self) -> int:
        taken = sum(len(chunk.data) for chunk in self._unwritten)
        return taken + sum(log.size for log in self._logs.values())


async def write_chunks(connection: Connection, chunks: Sequence[Chunk]) -> None:
    """Adds events of running attempts, and tells those who follow them. Others are passed over.

    A chunk that is there already, because only the answer of the database was lost, stays.
    """
    columns = [list(column) for column in zip(*chunks, strict=True)]
    await connection.execute(_INSERT, columns)
    await notify(connection, {chunk.job for chunk in chunks})


async def notify(connection: Connection, jobs: set[uuid.UUID]) -> None:
    named = " ".join(job.hex for job in jobs) if len(jobs) <= _MAX_NAMED else ""
    await connection.execute("SELECT pg_notify(%s, %s)", (EVENTS_CHANNEL, named))


async def _lost_in(connection: Connection, chunks: Sequence[Chunk]) -> list[tuple[uuid.UUID, int]]:
    pairs = {(chunk.job, chunk.attempt) for chunk in chunks}
    columns = [list(column) for column in zip(*pairs, strict=True)]
    owned = {job for (job,) in await (await connection.execute(_OWNED, columns)).fetchall()}
    return [(job, attempt) for job, attempt in pairs if job not in owned]
