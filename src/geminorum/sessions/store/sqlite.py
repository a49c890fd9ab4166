"""Sessions in an SQLite file, for all processes of one machine."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from geminorum.errors import StoreConflict, StoreError, Unsupported
from geminorum.hints import advice
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.protocol import MAX_ENTRY_BYTES, Listing
from geminorum.system.private_database import create_private, is_absent, planted_file

_SCHEMA_VERSION = 1
_BUSY_SECONDS = 10.0
_PAGE = 32
"""Entries that are in memory at the same time."""
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS entries (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE TABLE IF NOT EXISTS leases (
    session TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until REAL NOT NULL
);
PRAGMA user_version = {_SCHEMA_VERSION};
COMMIT;
"""
_APPEND = """
INSERT INTO entries SELECT :session, :number, :data
WHERE :number = 1 + (SELECT COALESCE(MAX(number), 0) FROM entries WHERE session = :session)
"""
# A column takes anything.
_LIST = """
SELECT session, MAX(number) FROM entries WHERE typeof(session) = 'text' GROUP BY session
"""
# Nobody who follows the protocol has written a larger one: it is damaged.
_LOAD = """
SELECT number, CASE WHEN length(data) > :largest THEN x'' ELSE data END FROM entries
WHERE session = :session AND number > :after ORDER BY number LIMIT :page
"""
_ACQUIRE = """
INSERT INTO leases VALUES (:session, :holder, :now + :seconds) ON CONFLICT (session)
DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE leases.holder = excluded.holder OR leases.until <= :now
"""
_Kind: TypeAlias = Literal["IMMEDIATE", "DEFERRED"]
"""Of a transaction: one that only looks waits for nobody, and nobody for it."""
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EROFS)
_OTHER_FILE = advice("name another file[: {Options.store=…}]")
_OWN_FOLDER = "keep the store in a folder that only you can write to"


class SqliteStore:
    """A `SessionStore` in one file, readable by this user only. Not for network file systems."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).expanduser().absolute()
        self._is_ready = False

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    def append(self, session: str, number: int, data: bytes) -> None:
        row = {"session": session, "number": number, "data": data}
        with self._transaction() as database:
            if database.execute(_APPEND, row).rowcount != 1:
                raise StoreConflict(f"entry {number} is not the next of session {session!r}")

    def load(self, session: str, after: int = 0) -> Iterator[bytes]:
        while page := self._page(session, after):
            for number, data in page:
                if number != after + 1:
                    return  # What lies behind a gap is not part of the log.
                after = number
                yield data

    def list(self) -> Listing:
        if is_absent(self._path):
            return []
        with self._transaction("DEFERRED") as database:
            return database.execute(_LIST).fetchall()

    def delete(self, session: str) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM entries WHERE session = ?", (session,))
            database.execute("DELETE FROM leases WHERE session = ?", (session,))

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        row = {"session": session, "holder": holder, "now": time.time(), "seconds": seconds}
        with self._transaction() as database:
            database.execute(_ACQUIRE, row)
            query = "SELECT holder FROM leases WHERE session = ?"
            return str(database.execute(query, (session,)).fetchone()[0])

    def release(self, session: str, holder: str) -> None:
        with self._transaction() as database:
            row = session, holder
            database.execute("DELETE FROM leases WHERE session = ? AND holder = ?", row)

    def _page(self, session: str, after: int) -> Sequence[tuple[int, bytes]]:
        if is_absent(self._path):
            return []
        with self._transaction("DEFERRED") as database:
            row = {"session": session, "after": after, "largest": MAX_ENTRY_BYTES, "page": _PAGE}
            return database.execute(_LOAD, row).fetchall()

    @contextmanager
    def _transaction(self, kind: _Kind = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        # A connection for each: it belongs to one thread, and must not be open in a fork.
        with explain_failures(), closing(self._connect()) as database:
            database.execute(f"BEGIN {kind}")
            try:
                yield database
            except BaseException:
                database.rollback()
                raise
            database.commit()

    def _connect(self) -> sqlite3.Connection:
        if not self._is_ready:
            self._make_private()
        self._refuse_planted()
        database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            # An entry that was acknowledged outlives a power failure.
            database.execute("PRAGMA synchronous = FULL")
            if not self._is_ready:
                self._prepare(database)
        except BaseException:
            database.close()
            raise
        self._is_ready = True
        return database

    def _make_private(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_planted()  # A link would have the file made wherever it leads.
            create_private(self._path)
        except OSError as error:
            # The default hint is for a store that is full, or cannot be reached at the moment.
            hint = _OTHER_FILE if error.errno in _NO_FILE else None
            text = f"cannot open the store {str(self._path)!r}: {error}"
            raise StoreError(text, hint=hint) from error

    def _refuse_planted(self) -> None:
        if (planted := planted_file(self._path)) is not None:
            raise StoreError(f"{str(planted)!r} belongs to another user", hint=_OWN_FOLDER)

    def _prepare(self, database: sqlite3.Connection) -> None:
        self._refuse_foreign(database)
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise Unsupported(
                f"the store {str(self._path)!r} belongs to a newer geminorum",
                hint="update this one with `pip install --upgrade geminorum`",
            )
        if version < _SCHEMA_VERSION:
            # Where another process makes the file at this moment, SQLite does not wait, but fails;
            # the other sets the same mode.
            with suppress(sqlite3.OperationalError):
                database.execute("PRAGMA journal_mode = WAL").fetchone()
            database.executescript(_SCHEMA)

    def _refuse_foreign(self, database: sqlite3.Connection) -> None:
        """A mistyped name may be that of another program's database."""
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in database.execute(query)}
        if tables and not {"entries", "leases"} <= tables:
            text = f"{str(self._path)!r} is a database of another program"
            raise StoreError(text, hint=_OTHER_FILE, retryable=False)
