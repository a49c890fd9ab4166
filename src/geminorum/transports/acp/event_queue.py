"""Events of a turn between the process that tells them and the consumer that reads them."""

from __future__ import annotations

import asyncio

from geminorum.events import Event


class EventQueue:
    """Keeps events until they are read; knows whether more will come."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_done = False
        """Was the `Done` handed out?"""
        self._changed, self._over = asyncio.Event(), asyncio.Event()

    def push(self, events: list[Event]) -> None:
        self.events += events
        if events:
            self._changed.set()

    def take(self, count: int) -> list[Event]:
        events, self.events = self.events[:count], self.events[count:]
        return events

    @property
    def is_over(self) -> bool:
        """Will nothing more be told?"""
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()
        self._changed.set()

    def reopen(self) -> None:
        """For another round of the same turn."""
        self.is_done = False
        self._over.clear()

    def note(self) -> None:
        """From now on, `changed` waits for what is new."""
        self._changed.clear()

    async def wait_changed(self) -> None:
        await self._changed.wait()

    async def wait_over(self) -> None:
        await self._over.wait()
