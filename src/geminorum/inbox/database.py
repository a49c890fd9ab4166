"""What the inbox needs of a database: transactions, a clock, and word of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

OnChange: TypeAlias = Callable[[], None]

VERSION = 1
TABLES = (
    """CREATE TABLE IF NOT EXISTS geminorum_inbox (
        version integer NOT NULL, revision bigint NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS geminorum_questions (
        id text PRIMARY KEY,
        revision bigint NOT NULL,
        state text NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'withdrawn')),
        tool text NOT NULL,
        digest text NOT NULL,
        session_id text,
        cwd text,
        agent text NOT NULL,
        about text NOT NULL,
        asker text NOT NULL,
        lease_until bigint NOT NULL,
        asked_at bigint NOT NULL,
        deadline bigint,
        decision text,
        answer_reason text,
        answered_by text,
        answered_at bigint,
        used_at bigint)""",
    "CREATE INDEX IF NOT EXISTS geminorum_questions_revision ON geminorum_questions (revision)",
    "CREATE INDEX IF NOT EXISTS geminorum_questions_state ON geminorum_questions (state, asked_at)",
    "CREATE INDEX IF NOT EXISTS geminorum_questions_session ON geminorum_questions (session_id)",
)
"""The same for SQLite and PostgreSQL."""


class Rows(Protocol):
    """What a statement found, by the names of the columns; or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Transaction(Protocol):
    """Statements that count together. Their parameters are written `:name`."""

    def execute(self, statement: str, values: Mapping[str, Any] = {}) -> Rows: ...

    def now(self) -> int:
        """Milliseconds since 1970, by the clock that all who use the database share."""
        ...


class Database(Protocol):
    """Keeps questions. Its methods may be called in several threads at a time."""

    def transaction(self, *, writes: bool = True) -> AbstractContextManager[Transaction]:
        """Raises InboxUnavailable if the database cannot be used."""
        ...

    def is_absent(self) -> bool:
        """Was nothing ever asked? To look makes no database: its name may be mistyped."""
        ...

    async def listen(self, on_change: OnChange) -> None:
        """Reports changes, also those that it may have missed, until it is cancelled."""
        ...
