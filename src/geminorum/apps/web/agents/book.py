"""The book of agents: their names, their configs, and the session that each goes on with."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from geminorum.apps.web.runs.database import Database, Row, Transaction
from geminorum.errors import GeminorumError

MAX_AGENTS = 1_000
_MAX_SLUG = 40
_SCHEMA = """CREATE TABLE IF NOT EXISTS web_agents (
    id TEXT PRIMARY KEY, revision BIGINT NOT NULL, agent {blob} NOT NULL)"""
_LIST = "SELECT agent FROM web_agents ORDER BY id"
_GET = "SELECT agent FROM web_agents WHERE id = ?"
_ADD = "INSERT INTO web_agents (id, revision, agent) VALUES (?, ?, ?)"
_CHANGE = """UPDATE web_agents SET revision = revision + 1, agent = ?
    WHERE id = ? AND revision = ? RETURNING id"""
_REMOVE = "DELETE FROM web_agents WHERE id = ? RETURNING id"


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as it is kept."""

    id: str
    name: str
    config: dict[str, Any]
    """As `GeminiLocalConfig.to_dict` makes it. May hold keys: never shown."""
    revision: int = 1
    """Grows with each change: who changes an older one is told."""
    changed: int = 0
    """Milliseconds since 1970."""
    last_run: str | None = None
    session: str | None = None
    """The session before its last run; that run may have another, or none."""
    is_fresh: bool = False
    """The next run begins a new session."""

    def __repr__(self) -> str:
        return f"Agent({self.id!r})"


class AgentChanged(GeminorumError):
    """Somebody else has changed the agent meanwhile."""


class AgentBook:
    """Agents in the page's database. Every method blocks, and is for a thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self) -> None:
        with self._database.transaction() as transaction:
            transaction.execute(_SCHEMA.format(blob=self._database.blob))

    def list(self) -> list[Agent]:
        with self._database.transaction(writes=False) as transaction:
            return sorted(map(_agent, transaction.execute(_LIST)), key=lambda one: one.name.lower())

    def get(self, id: str) -> Agent | None:
        with self._database.transaction(writes=False) as transaction:
            return _found(transaction, id)

    def add(self, name: str, config: Mapping[str, Any]) -> Agent:
        """A new agent; its id is made from its name."""
        with self._database.transaction() as transaction:
            # `/agents/new` is a page of its own.
            taken = {"new", *(_agent(row).id for row in transaction.execute(_LIST))}
            if len(taken) >= MAX_AGENTS:
                raise GeminorumError(f"there are {MAX_AGENTS} agents already", hint="delete some")
            agent = Agent(id=_free_id(name, taken), name=name, config=dict(config), changed=_now())
            row = (agent.id, agent.revision, msgspec.json.encode(agent))
            transaction.execute(_ADD, row)
        return agent

    def change(self, agent: Agent, **changes: Any) -> Agent:
        """Writes a new version, unless somebody else has done so before: AgentChanged."""
        new = msgspec.structs.replace(agent, **changes, revision=agent.revision + 1, changed=_now())
        with self._database.transaction() as transaction:
            row = (msgspec.json.encode(new), agent.id, agent.revision)
            if not transaction.execute(_CHANGE, row):
                raise AgentChanged(
                    f"{agent.name} was changed or deleted in the meantime",
                    hint="open it again, and make your change there",
                )
        return new

    def remove(self, id: str) -> bool:
        with self._database.transaction() as transaction:
            return bool(transaction.execute(_REMOVE, (id,)))


def _found(transaction: Transaction, id: str) -> Agent | None:
    rows = transaction.execute(_GET, (id,))
    return _agent(rows[0]) if rows else None


def _agent(row: Row) -> Agent:
    return msgspec.json.decode(bytes(row[0]), type=Agent)


def _free_id(name: str, taken: set[str]) -> str:
    """Letters, digits and dashes: it stands in addresses."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_MAX_SLUG].strip("-") or "agent"
    numbered = (slug if number == 1 else f"{slug}-{number}" for number in range(1, MAX_AGENTS + 2))
    return next(one for one in numbered if one not in taken)


def _now() -> int:
    return time.time_ns() // 1_000_000
