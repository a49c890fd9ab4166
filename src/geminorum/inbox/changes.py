"""Word of changes in the database, for all who wait in one event loop: one listener serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from geminorum.inbox.database import Database


class Changes:
    """Wakes its subscribers when questions may have changed; listens only while there are any."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: dict[asyncio.AbstractEventLoop, _Listener] = {}

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscription]:
        loop = asyncio.get_running_loop()
        for gone in [known for known in self._listeners if known.is_closed()]:
            self._listeners.pop(gone, None)
        listener = self._listeners.setdefault(loop, _Listener(self._database))
        subscription = Subscription()
        listener.add(subscription)
        try:
            yield subscription
        finally:
            await listener.remove(subscription)


class Subscription:
    """What one subscriber has not looked at yet."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def wait(self, seconds: float | None) -> None:
        """Until something may have changed since the last wait, or the time is over."""
        # Not `asyncio.timeout`: a cancellation of the caller's must not be taken for its end.
        waiting = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()
        self._wake.clear()


class _Listener:
    """The task that listens for the subscribers of one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscriptions: set[Subscription] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, subscription: Subscription) -> None:
        self._subscriptions.add(subscription)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._database.listen(self._wake))

    async def remove(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        if self._subscriptions or self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])

    def _wake(self) -> None:
        for subscription in self._subscriptions:
            subscription.wake()
