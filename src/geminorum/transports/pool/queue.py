"""The queue of conversations that wait for a place in a pool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from geminorum.transports.pool.worker import Key

_DEFAULT_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A conversation in the queue."""

    key: Key
    """The kind of process that it needs."""
    since: float = field(default_factory=time.monotonic)


class PoolQueue:
    """First come, first served, for each kind of process. A conversation may be overtaken by those
    that need another kind, for half of the longest wait."""

    def __init__(self, longest_wait: float | None) -> None:
        self._max_overtaken_seconds = (
            _DEFAULT_WAIT_SECONDS if longest_wait is None else longest_wait
        ) / 2
        self._tickets: list[Ticket] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._tickets)

    @contextmanager
    def join(self, key: Key) -> Iterator[Ticket]:
        """A ticket for as long as the block lasts."""
        self._tickets.append(ticket := Ticket(key))
        try:
            yield ticket
        finally:
            self._tickets.remove(ticket)
            self.wake()  # The next one may find a place, too.

    def is_first(self, ticket: Ticket) -> bool:
        return self._tickets[0] is ticket

    def is_first_of_its_kind(self, ticket: Ticket) -> bool:
        return next(one for one in self._tickets if one.key == ticket.key) is ticket

    def overtaken_seconds_left(self, ticket: Ticket) -> float:
        """For how many seconds others may still overtake it."""
        return ticket.since + self._max_overtaken_seconds - time.monotonic()

    def wake(self) -> None:
        """Makes every waiter look again: a place may be free."""
        self._wake.set()

    async def wait(self, limit: float | None) -> None:
        """Returns when a waiter is woken, or after so many seconds."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._wake.wait()
