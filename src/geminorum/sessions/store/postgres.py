"""Sessions in PostgreSQL, for machines that share a database.

`pip install 'geminorum[stores]'` brings psycopg. The tables are made at first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from geminorum.credentials import shown_address
from geminorum.errors import SetupError, StoreConflict, StoreError, Unsupported
from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.protocol import MAX_ENTRY_BYTES, Listing

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = lazy_module("psycopg")

SCHEMES = ("postgresql", "postgres")
_SCHEMA_VERSION = 1
_SECONDS, _IDLE_SECONDS = 20, 5
_LOCK = 0x67656D696E6F72
"""For one who makes the tables while others begin, too."""
_PAGE = 32
"""Entries that are in memory at the same time."""
_ROUNDS = 5
"""Of asking for a lease that was released between two questions."""
_CONNECTION: dict[str, Any] = {
    "connect_timeout": _SECONDS,
    # A server that is gone without a word is noticed; otherwise the system waits a quarter of an
    # hour for it, or two.
    "tcp_user_timeout": _SECONDS * 1000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# No statement waits forever for another's lock, and whoever is stopped or cut off in the midst of a
# transaction does not keep its locks. Not as options of the connection: PgBouncer refuses those,
# and they would replace the user's own.
_LIMITS = (
    f"SET LOCAL statement_timeout = '{_SECONDS}s'; SET LOCAL lock_timeout = '{_SECONDS}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'"
)
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
# Held to the end of the transaction: otherwise an entry could follow one that is being deleted.
_HOLD = "SELECT pg_advisory_xact_lock(hashtextextended('geminorum ' || %s, 0))"
_APPEND = """
INSERT INTO geminorum_entries SELECT %(session)s, %(number)s, %(data)s
WHERE %(number)s = 1 + COALESCE(
    (SELECT MAX(number) FROM geminorum_entries WHERE session = %(session)s), 0)
ON CONFLICT DO NOTHING
"""
# Nobody who follows the protocol has written a larger one: it is damaged.
_LOAD = """
SELECT number, CASE WHEN length(data) > %(largest)s THEN '' ELSE data END
FROM geminorum_entries WHERE session = %(session)s AND number > %(after)s
ORDER BY number LIMIT %(page)s
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
        return f"PostgresStore({shown_address(self._url)!r})"

    def append(self, session: str, number: int, data: bytes) -> None:
        row = {"session": session, "number": number, "data": data}
        with self._transaction() as database:
            database.execute(_HOLD, (session,))
            if database.execute(_APPEND, row).rowcount != 1:
                raise StoreConflict(f"entry {number} is not the next of session {session!r}")

    def load(self, session: str, after: int = 0) -> Iterator[bytes]:
        while page := self._page(session, after):
            for number, data in page:
                if number != after + 1:
                    return  # What lies behind a gap is not part of the log.
                after = number
                yield bytes(data)

    def list(self) -> Listing:
        with self._transaction() as database:
            query = "SELECT session, MAX(number) FROM geminorum_entries GROUP BY session"
            return [(str(session), int(number)) for session, number in database.execute(query)]

    def delete(self, session: str) -> None:
        with self._transaction() as database:
            database.execute(_HOLD, (session,))
            database.execute("DELETE FROM geminorum_entries WHERE session = %s", (session,))
            database.execute("DELETE FROM geminorum_leases WHERE session = %s", (session,))

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        row = {"session": session, "holder": holder, "seconds": seconds}
        for _ in range(_ROUNDS):
            with self._transaction() as database:
                database.execute(_ACQUIRE, row)
                query = "SELECT holder FROM geminorum_leases WHERE session = %s"
                if found := database.execute(query, (session,)).fetchone():
                    return str(found[0])
        raise StoreError(f"the lease of session {session!r} changes again and again")

    def release(self, session: str, holder: str) -> None:
        with self._transaction() as database:
            query = "DELETE FROM geminorum_leases WHERE session = %s AND holder = %s"
            database.execute(query, (session, holder))

    def _page(self, session: str, after: int) -> Sequence[tuple[int, bytes]]:
        with self._transaction() as database:
            row = {"session": session, "after": after, "largest": MAX_ENTRY_BYTES, "page": _PAGE}
            return database.execute(_LOAD, row, binary=True).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        # A pool would have to be closed, and survives no fork; a connection takes milliseconds.
        with explain_failures(self._url), psycopg.connect(self._url, **_CONNECTION) as database:
            if not self._is_ready:
                self._prepare(database)
                # By themselves: what follows may be refused, and would take the tables with it.
                database.commit()
                self._is_ready = True
            database.execute(_LIMITS)
            yield database

    def _prepare(self, database: psycopg.Connection[Any]) -> None:
        database.execute(_LIMITS)
        query = "SELECT to_regclass('geminorum_store_version')"
        found = database.execute(query).fetchone()
        # Who only uses the tables needs no right to make any.
        if not (found and found[0]):
            _make_tables(database)
        version = database.execute("SELECT version FROM geminorum_store_version").fetchone()
        if version and version[0] > _SCHEMA_VERSION:
            raise Unsupported(
                "the store belongs to a newer geminorum",
                hint="update this one with `pip install --upgrade geminorum`",
            )


def _make_tables(database: psycopg.Connection[Any]) -> None:
    database.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    for statement in _SCHEMA:
        database.execute(statement)
