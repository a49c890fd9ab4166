"""Wakes those who wait for a change, and lets each find out what is new to them."""

from __future__ import annotations

import asyncio


class ChangeSignal:
    """A number that grows with every change."""

    def __init__(self) -> None:
        self.revision = 0
        self.is_over = False
        self._changed = asyncio.Event()

    def announce(self) -> int:
        """Something has changed; returns the number of this change."""
        self.revision += 1
        self._wake()
        return self.revision

    def end(self) -> None:
        """Nothing will change any more; nobody has to wait for it."""
        self.is_over = True
        self._wake()

    async def wait(self, known: int, seconds: float) -> bool:
        """Waits for anything newer than `known`; returns whether there is."""
        if self.revision == known and not self.is_over:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return self.revision != known

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
