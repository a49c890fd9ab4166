"""Events of all runs into the book: one write for whatever has come since the last one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from geminorum.apps.web.runs.book import Entry, RunBook
from geminorum.apps.web.runs.info import RunInfo
from geminorum.errors import GeminorumError
from geminorum.events import Event

MAX_WAITING_EVENTS = 50_000
"""From here on, runs wait for the database."""
_PACE_SECONDS = 0.05
"""Between two writes: a hundred runs together need no more of them than one does."""
_RETRY_SECONDS = 0.5


class BookWriter:
    """Writes while `work` runs. What cannot be written waits until it can."""

    def __init__(self, book: RunBook, on_written: Callable[[Sequence[RunInfo]], None]) -> None:
        """`on_written` learns which runs have something new in the book."""
        self._book, self._on_written = book, on_written
        self._waiting: dict[str, Entry] = {}
        self._batch: list[Entry] = []
        """Taken from those that wait, and not written yet."""
        self._unwritten = 0
        self._wake, self._progress = asyncio.Event(), asyncio.Condition()
        self.problem: GeminorumError | None = None
        """Why nothing can be written at the moment."""

    async def add(self, info: RunInfo, events: Sequence[Event]) -> None:
        """Takes in a run's new facts and events; waits while too much waits for the database."""
        entry = self._waiting.get(info.id) or Entry(info, [])
        entry.events.extend(events)
        self._waiting[info.id] = entry._replace(info=info)
        self._unwritten += len(events)
        self._wake.set()
        await self._until(lambda: self._unwritten <= MAX_WAITING_EVENTS)

    async def until_written(self, id: str) -> None:
        """Waits until all of a run is written, or until that fails."""
        tried = self.problem
        await self._until(lambda: not self._has(id) or self.problem is not tried)

    async def flush(self) -> None:
        """Waits until everything is written, or until that fails."""
        tried = self.problem
        await self._until(lambda: self._is_idle or self.problem is not tried)

    async def work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not self._is_idle:
                began = time.monotonic()
                await self._write()
                await asyncio.sleep(began + _PACE_SECONDS - time.monotonic())

    def _has(self, id: str) -> bool:
        return id in self._waiting or any(entry.info.id == id for entry in self._batch)

    @property
    def _is_idle(self) -> bool:
        return not self._waiting and not self._batch

    async def _write(self) -> None:
        if not self._batch:
            self._batch, self._waiting = list(self._waiting.values()), {}
        try:
            await asyncio.to_thread(self._book.write, self._batch)
        except GeminorumError as error:
            self.problem = error
            await self._report_progress()
            await asyncio.sleep(_RETRY_SECONDS)
            return
        self.problem = None
        self._unwritten -= sum(len(entry.events) for entry in self._batch)
        self._on_written([entry.info for entry in self._batch])
        self._batch = []
        await self._report_progress()

    async def _report_progress(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        if not is_reached():
            async with self._progress:
                await self._progress.wait_for(is_reached)
