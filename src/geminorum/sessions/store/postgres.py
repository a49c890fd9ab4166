"""Sessions in PostgreSQL, for machines that share a database.

`pip install 'geminorum[stores]'` brings psycopg. The tables are made at first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from geminorum.errors import SetupError, StoreConflict, Unsupported
from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.store.protocol import Listing

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = lazy_module("psycopg")

SCHEMES = ("postgresql", "postgres")
_SCHEMA_VERSION = 1
_SECONDS = 20
_LOCK = 0x67656D696E6F72
"""For one who makes the tables while others begin, too."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS geminorum_store_version (version integer NOT NULL)",
    """CREATE TABLE IF NOT EXISTS geminorum_entries (
        session text NOT NULL, number bigint NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (session, number))""",
    """CREATE TABLE IF NOT EXISTS geminorum_leases (
        session text PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL)""",
    """INSERT INTO geminorum_store_version SELECT 1
        WHERE NOT EXISTS (SELECT FROM geminorum_store_version)""",
)
_APPEND = """
INSERT INTO geminorum_entries SELECT %(session)s, %(number)s, %(data)s
WHERE %(number)s = 1 + COALESCE(
    (SELECT MAX(number) FROM geminorum_entries WHERE session = %(session)s), 0)
ON CONFLICT DO NOTHING
"""
_ACQUIRE = """
INSERT INTO geminorum_leases VALUES (%(session)s, %(holder)s, now() + %(seconds)s * interval '1 s')
ON CONFLICT (session) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE geminorum_leases.holder = excluded.holder OR geminorum_leases.until <= now()
"""


class PostgresStore:
    """A `SessionStore` in a database: `PostgresStore("postgresql://user@host/database")`.

    Leases end by the clock of the database. A connection is open only while a call lasts.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_ready = False
        try:
            _ = psycopg.connect
        except ImportError as error:
            hint = "install it: pip install 'geminorum[stores]'"
            raise SetupError("PostgreSQL needs the package psycopg", hint=hint) from error

    def __repr__(self) -> str:
        return f"PostgresStore({self._url.rpartition('@')[2]!r})"

    def append(self, session: str, number: int, data: bytes) -> None:
        row = {"session": session, "number": number, "data": data}
        with self._transaction() as database:
            if database.execute(_APPEND, row).rowcount != 1:
                raise StoreConflict(f"entry {number} is not the next of session {session!r}")

    def load(self, session: str, after: int = 0) -> list[bytes]:
        query = """SELECT data FROM geminorum_entries
            WHERE session = %s AND number > %s ORDER BY number"""
        with self._transaction() as database:
            return [
                bytes(data) for (data,) in database.execute(query, (session, after), binary=True)
            ]

    def list(self) -> Listing:
        with self._transaction() as database:
            query = "SELECT session, MAX(number) FROM geminorum_entries GROUP BY session"
            return [(str(session), int(number)) for session, number in database.execute(query)]

    def delete(self, session: str) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM geminorum_entries WHERE session = %s", (session,))
            database.execute("DELETE FROM geminorum_leases WHERE session = %s", (session,))

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        row = {"session": session, "holder": holder, "seconds": seconds}
        with self._transaction() as database:
            database.execute(_ACQUIRE, row)
            query = "SELECT holder FROM geminorum_leases WHERE session = %s"
            found = database.execute(query, (session,)).fetchone()
            return str(found[0]) if found else ""

    def release(self, session: str, holder: str) -> None:
        with self._transaction() as database:
            query = "DELETE FROM geminorum_leases WHERE session = %s AND holder = %s"
            database.execute(query, (session, holder))

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        # A pool would have to be closed, and survives no fork; a connection takes milliseconds.
        with self._connected() as database:
            if not self._is_ready:
                self._prepare(database)
                self._is_ready = True
            yield database

    def _connected(self) -> psycopg.Connection[Any]:
        # No statement waits forever for another's lock, or for a server that is gone.
        limits = f"-c statement_timeout={_SECONDS}s -c lock_timeout={_SECONDS}s"
        return psycopg.connect(self._url, connect_timeout=_SECONDS, options=limits)

    def _prepare(self, database: psycopg.Connection[Any]) -> None:
        with database.transaction():
            database.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for statement in _SCHEMA:
                database.execute(statement)
            found = database.execute("SELECT version FROM geminorum_store_version").fetchone()
        if found and found[0] > _SCHEMA_VERSION:
            raise Unsupported(
                "the store belongs to a newer geminorum",
                hint="update this one with `pip install --upgrade geminorum`",
            )
