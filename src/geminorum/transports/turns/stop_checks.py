"""Checks that can stop a turn: silence, and spending above the budget. They run on timers, so a
slow reader does not delay them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Literal, TypeAlias

from geminorum.cost import PriceBook, request_usd
from geminorum.events import ModelRequest
from geminorum.wire.ending import Stop

Reason: TypeAlias = tuple[Stop, float | None]
"""Why to stop, and the limit that was reached."""


StallTimeout: TypeAlias = float | Literal["auto"] | None
DEFAULT_STALL_SECONDS = 600.0


class PeriodicCheck:
    """Calls `look` every `pause` seconds; passes the first reason that it returns to `stop`."""

    def __init__(
        self,
        pause: float,
        look: Callable[[], Reason | None],
        stop: Callable[[Stop, float | None], None],
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pause, self._look, self._stop, self._until = pause, look, stop, until
        self._timer = asyncio.get_running_loop().call_later(pause, self._check)

    def cancel(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        if (reason := self._look_safely()) is not None:
            self._stop(*reason)
        elif not self._until():
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._check)

    def _look_safely(self) -> Reason | None:
        with suppress(OSError):  # A file that cannot be read now may be readable the next time.
            return self._look()
        return None


class StallDetector:
    """Detects a program that does not start to write, or that stops in the middle."""

    def __init__(
        self,
        written: Callable[[], int],
        start_limit: float | None,
        stall_limit: StallTimeout,
        excused: Callable[[], bool] = lambda: False,
        tool_runs: Callable[[], bool] = lambda: False,
    ) -> None:
        """`excused`: does the program wait for us?"""
        self._written, self._excused = written, [excused]
        if stall_limit == "auto":
            # We do not know how long a tool takes; a caller who sets a limit may.
            stall_limit, self._excused = DEFAULT_STALL_SECONDS, [excused, tool_runs]
        self._limits = start_limit, stall_limit
        self._heard, self._heard_at = 0, time.monotonic()

    @property
    def pause(self) -> float | None:
        """Seconds between two checks; None: there is no limit to check."""
        known = [limit for limit in self._limits if limit is not None]
        return min(known) / 2 if known else None

    def look(self) -> Reason | None:
        now, written = time.monotonic(), self._written()
        if written > self._heard or any(reason() for reason in self._excused):
            self._heard, self._heard_at = written, now
        limit = self._limits[bool(self._heard)]
        if limit is None or now - self._heard_at < limit:
            return None
        return ("stall" if self._heard else "start_timeout"), limit


_LOOKS_FOR_AN_ANSWER = 20


class BudgetGuard:
    """Compares the price of the requests so far with the budget."""

    PAUSE = 0.05

    def __init__(
        self,
        requests: Callable[[], list[ModelRequest]],
        budget: float,
        prices: PriceBook | None,
        awaits_answer: Callable[[], bool] = lambda: False,
    ) -> None:
        """`awaits_answer`: is the answer still on its way? The request that exceeded the budget may
        have brought it."""
        self._requests, self._prices, self._awaits_answer = requests, prices, awaits_answer
        self._budget = Decimal(str(budget))
        self._counted, self._spent, self._looks_left = 0, Decimal(0), _LOOKS_FOR_AN_ANSWER

    def look(self) -> Reason | None:
        fresh = self._requests()[self._counted :]
        for request in fresh:
            usd = self._price(request)
            if usd is None:
                return "no_price", None
            self._spent += usd
        self._counted += len(fresh)
        if self._spent <= self._budget:
            return None
        self._looks_left -= 1
        if self._looks_left > 0 and self._awaits_answer():
            return None
        return "budget", float(self._budget)

    def _price(self, request: ModelRequest) -> Decimal | None:
        try:
            return request_usd(request, self._prices)
        except Exception:
            return None  # Without a price, the budget cannot be enforced.
