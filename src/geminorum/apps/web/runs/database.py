"""The database of the page: a SQLite file, or PostgreSQL, which writers and readers share."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from geminorum.errors import SetupError
from geminorum.fleet import shown_url
from geminorum.runtime.lazy import lazy_module, platformdirs
from geminorum.system.private_database import (
    create_private,
    has_other_readers,
    has_other_writers,
)

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = lazy_module("psycopg")

Row: TypeAlias = tuple[Any, ...]
_LOCK_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another process that is writing."""
_CONNECT_SECONDS = 5
_PRIVATE = "it has keys and settings of agents: chmod 600 the file, in a folder of your own"


class Transaction(Protocol):
    """What happens as a whole or not at all. `?` marks a parameter."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]: ...

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None: ...


class Database(Protocol):
    """Opens itself when it is first used, and again after a failure. For any thread."""

    blob: str
    """The type of a column that holds bytes."""

    @property
    def shown(self) -> str:
        """Its address, for people."""
        ...

    def transaction(self, *, writes: bool = True) -> AbstractContextManager[Transaction]:
        """One that only reads waits for nobody who writes."""
        ...

    def lies_in(self, folder: Path) -> bool:
        """Is it a file below this folder?"""
        ...

    def close(self) -> None: ...


def open_database(url: str | None) -> Database:
    """The one at this address; None: a file in the user's state folder. Opens nothing yet."""
    if url is not None and url.startswith(("postgres://", "postgresql://")):
        return PostgresDatabase(url)
    return SqliteDatabase(_file_of(url))


class _Closable(Protocol):
    def close(self) -> None: ...


_Connection = TypeVar("_Connection", bound=_Closable)


class _Seat(Generic[_Connection]):
    """A connection for one user at a time, which is opened when it is first used."""

    def __init__(self, open: Callable[[], _Connection]) -> None:
        self._open = open
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    @contextmanager
    def borrow(self) -> Iterator[_Connection]:
        with self._lock:
            self._connection = self._connection or self._open()
            yield self._connection

    def discard(self) -> None:
        """Closes the connection of whoever has it now; the next one opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        with self._lock:
            self.discard()


class SqliteDatabase:
    """A file that only its owner can read."""

    blob = "BLOB"

    def __init__(self, path: Path) -> None:
        self._path = path
        # Apart: under load, somebody writes at any time, and a disk may take a second for it.
        self._writing, self._reading = _Seat(self._open), _Seat(self._open)

    @property
    def shown(self) -> str:
        return str(self._path)

    def lies_in(self, folder: Path) -> bool:
        try:
            return self._path.resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError, RuntimeError):
            return False  # No agent can start in a folder that cannot be.

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[Transaction]:
        seat = self._writing if writes else self._reading
        with self._explained(), seat.borrow() as connection:
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield _SqliteTransaction(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def close(self) -> None:
        self._reading.close()
        self._writing.close()

    def _open(self) -> sqlite3.Connection:
        # Before SQLite does it: its own files would be readable by everybody.
        create_private(self._path)
        if has_other_writers(self._path) or has_other_readers(self._path):
            text = f"other users can read or change the page's database {self.shown!r}"
            raise SetupError(text, hint=_PRIVATE)
        connection = sqlite3.connect(
            self._path, _LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        with suppress(sqlite3.OperationalError):  # Another process is just doing it.
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise _unusable(self.shown, error) from error


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, parameters).fetchall()

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(sql, rows)


class PostgresDatabase:
    """For pages on several machines; psycopg comes with `geminorum[fleet]`."""

    blob = "BYTEA"

    def __init__(self, url: str) -> None:
        self._url = url
        self._writing, self._reading = _Seat(self._open), _Seat(self._open)

    @property
    def shown(self) -> str:
        return shown_url(self._url)

    def lies_in(self, folder: Path) -> bool:
        return False

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[Transaction]:
        seat = self._writing if writes else self._reading
        with self._explained(), seat.borrow() as connection:
            try:
                with connection.transaction(), connection.cursor() as cursor:
                    yield _PostgresTransaction(cursor)
            except psycopg.OperationalError:
                seat.discard()  # The server has gone; the next one opens another.
                raise

    def close(self) -> None:
        self._reading.close()
        self._writing.close()

    def _open(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise SetupError(
                "PostgreSQL needs psycopg", hint="install it: pip install 'geminorum[fleet]'"
            ) from error
        except psycopg.Error as error:
            raise _unusable(self.shown, error) from error


class _PostgresTransaction:
    def __init__(self, cursor: psycopg.Cursor[Row]) -> None:
        self._cursor = cursor

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        self._cursor.execute(_with_percents(sql), parameters)
        return self._cursor.fetchall() if self._cursor.description else []

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(_with_percents(sql), rows)


def _with_percents(sql: str) -> bytes:
    """As psycopg marks parameters."""
    return sql.replace("?", "%s").encode()


def _file_of(url: str | None) -> Path:
    if url is None:
        return platformdirs.user_state_path("geminorum", appauthor=False) / "web.db"
    name = url.removeprefix("sqlite:///")
    if not name or "://" in name:
        raise SetupError(
            f"--db {shown_url(url)!r} is no address of a database",
            hint="sqlite:///FILE, or postgresql://USER@HOST/NAME",
        )
    return Path(name).expanduser().absolute()


def _unusable(where: str, error: BaseException) -> SetupError:
    return SetupError(
        f"cannot use the page's database {where!r}: {error}",
        hint="start `geminorum web` with another one: --db sqlite:///FILE",
    )
