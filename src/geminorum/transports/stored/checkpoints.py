"""Saves a turn while it goes on, for stores whose sessions others may have to continue at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from geminorum.events import Done, Error, Event, Text, ToolResult


class Checkpoints:
    """Decides when to save: after a finished message or tool call, and not too often."""

    def __init__(self, seconds: float | None, save: Callable[[str], Future[list[Error]]]) -> None:
        """`seconds` between two saves; None: never in mid-turn. `save` takes the session."""
        self._seconds, self._save = seconds, save
        self._saving: Future[list[Error]] | None = None
        # The clock may begin with the machine: its first minutes count, too.
        self._last = -math.inf
        self._is_due = False

    def see(self, events: Sequence[Event], session: str | None) -> None:
        """Takes in events that have arrived; starts a save if one is due."""
        self._is_due |= any(isinstance(event, Text | ToolResult) for event in events)
        is_over = bool(events) and isinstance(events[-1], Done)  # Then all of it is saved anyway.
        if self._seconds is None or session is None or is_over or not self._is_due:
            return
        is_busy = self._saving is not None and not self._saving.done()
        if not is_busy and time.monotonic() >= self._last + self._seconds:
            self._is_due, self._last = False, time.monotonic()
            self._saving = self._save(session)
