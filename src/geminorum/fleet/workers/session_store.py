"""The sessions of a tenant's jobs, in the fleet's own database."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.postgres import PostgresStore
from geminorum.sessions.store.protocol import Listing

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = lazy_module("psycopg")

_CONNECT_SECONDS = 20
_HOLDER = re.compile(r"job ([0-9a-f-]{36}), attempt (\d{1,9})")
_RUNS = "SELECT 1 FROM geminorum_jobs WHERE id = %s AND attempt = %s AND state = 'running'"


class TenantStore:
    """A session store that sees the sessions of one tenant only."""

    checkpoint_seconds = 1.0
    """A turn is saved while it goes on: another worker may have to continue it."""

    def __init__(self, url: str, tenant: str) -> None:
        self._store, self._prefix = PostgresStore(url), f"{tenant}/"

    def append(self, session: str, number: int, data: bytes) -> None:
        self._store.append(self._prefix + session, number, data)

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


class AttemptStore(TenantStore):
    """The store of one attempt at a job, which holds sessions in the attempt's name.

    So a lease that a lost attempt has left can be told from that of a job that runs.
    """

    def __init__(
        self, url: str, tenant: str, job: uuid.UUID, attempt: int, on_append: Callable[[str], None]
    ) -> None:
        """`on_append` learns of each entry that was saved, in the thread that did it."""
        super().__init__(url, tenant)
        self._url, self._on_append = url, on_append
        self._name = f"job {job}, attempt {attempt}"

    def append(self, session: str, number: int, data: bytes) -> None:
        super().append(session, number, data)
        self._on_append(session)

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        found = super().acquire(session, self._name, seconds)
        if found != self._name and self._has_ended(found):
            # An attempt that has ended never runs again: only its own lease is released.
            super().release(session, found)
            found = super().acquire(session, self._name, seconds)
        return holder if found == self._name else found

    def release(self, session: str, holder: str) -> None:
        super().release(session, self._name)

    def _has_ended(self, holder: str) -> bool:
        """Is the attempt of that name over? Its agents end before the database says so."""
        named = _HOLDER.fullmatch(holder)
        if named is None:
            return False
        with (
            explain_failures(self._url),
            psycopg.connect(self._url, connect_timeout=_CONNECT_SECONDS) as connection,
        ):
            return connection.execute(_RUNS, named.groups()).fetchone() is None
