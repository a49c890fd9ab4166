"""Events of jobs from the database, in order, for any number of followers in one process.

A notification only says where to look. Each follower has a cursor, (attempt, seq): an attempt has
one writer, and its next one begins after the last event of this one is there, so nothing is missed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TypeAlias

from geminorum.errors import FleetUnavailable
from geminorum.events import Event, decode
from geminorum.fleet.database import Database
from geminorum.fleet.event_writer import EVENTS_CHANNEL

_RETRY_SECONDS, _LOOK_SECONDS = 0.2, 5.0
"""After a failure; and how often a follower looks without having been told."""
_GATHER_SECONDS = 0.005
"""Notifications within this time are answered by one query."""
_MAX_CHUNKS, _CHUNKS_AT_ONCE = 2000, 50
"""In one answer of the database: for all followers, and for a reader who wants only some."""
_NEWS = """
SELECT event.job, event.attempt, event.seq, event.data
FROM unnest(%s::uuid[], %s::integer[], %s::integer[]) AS cursor (job, attempt, seq)
JOIN geminorum_events AS event
    ON event.job = cursor.job AND (event.attempt, event.seq) > (cursor.attempt, cursor.seq)
ORDER BY event.job, event.attempt, event.seq LIMIT %s
"""

Numbered: TypeAlias = list[tuple[tuple[int, int], Event]]
"""Events with their cursors."""


async def read_events(
    database: Database, job: uuid.UUID, after: tuple[int, int], limit: int
) -> Numbered:
    """The events that are there, in order, without waiting for more."""
    reader = Follower(job, after)
    while len(reader) < limit:
        cursor = [[value] for value in (job, *reader.cursor)]
        async with database.transaction() as connection:
            rows = await (
                await connection.execute(_NEWS, [*cursor, _CHUNKS_AT_ONCE], binary=True)
            ).fetchall()
        for _, attempt, seq, data in rows:
            reader.add(attempt, seq, bytes(data))
        if len(rows) < _CHUNKS_AT_ONCE:
            break
    return reader.take()[:limit]


class Follower:
    """One reader of the events of one job."""

    def __init__(self, job: uuid.UUID, after: tuple[int, int] = (0, 0)) -> None:
        self.job, self.cursor = job, after
        self._waiting: Numbered = []
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, attempt: int, seq: int, data: bytes) -> None:
        events = [decode(line) for line in data.split(b"\n")]
        first = seq - len(events) + 1
        numbered = [((attempt, first + place), event) for place, event in enumerate(events)]
        # A cursor may point into a chunk: what it has seen of it is not given again.
        self._waiting += [pair for pair in numbered if pair[0] > self.cursor]
        self.cursor = attempt, seq
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def read(self) -> Numbered | None:
        """What has arrived, with its cursors; None if nothing was heard of the job for a while."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        return self.take()

    def take(self) -> Numbered:
        events, self._waiting = self._waiting, []
        return events


class EventFeed:
    """Listens, looks, and hands out; runs as long as its block."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: set[Follower] = set()
        self._dirty: set[Follower] = set()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> EventFeed:
        listening = self._database.listen(EVENTS_CHANNEL, on_message=self._on_message)
        self._tasks = [asyncio.create_task(listening), asyncio.create_task(self._look())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def follow(self, job: uuid.UUID, after: tuple[int, int] = (0, 0)) -> Iterator[Follower]:
        follower = Follower(job, after)
        self._followers.add(follower)
        self._want({follower})
        try:
            yield follower
        finally:
            self._followers.discard(follower)
            self._dirty.discard(follower)

    async def catch_up(self, follower: Follower) -> None:
        """Looks for what a follower has not got, without waiting for its turn."""
        await self._fetch({follower})

    def _on_message(self, _: str, named: str) -> None:
        jobs = set(named.split())
        self._want({one for one in self._followers if not jobs or one.job.hex in jobs})

    def _want(self, followers: set[Follower]) -> None:
        self._dirty |= followers
        if self._dirty:
            self._news.set()

    async def _look(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._news.wait()
                    await asyncio.sleep(_GATHER_SECONDS)
            self._news.clear()
            wanted = self._dirty or set(self._followers)
            self._dirty = set()
            try:
                await self._fetch(wanted)
            except FleetUnavailable:
                self._want(wanted & self._followers)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _fetch(self, followers: set[Follower]) -> None:
        by_job: dict[uuid.UUID, list[Follower]] = {}
        for follower in followers:
            by_job.setdefault(follower.job, []).append(follower)
        while followers:
            cursors = [(job, *min(one.cursor for one in ones)) for job, ones in by_job.items()]
            columns = [list(column) for column in zip(*cursors, strict=True)]
            async with self._database.transaction() as connection:
                rows = await (
                    await connection.execute(_NEWS, [*columns, _MAX_CHUNKS], binary=True)
                ).fetchall()
            for job, attempt, seq, data in rows:
                for follower in by_job[job]:
                    if (attempt, seq) > follower.cursor:
                        follower.add(attempt, seq, bytes(data))
            if len(rows) < _MAX_CHUNKS:
                break
        for follower in followers:
            follower.wake()
