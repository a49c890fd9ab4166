"""The stream of one page: looks at its views when something has changed, and sends what is new.

Nothing is queued for a browser. Each view knows what its reader has; a slow one gets the latest
state when it is ready, and one that has gone away holds nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from geminorum.apps.web.runs.change_signal import ChangeSignal

HEARTBEAT_SECONDS = 15.0
"""After so much silence, a comment: whoever has gone away is noticed by it."""
PACE_SECONDS = 0.1
"""Between two looks: a browser need not draw more often."""


class Message(NamedTuple):
    """One event for the browser."""

    event: str
    data: Any
    id: int | None = None
    """Where to go on after a lost connection, once this has arrived."""


class LiveView(Protocol):
    """A part of a page that changes."""

    async def messages(self) -> Sequence[Message]:
        """What its reader does not have yet."""
        ...


async def follow(views: Sequence[LiveView], changes: ChangeSignal) -> AsyncIterator[bytes]:
    """What changes in the views, until nothing does any more."""
    yield b"retry: 1000\n\n"
    while True:
        known, looked = changes.revision, time.monotonic()
        for view in views:
            for message in await view.messages():
                yield encoded(message)
        if changes.is_over:
            yield encoded(Message("over", None))
            return
        if not await changes.wait(known, HEARTBEAT_SECONDS):
            yield b": still here\n\n"
        await asyncio.sleep(max(0.0, looked + PACE_SECONDS - time.monotonic()))


def encoded(message: Message) -> bytes:
    """As the browser's EventSource reads it."""
    id = b"" if message.id is None else b"id: %d\n" % message.id
    # JSON has no line ends of its own, so one line is enough.
    data = msgspec.json.encode(message.data)
    return b"%sevent: %s\ndata: %s\n\n" % (id, message.event.encode(), data)
