"""One session in a store: reads its log, and adds to it what is new."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Literal

import msgspec

from geminorum.errors import StoreConflict, StoreError
from geminorum.sessions.store.protocol import SessionStore
from geminorum.wire.stored.entries import (
    About,
    Entry,
    KnownFile,
    SavedFile,
    encoded,
    known_after,
    parts_of,
    state_of,
    turn_record,
)
from geminorum.wire.stored.fingerprint import digest_of
from geminorum.wire.stored.journal import Journal

_ROUNDS = 3
"""Of writing a turn anew, after an entry that seemed to fail has arrived after all."""


READ_SECONDS = 120.0
"""How long a log may take to read. Nobody waits longer for it, and entries of a few bytes may make
gigabytes of work.
"""


class SessionLog:
    """The log of a session. `read` comes before anything is added to it."""

    def __init__(self, store: SessionStore, session: str, writer: str) -> None:
        self._store, self._writer = store, writer
        self.session = session
        self.number = 0
        """Of the last entry that is known."""
        self._known: Mapping[str, KnownFile] = {}
        self._tried: dict[bytes, Mapping[str, KnownFile] | None] = {}
        """Entries that may have arrived, and the files after those that complete a turn."""
        self._created: int | None = None
        self._turn = uuid.uuid4().hex

    def read(self) -> Journal:
        journal, until = Journal(self.session), time.monotonic() + READ_SECONDS
        for raw in self._store.load(self.session):
            journal.add(raw)
            if time.monotonic() > until:
                raise StoreError(f"the store has sent a session for {READ_SECONDS:g} s")
        self.number, self._known = journal.number, journal.known_in_pieces()
        self._created = journal.about.created if journal.about else None
        return journal

    @property
    def state(self) -> bytes:
        """Of the last whole turn in the store."""
        return state_of(self._known)

    def begin_turn(self, about: About) -> None:
        """Notes that a turn begins. Raises StoreConflict if another writer was first.

        Whoever finds the note without a turn after it knows that one is missing; and a writer who
        has lost the session to us cannot add anything any more.
        """
        self._turn = uuid.uuid4().hex
        if not self._append(encoded(self._entry("begun", about)), None):
            raise _conflict(self.session)

    def save_turn(self, files: Mapping[str, SavedFile], about: About) -> None:
        """Adds all that is new in these files, as one turn."""
        after = known_after(files, self._known)
        for _ in range(_ROUNDS):
            if self._write(files, after, about):
                self._turn = uuid.uuid4().hex
                return
        raise _conflict(self.session)

    def _write(
        self, files: Mapping[str, SavedFile], after: Mapping[str, KnownFile], about: About
    ) -> bool:
        parts = parts_of(turn_record(self._known, files, after))
        whole = self._entry("turn", about)
        for place, data in enumerate(parts, 1):
            entry = msgspec.structs.replace(whole, part=place, parts=len(parts), data=data)
            if not self._append(encoded(entry), after if place == len(parts) else None):
                return False
        return True

    def _append(self, raw: bytes, after: Mapping[str, KnownFile] | None) -> bool:
        """Has it arrived? If not, an earlier one has, and what is new has to be found anew."""
        self._tried[digest_of(raw)] = after
        try:
            self._store.append(self.session, self.number + 1, raw)
        except StoreConflict:
            return self._catch_up(digest_of(raw))
        self._advance(digest_of(raw))
        return True

    def _catch_up(self, wanted: bytes) -> bool:
        """Takes in entries that seemed to fail. Raises StoreConflict at one of another writer."""
        has_arrived = False
        for raw in self._store.load(self.session, self.number):
            digest = digest_of(raw)
            if digest not in self._tried:
                raise _conflict(self.session)
            has_arrived |= digest == wanted
            self._advance(digest)
        return has_arrived

    def _advance(self, digest: bytes) -> None:
        self.number += 1
        if (after := self._tried.pop(digest)) is not None:
            self._known = after
            self._tried.clear()

    def _entry(self, kind: Literal["begun", "turn"], about: About) -> Entry:
        now = time.time_ns() // 1_000_000
        self._created = self._created or now
        dated = msgspec.structs.replace(about, created=self._created, updated=now)
        return Entry(
            session=self.session,
            kind=kind,
            turn=self._turn,
            writer=self._writer,
            at=now,
            about=dated,
        )


def _conflict(session: str) -> StoreConflict:
    return StoreConflict(f"session {session!r} was continued elsewhere meanwhile")
