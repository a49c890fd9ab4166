"""The inbox in an SQLite file, for all processes of one user on one machine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from geminorum.errors import GeminorumError, InboxError, InboxUnavailable, Unsupported
from geminorum.inbox.database import TABLES, VERSION, OnChange, Rows
from geminorum.system.private_database import create_private, has_other_writers, is_absent

_BUSY_SECONDS = 10.0
_LOOK_SECONDS = 0.05
"""Between two looks at the number of changes, which takes microseconds."""
_RECOVERY_SECONDS = 1.0
_NEWER = "update this one with `pip install --upgrade geminorum`"
_PRIVATE = "whoever writes there can answer: chmod 600 the file, in a folder of your own"


class SqliteTransaction:
    """Statements on an open connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Mapping[str, Any] = {}) -> Rows:
        return self._connection.execute(statement, values)

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class SqliteDatabase:
    """A `Database` in one file that nobody else may write to. Not for network file systems."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_ready = False

    def __repr__(self) -> str:
        return f"SqliteDatabase({str(self.path)!r})"

    def is_absent(self) -> bool:
        return is_absent(self.path)

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[SqliteTransaction]:
        # A connection for each: it belongs to one thread, and must not be open in a fork.
        with self._explained(), closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield SqliteTransaction(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    async def listen(self, on_change: OnChange) -> None:
        while True:
            with suppress(GeminorumError):
                if not self.is_absent():
                    with self._explained(), closing(self._connect()) as connection:
                        on_change()
                        await _report_changes(connection, on_change)
            # Somebody may make it, or mend it.
            await asyncio.sleep(_LOOK_SECONDS if self.is_absent() else _RECOVERY_SECONDS)

    def _connect(self) -> sqlite3.Connection:
        if not self._is_ready:
            create_private(self.path)
        if has_other_writers(self.path):
            text = f"other users can change the inbox {str(self.path)!r}"
            raise InboxError(text, hint=_PRIVATE)
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            # An answer that was acknowledged outlives a power failure.
            connection.execute("PRAGMA synchronous = FULL")
            if not self._is_ready:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._is_ready = True
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            text = f"the inbox {str(self.path)!r} belongs to a newer geminorum"
            raise Unsupported(text, hint=_NEWER)
        if version < VERSION:
            # Where another process makes the file at this moment, SQLite does not wait, but fails;
            # the other sets the same mode.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
            _make_tables(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except GeminorumError:
            raise
        except (sqlite3.Error, OSError) as error:
            text = f"the inbox {str(self.path)!r} cannot be used: {error}"
            raise InboxUnavailable(text) from error


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in TABLES:
            connection.execute(statement)
        if connection.execute("SELECT 1 FROM geminorum_inbox").fetchone() is None:
            connection.execute("INSERT INTO geminorum_inbox VALUES (?, 0)", (VERSION,))
        connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


async def _report_changes(connection: sqlite3.Connection, on_change: OnChange) -> None:
    known = _changes(connection)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if (now := _changes(connection)) != known:
            known = now
            on_change()


def _changes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
