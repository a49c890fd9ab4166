"""The sessions of a tenant's jobs, in the fleet's own database."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from geminorum.sessions.store.postgres import PostgresStore
from geminorum.sessions.store.protocol import Listing


class TenantStore:
    """A session store that sees the sessions of one tenant only."""

    checkpoint_seconds = 1.0
    """A turn is saved while it goes on: another worker may have to continue it."""

    def __init__(self, url: str, tenant: str, on_append: Callable[[str], None]) -> None:
        """`on_append` learns of each entry that was saved, in the thread that did it."""
        self._store, self._prefix = PostgresStore(url), f"{tenant}/"
        self._on_append = on_append

    def append(self, session: str, number: int, data: bytes) -> None:
        self._store.append(self._prefix + session, number, data)
        self._on_append(session)

    def load(self, session: str, after: int = 0) -> Iterable[bytes]:
        return self._store.load(self._prefix + session, after)

    def list(self) -> Listing:
        start = len(self._prefix)
        found = self._store.list()
        return [(name[start:], number) for name, number in found if name.startswith(self._prefix)]

    def delete(self, session: str) -> None:
        self._store.delete(self._prefix + session)

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        return self._store.acquire(self._prefix + session, holder, seconds)

    def release(self, session: str, holder: str) -> None:
        self._store.release(self._prefix + session, holder)

    def break_lease(self, session: str) -> None:
        """Takes a session from an attempt that is known to be dead."""
        holder = self.acquire(session, "", 0.0)
        self.release(session, holder)
