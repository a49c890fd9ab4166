"""The book of runs: their facts, and every event that they reported, numbered through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from geminorum.apps.web.runs.database import Database, Transaction
from geminorum.apps.web.runs.info import RunInfo, now_ms
from geminorum.events import Done, Error, Event, encode

KEPT_RUNS = 2_000
"""Older ones are removed when another is entered."""
OWNER_TIMEOUT_MS = 20_000
"""The runs of a page that has not been heard of for so long are over."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS web_counter (name TEXT PRIMARY KEY, last BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS web_owners (id TEXT PRIMARY KEY, heard BIGINT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS web_runs (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, started BIGINT NOT NULL,
        is_live INTEGER NOT NULL, seq BIGINT NOT NULL, info {blob} NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS web_events (
        seq BIGINT PRIMARY KEY, run TEXT NOT NULL, kind TEXT NOT NULL, line {blob} NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS web_events_of_run ON web_events (run, seq)",
    "CREATE INDEX IF NOT EXISTS web_runs_by_start ON web_runs (started)",
    "INSERT INTO web_counter VALUES ('seq', 0) ON CONFLICT (name) DO NOTHING",
)
# The row is locked until the end of the transaction: numbers appear in their order.
_COUNT = "UPDATE web_counter SET last = last + ? WHERE name = 'seq' RETURNING last"
_LAST = "SELECT last FROM web_counter WHERE name = 'seq'"
_ENTER = "INSERT INTO web_runs (id, owner, started, is_live, seq, info) VALUES (?, ?, ?, 1, 0, ?)"
_ADD = "INSERT INTO web_events (seq, run, kind, line) VALUES (?, ?, ?, ?)"
_UPDATE = "UPDATE web_runs SET is_live = ?, seq = ?, info = ? WHERE id = ?"
_GET = "SELECT info FROM web_runs WHERE id = ?"
_LIST = "SELECT info FROM web_runs WHERE started < ? ORDER BY started DESC, id LIMIT ?"
_CHANGED = "SELECT seq, info FROM web_runs WHERE seq > ? AND owner <> ? ORDER BY seq LIMIT 500"
_EVENTS = "SELECT seq, run, kind, line FROM web_events WHERE seq > ? ORDER BY seq LIMIT ?"
_EVENTS_OF_RUN = """SELECT seq, run, kind, line FROM web_events WHERE run = ? AND seq > ?
    ORDER BY seq LIMIT ?"""
_HEAR = """INSERT INTO web_owners (id, heard) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET heard = excluded.heard"""
_LOST = """SELECT info FROM web_runs WHERE is_live = 1
    AND owner NOT IN (SELECT id FROM web_owners WHERE heard > ?)"""
_FORGET_OWNER = "DELETE FROM web_owners WHERE id = ? OR heard < ?"
_KINDS = "SELECT seq, kind FROM web_events WHERE run = ? ORDER BY seq"
_DELETE_EVENT = "DELETE FROM web_events WHERE seq = ?"
_DELETE_EVENTS = "DELETE FROM web_events WHERE run = ?"
_DELETE_RUN = "DELETE FROM web_runs WHERE id = ? AND is_live = 0 RETURNING id"
_OLD = """SELECT id FROM web_runs WHERE is_live = 0 AND started <
    (SELECT started FROM web_runs ORDER BY started DESC LIMIT 1 OFFSET ?) LIMIT 20"""


class Entry(NamedTuple):
    """What is to be written about one run."""

    info: RunInfo
    events: list[Event]


class Line(NamedTuple):
    """An event as it is kept."""

    seq: int
    run: str
    kind: str
    data: bytes


