"""Connections to the fleet's PostgreSQL: transactions, notifications, and what failed in words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from geminorum.credentials import shown_address, without_credentials
from geminorum.errors import FleetError, FleetUnavailable, SetupError
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    import psycopg
    import psycopg_pool
else:
    psycopg = lazy_module("psycopg")
    psycopg_pool = lazy_module("psycopg_pool")

Connection: TypeAlias = "psycopg.AsyncConnection[Any]"
T = TypeVar("T")

_CONNECT_SECONDS, _STATEMENT_SECONDS = 10, 20
_CONNECTION: dict[str, Any] = {
    "connect_timeout": _CONNECT_SECONDS,
    # A server that is gone without a word is noticed; the system would wait for a quarter of an
    # hour.
    "tcp_user_timeout": _STATEMENT_SECONDS * 1000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_RECONNECT_SECONDS = 0.25
_POOL_TRIES_SECONDS = 4.0
"""How long the pool tries to connect before it waits for the next who asks."""
ABSENCE_SECONDS = 60.0
"""How long readers wait for a database that cannot be used: it may be starting again."""
_LISTEN_SECONDS = 5.0
"""How long a listener trusts a silent connection before it tries it."""
WORKER_IDLE_SECONDS = 2
"""How long a worker may do nothing in the midst of a transaction. One that is stopped or cut off
there holds the rows of its jobs, and the server would never end it: nobody could take them over."""


class Database:
    """The connections of one process, shared by all that it does; opened by `async with`."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        idle_seconds: int = _STATEMENT_SECONDS,
        is_ledger: bool = False,
    ) -> None:
        """`idle_seconds`: PostgreSQL ends a transaction in which nothing happens for so long.

        `is_ledger`: nothing waits for the disk, and there is no connection until it is needed.
        """
        self.url, self._idle_seconds, self._is_ledger = url, idle_seconds, is_ledger
        require_driver()
        self._pool = psycopg_pool.AsyncConnectionPool(
            url,
            min_size=0 if is_ledger else 1,
            max_size=connections,
            open=False,
            timeout=_CONNECT_SECONDS,
            # Its pauses between two tries double until then: a server that comes back after a
            # minute would not be noticed for another one.
            reconnect_timeout=_POOL_TRIES_SECONDS,
            kwargs={**_CONNECTION, "autocommit": True},
            configure=self._configure,
            check=psycopg_pool.AsyncConnectionPool.check_connection,
        )

    def __repr__(self) -> str:
        return f"Database({shown_address(self.url)!r})"

    async def __aenter__(self) -> Database:
        # One try, so that a wrong password says so: the pool itself would only say "timeout".
        async with await self.connect():
            pass
        with explained(self.url):
            await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def connect(self) -> Connection:
        """A connection of its caller's own, which commits every statement."""
        with explained(self.url):
            connection = await psycopg.AsyncConnection.connect(
                self.url, autocommit=True, **_CONNECTION
            )
            try:
                await self._configure(connection)
            except BaseException:
                await connection.close()
                raise
            return connection

    async def _configure(self, connection: Connection) -> None:
        """No statement waits forever for another's lock. Not as an option of the connection, which
        would replace the user's own."""
        limits = {
            "statement_timeout": _STATEMENT_SECONDS,
            "lock_timeout": _STATEMENT_SECONDS,
            "idle_in_transaction_session_timeout": self._idle_seconds,
        }
        for name, seconds in limits.items():
            await connection.execute(f"SET {name} = '{seconds}s'")
        if self._is_ledger:
            await connection.execute("SET synchronous_commit = off")

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Connection]:
        """A connection that commits every statement by itself."""
        cancellations = _cancellations()
        with explained(self.url):
            async with self._pool.connection() as connection:
                if _cancellations() > cancellations:
                    # Lost by `asyncio.wait_for` of Python 3.11, which the pool waits with.
                    raise asyncio.CancelledError
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction, which is committed when the block ends well."""
        async with self.statements() as connection, connection.transaction():
            yield connection

    async def listen(self, *channels: str, on_message: Callable[[str, str], None]) -> None:
        """Reports notifications until it is cancelled, and survives the end of its connection.

        It reports ("", "") whenever notifications may have been missed: whoever relies on them
        looks for itself then.
        """
        while True:
            try:
                async with await self.connect() as connection:
                    for channel in channels:
                        await connection.execute(f"LISTEN {channel}")
                    on_message("", "")
                    await _report_notifications(connection, on_message)
            except (FleetUnavailable, psycopg.Error, TimeoutError, OSError):
                await asyncio.sleep(_RECONNECT_SECONDS)


def _cancellations() -> int:
    """How often the current task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _report_notifications(
    connection: Connection, on_message: Callable[[str, str], None]
) -> None:
    while True:
        async for notification in connection.notifies(timeout=_LISTEN_SECONDS):
            on_message(notification.channel, notification.payload)
        async with asyncio.timeout(_CONNECT_SECONDS):
            await connection.execute("SELECT 1")


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Reads again for a minute while the database cannot be used."""
    deadline = time.monotonic() + ABSENCE_SECONDS
    while True:
        try:
            return await read()
        except FleetUnavailable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_RECONNECT_SECONDS)


def require_driver() -> None:
    """Raises SetupError if the packages of the extra are missing."""
    try:
        _ = psycopg.connect, psycopg_pool.AsyncConnectionPool, lazy_module("procrastinate").App
    except ImportError as error:
        hint = "install it: pip install 'geminorum[fleet]'"
        raise SetupError(f"the fleet needs the package {error.name}", hint=hint) from error


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turns what the driver raises about the connection into FleetUnavailable."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        hint = "another role may: docs/fleet.md lists the rights that each needs"
        text = f"the fleet's database refuses: {_first_line(error, url)}"
        raise FleetError(text, hint=hint) from error
    except (
        psycopg.OperationalError,
        psycopg.errors.IdleInTransactionSessionTimeout,
        # One that only follows another for now, or is being maintained.
        psycopg.errors.ReadOnlySqlTransaction,
        psycopg_pool.PoolTimeout,
        TimeoutError,
        OSError,
    ) as error:
        reason = _first_line(error, url)
        text = f"the fleet's database {shown_address(url)} cannot be used: {reason}"
        raise FleetUnavailable(text) from error


def _first_line(error: Exception, url: str) -> str:
    return [*without_credentials(str(error), url).strip().splitlines(), "no answer"][0]
