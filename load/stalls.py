"""How long the event loop kept others waiting."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

_TICK_SECONDS = 0.002


class StallMeter:
    """Ticks every two milliseconds while the block lasts, and keeps the longest delay of a tick."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StallMeter:
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _tick(self) -> None:
        while True:
            due = time.perf_counter() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - due)
