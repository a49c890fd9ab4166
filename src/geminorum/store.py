"""Remembers each agent's current session in a folder, across runs and processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import msgspec

from geminorum.errors import SetupError
from geminorum.hints import advice
from geminorum.runtime.lazy import platformdirs
from geminorum.system.private_database import create_private

SCHEMA_VERSION = 1
_PICO = 10**12
"""Costs are kept as whole millionths of a millionth of a dollar: SQLite can add those exactly."""
_LOCK_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another process that is writing."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    agent TEXT NOT NULL,
    cwd TEXT NOT NULL,
    session_id TEXT NOT NULL,
    last_run INTEGER NOT NULL,
    model TEXT,
    tokens INTEGER NOT NULL,
    cost_pico INTEGER,
    PRIMARY KEY (agent, cwd)
)
"""
# One statement, so that two runs which end at the same time are both counted.
_RECORD = """
INSERT INTO sessions (agent, cwd, session_id, last_run, model, tokens, cost_pico)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (agent, cwd) DO UPDATE SET
    tokens = excluded.tokens + iif(session_id = excluded.session_id, tokens, 0),
    cost_pico = excluded.cost_pico + iif(session_id = excluded.session_id, cost_pico, 0),
    session_id = excluded.session_id,
    last_run = max(last_run, excluded.last_run),
    model = coalesce(excluded.model, model)
"""
_GET = """
SELECT agent, cwd, session_id, last_run, model, tokens, cost_pico FROM sessions
WHERE agent = ? AND cwd = ?
"""
_LIST = """
SELECT agent, cwd, session_id, last_run, model, tokens, cost_pico FROM sessions
WHERE ?1 IS NULL OR agent = ?1 ORDER BY last_run DESC
"""
_FORGET = """
DELETE FROM sessions WHERE agent = ? AND cwd = ? AND session_id = ifnull(?, session_id)
"""


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's session in one folder, with the totals of its runs."""

    agent: str
    cwd: str
    session_id: str
    last_run: int
    """Milliseconds since 1970."""
    model: str | None = None
    tokens: int = 0
    """As far as the runs reported them."""
    cost_usd: Decimal | None = None
    """None once the cost of any run is unknown: a partial sum would look too small."""


class AgentSessions(Protocol):
    """Remembers the current session of each agent. Several worker threads may call it at a time."""

    def get(self, agent: str, cwd: str) -> StoredSession | None:
        """Returns the agent's current session in this folder."""
        ...

    def record(self, run: StoredSession) -> None:
        """Makes a run's session the current one. Tokens and cost of the same session add up."""
        ...

    def list(self, agent: str | None = None) -> Sequence[StoredSession]:
        """Returns all stored sessions, the latest run first."""
        ...

    def forget(self, agent: str, cwd: str, session_id: str | None = None) -> bool:
        """Removes the entry (given a session id, only if it matches); returns whether it did."""
        ...


class SqliteSessions:
    """Sessions in one SQLite file, for any number of threads and processes.

    Each call opens and closes the file: there is nothing to close and no shared connection.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = default_path() if path is None else Path(path).expanduser().absolute()

    def get(self, agent: str, cwd: str | os.PathLike[str]) -> StoredSession | None:
        with self._open() as database:
            row = database.execute(_GET, (agent, folder_of(cwd))).fetchone()
        return None if row is None else _session(row)

    def record(self, run: StoredSession) -> None:
        cost = None if run.cost_usd is None else round(run.cost_usd * _PICO)
        row = (run.agent, folder_of(run.cwd), run.session_id, run.last_run, run.model, run.tokens)
        with self._open() as database:
            database.execute(_RECORD, (*row, cost))

    def list(self, agent: str | None = None) -> Sequence[StoredSession]:
        with self._open() as database:
            rows = database.execute(_LIST, (agent,)).fetchall()
        return [_session(row) for row in rows]

    def forget(
        self, agent: str, cwd: str | os.PathLike[str], session_id: str | None = None
    ) -> bool:
        key = (agent, folder_of(cwd), session_id)
        with self._open() as database:
            return database.execute(_FORGET, key).rowcount > 0

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database in a transaction; whatever fails says where and what to do."""
        try:
            create_private(self.path)
            connection = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_SECONDS)
            with closing(connection), connection:
                _migrate(connection, self.path)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise SetupError(
                f"cannot use the session store {str(self.path)!r}: {error}",
                hint=advice("move the file away[, or name another: {SqliteSessions(path)}]"),
            ) from error


def default_path() -> Path:
    """The file in the user's state folder: `~/.local/state/geminorum/sessions.db` on Linux."""
    return platformdirs.user_state_path("geminorum", appauthor=False) / "sessions.db"


def folder_of(cwd: str | os.PathLike[str]) -> str:
    """The canonical name of a folder: links, `~` and `..` are resolved."""
    return str(Path(cwd).expanduser().resolve())


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise SetupError(
            f"the session store {str(path)!r} was written by a newer geminorum",
            hint=advice(
                "pip install --upgrade geminorum[, or name another file: {SqliteSessions(path)}]"
            ),
        )
    if version == SCHEMA_VERSION:
        return
    _write_ahead(connection)
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Readers do not wait for a writer then. The file remembers it."""
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError:
        # Another process is creating the file at this moment, and sets it just as well. SQLite
        # does not wait here, and all that follows is right in any mode.
        return


def _session(row: tuple[str, str, str, int, str | None, int, int | None]) -> StoredSession:
    agent, cwd, session_id, last_run, model, tokens, cost = row
    return StoredSession(
        agent=agent,
        cwd=cwd,
        session_id=session_id,
        last_run=last_run,
        model=model,
        tokens=tokens,
        cost_usd=None if cost is None else Decimal(cost) / _PICO,
    )
