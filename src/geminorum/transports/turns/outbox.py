"""Events on their way from the task that makes them to the consumer that reads them."""

from __future__ import annotations

import asyncio
import time

import msgspec

from geminorum.events import Event

_MOST_WAITING = 1000
"""Events that may wait for the consumer before their maker has to wait, too."""


class Outbox:
    """What one task puts in, another reads, in batches."""

    def __init__(self, session_id: str | None) -> None:
        self._session_id = session_id
        self._ready: list[Event] = []
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self.is_closed = False

    def put(self, *events: Event) -> None:
        """Takes events in, dated and with their session where they have none."""
        self.put_ready([event if event.timestamp else self.dated(event) for event in events])

    def put_ready(self, events: list[Event]) -> None:
        """The same for events that are complete: a long stream is full of them."""
        if not self.is_closed:  # No event comes after the Done.
            self._ready += events
            self._wake.set()

    def dated(self, event: Event) -> Event:
        return msgspec.structs.replace(event, timestamp=now(), session_id=self._session_id)

    @property
    def is_full(self) -> bool:
        return len(self._ready) > _MOST_WAITING

    async def has_room(self) -> None:
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def close(self, last: Event) -> None:
        self.put(last)
        self.is_closed = True

    async def read(self) -> list[Event]:
        """All that is there, at least one; empty once it is closed and read."""
        while not self._ready and not self.is_closed:
            self._wake.clear()
            await self._wake.wait()
        events, self._ready = self._ready, []
        self._room.set()
        return events


def now() -> int:
    return time.time_ns() // 1_000_000
