"""The inbox in PostgreSQL, beside the fleet's tables: for askers and answerers on many machines.

The tables are made at first use, or by `geminorum fleet init`; their version is their own.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from geminorum.credentials import shown_address, without_credentials
from geminorum.errors import (
    GeminorumError,
    InboxError,
    InboxUnavailable,
    SetupError,
    Unsupported,
)
from geminorum.inbox.database import TABLES, VERSION, OnChange, Rows
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = lazy_module("psycopg")

_SECONDS = 20
_CONNECTION: dict[str, Any] = {
    "connect_timeout": _SECONDS,
    # A server that is gone without a word is noticed; the system would wait for a quarter of an
    # hour.
    "tcp_user_timeout": _SECONDS * 1000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# Not as options of the connection: PgBouncer refuses those, and they would replace the user's own.
_LIMITS = f"SET LOCAL statement_timeout = '{_SECONDS}s'; SET LOCAL lock_timeout = '{_SECONDS}s'"
_LOCK = 0x67656D696E626F78
"""Held by the one that makes the tables, while others want to."""
_CHANNEL = "geminorum_inbox"
_LISTEN_SECONDS = 5.0
"""How long a listener trusts a silent connection; a pooler may keep notifications from us."""
_RECONNECT_SECONDS = 0.5
_MAX_SPARE, _MAX_AT_ONCE = 2, 4
"""Connections of one inbox: a hundred runs that wait look at their questions at the same time."""
_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
_PARAMETER = re.compile(r":(\w+)")


class PostgresTransaction:
    """Statements on an open connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Mapping[str, Any] = {}) -> Rows:
        cursor = self._connection.cursor(row_factory=psycopg.rows.dict_row)
        return cursor.execute(_translated(statement), values)

    def now(self) -> int:
        found = self._connection.execute(_NOW).fetchone()
        return int(found[0]) if found else 0


class PostgresDatabase:
    """A `Database` for many machines. Connections last as long as a call, or somebody waits."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._is_ready = False
        self._spare = _SpareConnections()
        self._places = threading.BoundedSemaphore(_MAX_AT_ONCE)
        try:
            _ = psycopg.connect
        except ImportError as error:
            hint = "install it: pip install 'geminorum[fleet]'"
            raise SetupError(
                "an inbox in PostgreSQL needs the package psycopg", hint=hint
            ) from error

    def __repr__(self) -> str:
        return f"PostgresDatabase({shown_address(self.url)!r})"

    def is_absent(self) -> bool:
        return False

    def prepare(self) -> None:
        """Makes the tables, unless they are there."""
        with self.transaction(writes=False):
            pass

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[PostgresTransaction]:
        with self._explained(), self._places, self._connection() as connection:
            if not self._is_ready:
                with connection.transaction():
                    _prepare(connection)
                self._is_ready = True
            with connection.transaction():
                connection.execute(_LIMITS)
                yield PostgresTransaction(connection)
                if writes:
                    connection.execute(f"NOTIFY {_CHANNEL}")

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        connection = self._spare.take() or psycopg.connect(self.url, **_CONNECTION)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._spare.keep(connection)

    async def listen(self, on_change: OnChange) -> None:
        # Who waits will ask again and again; to connect takes longer than all else.
        with self._spare.in_use():
            while True:
                try:
                    await self._listen(on_change)
                except (psycopg.Error, TimeoutError, OSError):
                    await asyncio.sleep(_RECONNECT_SECONDS)

    async def _listen(self, on_change: OnChange) -> None:
        connecting = psycopg.AsyncConnection.connect(self.url, autocommit=True, **_CONNECTION)
        async with await connecting as connection:
            await connection.execute(f"LISTEN {_CHANNEL}")
            while True:
                on_change()
                async for _ in connection.notifies(timeout=_LISTEN_SECONDS):
                    on_change()
                async with asyncio.timeout(_SECONDS):
                    await connection.execute("SELECT 1")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except GeminorumError:
            raise
        except psycopg.errors.InsufficientPrivilege as error:
            hint = "another role may: docs/fleet.md lists the rights that each needs"
            text = f"the inbox refuses: {str(error).splitlines()[0]}"
            raise InboxError(text, hint=hint) from error
        except (psycopg.Error, TimeoutError, OSError) as error:
            words = without_credentials(str(error), self.url).strip().splitlines()
            text = f"the inbox {shown_address(self.url)} cannot be used: {[*words, 'no answer'][0]}"
            raise InboxUnavailable(text) from None


class _SpareConnections:
    """Connections for the next call, while there is a block in which they are of use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._idle: list[psycopg.Connection[Any]] = []

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with self._lock:
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                left = [] if self._blocks else self._idle
                self._idle = self._idle if self._blocks else []
            for connection in left:
                connection.close()

    def take(self) -> psycopg.Connection[Any] | None:
        """One that works; none may be left of a server that was started again."""
        with self._lock:
            if not self._idle:
                return None
            found = self._idle.pop()
        try:
            found.execute("SELECT 1")
            found.rollback()
        except psycopg.Error:
            found.close()
            return None
        return found

    def keep(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            if self._blocks and len(self._idle) < _MAX_SPARE:
                self._idle.append(connection)
                return
        connection.close()


@cache
def _translated(statement: str) -> Any:
    """The statement with parameters as psycopg writes them."""
    return _PARAMETER.sub(r"%(\1)s", statement)


def _prepare(connection: psycopg.Connection[Any]) -> None:
    connection.execute(_LIMITS)
    found = connection.execute("SELECT to_regclass('geminorum_inbox')").fetchone()
    # Who only uses the tables needs no right to make any.
    if not (found and found[0]):
        _make_tables(connection)
    version = connection.execute("SELECT version FROM geminorum_inbox").fetchone()
    if version and version[0] > VERSION:
        raise Unsupported(
            "the inbox belongs to a newer geminorum",
            hint="update this one with `pip install --upgrade 'geminorum[fleet]'`",
        )


def _make_tables(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    for statement in TABLES:
        connection.execute(_translated(statement))
    connection.execute(
        "INSERT INTO geminorum_inbox SELECT %s, 0 WHERE NOT EXISTS (SELECT FROM geminorum_inbox)",
        (VERSION,),
    )
