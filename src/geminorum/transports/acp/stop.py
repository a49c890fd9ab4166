"""Stops a turn in a warm session: the request, and the time to wait for its effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from geminorum.transports.turns.stop_checks import Reason


class AcpStop:
    """Why a turn is to stop, and what happens if its process does not hear of it."""

    def __init__(self) -> None:
        self.requested: Reason | None = None
        """The first reason that came before the end."""
        self.is_wanted = False
        """Was the turn to stop, though it may have ended just before?"""
        self._timer: asyncio.TimerHandle | None = None
        self._kill: asyncio.Task[None] | None = None

    def kill_after(self, seconds: float, kill: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def begin() -> None:
            self._kill = asyncio.create_task(kill())

        self._timer = asyncio.get_running_loop().call_later(seconds, begin)

    def hurry(self, seconds: float, give_up: Callable[[], None]) -> None:
        """Cuts the grace period short, if it runs: gives up after so many seconds."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, give_up)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self._kill is None else [self._kill]
