"""Events from the book as server-sent events: those that are there, then those that come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from geminorum.apps.web.live.stream import HEARTBEAT_SECONDS
from geminorum.apps.web.runs.book import Line
from geminorum.apps.web.services import Services

_READ_AT_ONCE = 500


async def stream_events(
    services: Services, run: str | None, after: int, *, follow: bool
) -> AsyncIterator[bytes]:
    """The events of a run until its end, or of all runs, each with the id of its run."""
    changes, book = services.runs.changes, services.runs.book
    with services.open_stream():
        while True:
            known = changes.revision
            # Before its events: if it is over by then, all of them are there.
            info = await asyncio.to_thread(book.run, run) if run else None
            lines = await asyncio.to_thread(book.events, run, after, _READ_AT_ONCE)
            yield b"".join(_encoded(line, run) for line in lines)
            after = lines[-1].seq if lines else after
            if len(lines) == _READ_AT_ONCE:
                continue
            if not follow or changes.is_over or (run and (info is None or not info.is_live)):
                return
            if not await changes.wait(known, HEARTBEAT_SECONDS):
                yield b": still here\n\n"


def _encoded(line: Line, run: str | None) -> bytes:
    data = line.data if run else b'{"run": "%s", "event": %s}' % (line.run.encode(), line.data)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (line.seq, line.kind.encode(), data)
