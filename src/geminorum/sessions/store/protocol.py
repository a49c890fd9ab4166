"""What a session store has to do: keep numbered entries for each session, and one lease."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias, runtime_checkable

Listing: TypeAlias = Iterable[tuple[str, int]]
"""Each session's id, and the number of its last entry."""
MAX_ENTRY_BYTES = 8 * 1024 * 1024
"""Of what a store reads; geminorum writes less."""


@runtime_checkable
class SessionStore(Protocol):
    """Keeps sessions for all machines that can reach it.

    A session is a log of entries, numbered from 1. Entries are bytes that the store does not read,
    at most 5 MB each. geminorum calls the methods from a thread of its own and takes any exception
    for a failure of the store. `geminorum.testing.stores` checks an implementation.
    """

    def append(self, session: str, number: int, data: bytes) -> None:
        """Adds an entry, durably; raises StoreConflict unless the last one has `number - 1`.

        Of two writers with the same number, one succeeds.
        """
        ...

    def load(self, session: str, after: int = 0) -> Iterable[bytes]:
        """The entries after that number, in order. An unknown session has none."""
        ...

    def list(self) -> Listing:
        """All sessions that have entries."""
        ...

    def delete(self, session: str) -> None:
        """Removes the session and its lease. An unknown session is no error."""
        ...

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        """Gives or renews the lease for so many seconds, unless another holder's has not ended.

        Returns who holds it now.
        """
        ...

    def release(self, session: str, holder: str) -> None:
        """Ends the lease if this holder has it."""
        ...
