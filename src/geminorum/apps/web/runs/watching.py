"""Runs that somebody reads: their pieces, made once for all readers, and only while there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from geminorum.apps.web.runs.book import Line, RunBook
from geminorum.apps.web.runs.pieces import RunPieces
from geminorum.events import decode

_READ_AT_ONCE = 1_000
"""Events."""


class WatchedRun:
    """The pieces of a run, as far as the book has them."""

    def __init__(self, book: RunBook, id: str) -> None:
        self._book, self._id = book, id
        self._lock = asyncio.Lock()
        self.pieces = RunPieces()
        self.readers = 0

    async def catch_up(self) -> None:
        """Takes in what was written since the last time."""
        async with self._lock:
            lines = await self._read()
            while len(lines) == _READ_AT_ONCE:
                lines = await self._read()

    async def _read(self) -> list[Line]:
        lines = await asyncio.to_thread(self._book.events, self._id, self.pieces.seq, _READ_AT_ONCE)
        for line in lines:
            self.pieces.add(line.seq, decode(line.data))
        return lines


class Watching:
    """All runs that somebody reads now."""

    def __init__(self, book: RunBook) -> None:
        self._book = book
        self._watched: dict[str, WatchedRun] = {}

    @contextmanager
    def watch(self, id: str) -> Iterator[WatchedRun]:
        watched = self._watched.setdefault(id, WatchedRun(self._book, id))
        watched.readers += 1
        try:
            yield watched
        finally:
            watched.readers -= 1
            if not watched.readers:
                self._watched.pop(id, None)
