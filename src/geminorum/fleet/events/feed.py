"""Events of jobs from the database, in order, for any number of followers in one process.

A notification only says where to look. Each follower has a cursor, (attempt, seq): an attempt has
one writer, and its next one begins after the last event of this one is there, so nothing is missed.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from types import TracebackType
from typing import TypeAlias

from geminorum.errors import FleetError, FleetUnavailable, GeminorumError, InvalidEvent
from geminorum.events import Event, decode
from geminorum.fleet.database import ABSENCE_SECONDS, Database
from geminorum.fleet.events.writer import ENDED, EVENTS_CHANNEL

log = logging.getLogger("geminorum.fleet")

_RETRY_SECONDS, _CHECK_SECONDS = 0.2, 5.0
"""After a failure; and how often the feed looks without having been told."""
_GATHER_SECONDS = 0.005
"""Notifications within this time are answered by one query."""
_MAX_CHUNKS, _LEAST_CHUNKS = 2000, 10
"""In one answer of the database; and of each job that is asked for, even if there are many."""
# For each follower a few steps in the index of events; a plain join reads the whole table.
_NEWS = """
SELECT cursor.job, event.attempt, event.seq, event.data
FROM unnest(%s::uuid[], %s::integer[], %s::integer[]) AS cursor (job, attempt, seq)
CROSS JOIN LATERAL (
    SELECT attempt, seq, data FROM geminorum_events AS one
    WHERE one.job = cursor.job AND (one.attempt, one.seq) > (cursor.attempt, cursor.seq)
    ORDER BY one.attempt, one.seq LIMIT %s
) AS event ORDER BY cursor.job, event.attempt, event.seq
"""
_OPEN = "SELECT id FROM geminorum_jobs WHERE id = ANY(%s) AND state <> 'done'"

_MOST = 2**31 - 1
"""Of both numbers of a cursor in the database."""

Numbered: TypeAlias = list[tuple[tuple[int, int], Event]]
"""Events with their cursors."""


def numbered(attempt: int, seq: int, data: bytes) -> Numbered:
    """The events of a chunk, whose last has the number `seq`; raises InvalidEvent."""
    events = [decode(line) for line in data.split(b"\n")]
    first = seq - len(events) + 1
    return [((attempt, first + place), event) for place, event in enumerate(events)]


def in_range(cursor: tuple[int, int]) -> tuple[int, int]:
    """A cursor as the database can compare it: it may come from anywhere."""
    attempt, seq = (max(0, min(number, _MOST)) for number in cursor)
    return attempt, seq


class Follower:
    """One reader of the events of one job."""

    def __init__(self, job: uuid.UUID, after: tuple[int, int] = (0, 0)) -> None:
        self.job, self.cursor = job, in_range(after)
        self._waiting: Numbered = []
        self._wake = asyncio.Event()
        self._is_over = False
        self._error: GeminorumError | None = None

    def add(self, attempt: int, seq: int, data: bytes) -> None:
        before, self.cursor = self.cursor, (attempt, seq)
        try:
            events = numbered(attempt, seq, data)
        except InvalidEvent as error:
            self.fail(error)
        if self._error is not None:
            return
        # A cursor may point into a chunk: what it has seen of it is not given again.
        self._waiting += [pair for pair in events if pair[0] > before]
        self._wake.set()

    def end(self) -> None:
        """The job is over, or gone: nothing follows what has been added."""
        self._is_over = True
        self._wake.set()

    def fail(self, error: GeminorumError) -> None:
        """The reader gets this exception, after what has been added."""
        self._error = self._error or error
        self._wake.set()

    async def read(self) -> Numbered | None:
        """What has arrived, with its cursors; None if there will be nothing more."""
        while True:
            await self._wake.wait()
            events, self._waiting = self._waiting, []
            if events:
                return events
            if self._error is not None:
                raise self._error
            if self._is_over:
                return None
            self._wake.clear()


class EndWaiter:
    """One who waits for the end of a job."""

    def __init__(self, job: uuid.UUID) -> None:
        self.job = job
        self._wake = asyncio.Event()
        self._error: GeminorumError | None = None

    def end(self) -> None:
        self._wake.set()

    def fail(self, error: GeminorumError) -> None:
        self._error = error
        self._wake.set()

    async def wait(self) -> None:
        """Until the job is over, by all that has been heard: look whether it is."""
        await self._wake.wait()
        self._wake.clear()
        if self._error is not None:
            raise self._error


Subscriber: TypeAlias = Follower | EndWaiter


class EventFeed:
    """Listens, looks, and hands out; runs as long as its block."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: dict[uuid.UUID, set[Subscriber]] = {}
        self._dirty: set[Follower] = set()
        self._wake = asyncio.Event()
        self._next_check = self._works_since = 0.0
        """Times of the event loop; at the first, it looks after everybody."""
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
        with self._subscribe(follower):
            self._want({follower})
            yield follower

    @contextmanager
    def await_end(self, job: uuid.UUID) -> Iterator[EndWaiter]:
        """Tells of an end from here on: the caller looks once whether it has passed."""
        waiter = EndWaiter(job)
        with self._subscribe(waiter):
            yield waiter

    @contextmanager
    def _subscribe(self, one: Subscriber) -> Iterator[None]:
        self._subscribers.setdefault(one.job, set()).add(one)
        try:
            yield
        finally:
            others = self._subscribers[one.job]
            others.discard(one)
            if not others:
                del self._subscribers[one.job]

    def _on_message(self, channel: str, named: str) -> None:
        if not channel:  # Notifications may have been missed.
            self._next_check = 0.0
            self._wake.set()
        elif not named:
            self._want(self._all())
        for name in named.split():
            with suppress(ValueError):  # Anybody who can connect can notify.
                self._on_name(uuid.UUID(name.removesuffix(ENDED)), name.endswith(ENDED))

    def _on_name(self, job: uuid.UUID, is_over: bool) -> None:
        subscribers = self._subscribers.get(job, set())
        self._want(subscribers)
        if is_over:
            for one in subscribers:
                if isinstance(one, EndWaiter):
                    one.end()

    def _all(self) -> set[Subscriber]:
        return {one for subscribers in self._subscribers.values() for one in subscribers}

    def _want(self, subscribers: Iterable[Subscriber]) -> None:
        self._dirty |= _followers(subscribers)
        if self._dirty:
            self._wake.set()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time
        self._works_since = now()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_check):
                    await self._wake.wait()
                    await asyncio.sleep(_GATHER_SECONDS)
            self._wake.clear()
            try:
                await self._look_once(now() >= self._next_check)
                self._works_since = now()
            except FleetUnavailable as error:
                self._next_check = 0.0
                if now() > self._works_since + ABSENCE_SECONDS:
                    self._works_since = now()
                    self._fail_all(FleetUnavailable(error.message, hint=error.hint))
                await asyncio.sleep(_RETRY_SECONDS)
            except GeminorumError as error:
                self._fail_all(error)
            except Exception as error:
                # Otherwise all would wait forever, and nobody would know why.
                log.exception("events cannot be read")
                text = f"events of the fleet cannot be read: {type(error).__name__}: {error}"
                self._fail_all(FleetError(text))

    async def _look_once(self, is_check: bool) -> None:
        if is_check:
            await self._check()
            self._next_check = asyncio.get_running_loop().time() + _CHECK_SECONDS
        else:
            wanted, self._dirty = self._dirty, set()
            await self._fetch(wanted)

    async def _check(self) -> None:
        """For everybody at once: nobody has to look for itself."""
        subscribers, self._dirty = self._all(), set()
        still_open = await self._open({one.job for one in subscribers})
        await self._fetch(_followers(subscribers))
        for one in subscribers:
            if one.job not in still_open:
                one.end()

    async def _open(self, jobs: set[uuid.UUID]) -> set[uuid.UUID]:
        """Those of them that are not over."""
        if not jobs:
            return set()
        async with self._database.transaction() as connection:
            cursor = await connection.execute(_OPEN, (list(jobs),))
            return {job for (job,) in await cursor.fetchall()}

    async def _fetch(self, followers: set[Follower]) -> None:
        by_job: dict[uuid.UUID, list[Follower]] = {}
        for follower in followers:
            by_job.setdefault(follower.job, []).append(follower)
        wanted = set(by_job)
        while wanted:
            most = max(_MAX_CHUNKS // len(wanted), _LEAST_CHUNKS)
            rows = await self._read({job: by_job[job] for job in wanted}, most)
            for job, attempt, seq, data in rows:
                for follower in by_job[job]:
                    if (attempt, seq) > follower.cursor:
                        follower.add(attempt, seq, bytes(data))
            found = Counter(job for job, *_ in rows)
            wanted = {job for job in wanted if found[job] == most}

    async def _read(
        self, followers: Mapping[uuid.UUID, Sequence[Follower]], most: int
    ) -> list[tuple[uuid.UUID, int, int, bytes]]:
        """Chunks behind the cursors of each job, so many of each at most."""
        cursors = [(job, *min(one.cursor for one in ones)) for job, ones in followers.items()]
        columns = [list(column) for column in zip(*cursors, strict=True)]
        async with self._database.transaction() as connection:
            cursor = await connection.execute(_NEWS, [*columns, most], binary=True)
            return await cursor.fetchall()

    def _fail_all(self, error: GeminorumError) -> None:
        for one in self._all():
            one.fail(copy(error))


def _followers(subscribers: Iterable[Subscriber]) -> set[Follower]:
    return {one for one in subscribers if isinstance(one, Follower)}