class RunBook:
    """Every method blocks, and is for a thread; a number is never used twice."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database, self._owner = database, owner

    def open(self) -> None:
        """Makes the tables, and ends what was left by pages that are gone."""
        with self._database.transaction() as transaction:
            for statement in _SCHEMA:
                transaction.execute(statement.format(blob=self._database.blob))
        self.hear()

    def close(self) -> None:
        with self._database.transaction() as transaction:
            transaction.execute(_FORGET_OWNER, (self._owner, now_ms() - 10 * OWNER_TIMEOUT_MS))
        self._database.close()

    def enter(self, info: RunInfo, events: list[Event]) -> int:
        """A new run with its first events; returns the number of the last."""
        with self._database.transaction() as transaction:
            row = (info.id, self._owner, info.started, msgspec.json.encode(info))
            transaction.execute(_ENTER, row)
            _remove_old(transaction)
            return _write(transaction, [Entry(info, events)])

    def write(self, entries: Sequence[Entry]) -> int:
        """New events of several runs, all or none; returns the number of the last."""
        with self._database.transaction() as transaction:
            return _write(transaction, entries)

    def run(self, id: str) -> RunInfo | None:
        with self._database.transaction(writes=False) as transaction:
            rows = transaction.execute(_GET, (id,))
        return _info(rows[0][0]) if rows else None

    def runs(self, before: int | None = None, limit: int = 50) -> list[RunInfo]:
        """The newest first; `before` is the start of the last one that was seen."""
        latest = before if before is not None else 1 << 62
        with self._database.transaction(writes=False) as transaction:
            rows = transaction.execute(_LIST, (latest, limit))
        return [_info(data) for (data,) in rows]

    def changed_elsewhere(self, after: int) -> list[tuple[int, RunInfo]]:
        """Runs of other pages on the same database that have changed since."""
        with self._database.transaction(writes=False) as transaction:
            rows = transaction.execute(_CHANGED, (after, self._owner))
        return [(seq, _info(data)) for seq, data in rows]

    def events(self, run: str | None, after: int = 0, limit: int = 1_000) -> list[Line]:
        """Those of a run, or of all runs, after the one with this number."""
        sql, parameters = (
            (_EVENTS, (after, limit)) if run is None else (_EVENTS_OF_RUN, (run, after, limit))
        )
        with self._database.transaction(writes=False) as transaction:
            rows = transaction.execute(sql, parameters)
        return [Line(seq, owner, kind, bytes(data)) for seq, owner, kind, data in rows]

    def last(self) -> int:
        """The number of the last event of all."""
        with self._database.transaction(writes=False) as transaction:
            return int(transaction.execute(_LAST)[0][0])

    def hear(self) -> None:
        """Says that this page is alive, and ends the runs of those that are not."""
        now = now_ms()
        with self._database.transaction() as transaction:
            transaction.execute(_HEAR, (self._owner, now))
            lost = transaction.execute(_LOST, (now - OWNER_TIMEOUT_MS,))
            entries = [_lost(_info(data), now) for (data,) in lost]
            if entries:
                _write(transaction, entries)

    def remove(self, id: str) -> bool:
        """Forgets a run that is over; returns whether there was one."""
        with self._database.transaction() as transaction:
            return _remove(transaction, id)


def _write(transaction: Transaction, entries: Sequence[Entry]) -> int:
    new = [(info, event) for info, events in entries for event in events]
    # Also without events: a change is found by its number.
    last = int(transaction.execute(_COUNT, (len(new) or 1,))[0][0])
    first = last - len(new) + 1
    rows = [
        (seq, info.id, event.type, encode(event)) for seq, (info, event) in enumerate(new, first)
    ]
    transaction.execute_many(_ADD, rows)
    for info, _ in entries:
        row = (int(info.is_live), last, msgspec.json.encode(info), info.id)
        transaction.execute(_UPDATE, row)
        if not info.is_live:
            _remove_pieces(transaction, info.id)
    return last


def _remove_pieces(transaction: Transaction, run: str) -> None:
    """Forgets the pieces of every text that is there as a whole."""
    pieces: list[int] = []
    for seq, kind in transaction.execute(_KINDS, (run,)):
        if kind == "text_delta":
            pieces.append(seq)
            continue
        if kind == "text":
            transaction.execute_many(_DELETE_EVENT, [(piece,) for piece in pieces])
        pieces.clear()


def _remove_old(transaction: Transaction) -> None:
    for (id,) in transaction.execute(_OLD, (KEPT_RUNS - 1,)):
        _remove(transaction, id)


def _remove(transaction: Transaction, id: str) -> bool:
    rows = transaction.execute(_DELETE_RUN, (id,))
    if rows:
        transaction.execute(_DELETE_EVENTS, (id,))
    return bool(rows)


def _lost(info: RunInfo, now: int) -> Entry:
    """How a run ends whose page was killed; its agent was ended by its keeper."""
    text = "geminorum web ended while this ran"
    problem = Error(text, "LOST", hint="start it again", timestamp=now, session_id=info.session_id)
    end = Done("interrupted", timestamp=now, session_id=info.session_id, resume=info.session_id)
    changed = msgspec.structs.replace(info, status="interrupted", ended=now, problem=text)
    return Entry(changed, [problem, end])


def _info(data: bytes) -> RunInfo:
    return msgspec.json.decode(bytes(data), type=RunInfo)
