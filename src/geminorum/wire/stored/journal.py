"""The log of a session, folded into the files that its last whole turn left."""

from __future__ import annotations

from collections.abc import Iterable

from geminorum.wire.stored.entries import (
    MAX_SESSION_BYTES,
    About,
    Damaged,
    Entry,
    FileDelta,
    KnownFile,
    TurnRecord,
    decoded,
    state_of,
    turn_in,
)
from geminorum.wire.stored.fingerprint import BLOCK_BYTES, Data, Fingerprint, continued
from geminorum.wire.stored.pieces import pieces_of


class StoredFile:
    """The content of one file; a change is checked before it is made."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.data = bytearray()
        self.fingerprint = Fingerprint()

    def fingerprint_after(self, delta: FileDelta) -> Fingerprint:
        """Raises Damaged if the change does not lead to what was saved."""
        tail = self._tail_after(delta)
        if delta.keep > len(self.data):
            raise Damaged(f"{delta.role} lacks its beginning")
        kept = self.data[delta.keep // BLOCK_BYTES * BLOCK_BYTES : delta.keep]
        after = continued(self.fingerprint, kept, delta.keep, tail)
        if after.digest != delta.digest:
            raise Damaged(f"{delta.role} is not what was saved")
        return after

    def change(self, delta: FileDelta, after: Fingerprint) -> None:
        tail = self._tail_after(delta)
        self.name, self.fingerprint = delta.name, after
        del self.data[delta.keep :]
        self.data += tail

    def _tail_after(self, delta: FileDelta) -> bytearray:
        """Not more than was announced: a copy of a few bytes may stand for many."""
        sizes = (len(op) if isinstance(op, bytes) else op[1] for op in delta.tail)
        if delta.keep + sum(sizes) != delta.size:
            raise Damaged(f"{delta.role} is not as long as it should be")
        tail = bytearray()
        with memoryview(self.data) as old:
            for op in delta.tail:
                tail += op if isinstance(op, bytes) else old[op[0] : op[0] + op[1]]
        return tail


class Journal:
    """Reads a log entry by entry. What is damaged is passed over, and named in `problems`."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.number = 0
        """Of the last entry, whatever it holds."""
        self.files: dict[str, StoredFile] = {}
        """After the last whole turn."""
        self.about: About | None = None
        self.states: set[bytes] = set()
        """Of every whole turn: whoever has one of these has nothing that the log lacks."""
        self.problems: list[str] = []
        """What is wrong with the entries after the last whole turn."""
        self.begun: Entry | None = None
        """The beginning of a turn that was never saved."""
        self._parts: list[Entry] = []

    def add(self, raw: Data) -> None:
        """Raises Unsupported if a newer geminorum has written the entry."""
        self.number += 1
        try:
            self._take(decoded(raw, self.session))
        except Damaged as error:
            self._parts = []
            self.problems.append(f"entry {self.number} is damaged: {error}")

    def extend(self, entries: Iterable[Data]) -> None:
        for raw in entries:
            self.add(raw)

    @property
    def known(self) -> dict[str, KnownFile]:
        """The files as digests: what the next turn is compared with."""
        return {role: KnownFile(one.name, one.fingerprint) for role, one in self.files.items()}

    @property
    def state(self) -> bytes:
        return state_of(self.known)

    def known_in_pieces(self) -> dict[str, KnownFile]:
        """The same for whoever is to save more turns, so that they are short."""
        return {
            role: known._replace(pieces=pieces_of(bytes(self.files[role].data)))
            for role, known in self.known.items()
        }

    def _take(self, entry: Entry) -> None:
        if entry.kind == "begun":
            self.begun, self._parts = entry, []
            return
        if entry.part == 1:
            self._parts = []
        if not self._follows(entry):
            self._parts = []
            raise Damaged("parts of its turn are missing")
        self._parts.append(entry)
        if entry.part == entry.parts:
            parts, self._parts = self._parts, []
            self._apply(turn_in(part.data for part in parts))
            self.about, self.begun, self.problems = entry.about, None, []

    def _follows(self, entry: Entry) -> bool:
        before = self._parts
        same = not before or (before[-1].turn, before[-1].parts) == (entry.turn, entry.parts)
        return same and entry.part == len(before) + 1 <= entry.parts

    def _apply(self, record: TurnRecord) -> None:
        if record.base != self.state:
            raise Damaged("it continues a turn that is not here")
        if sum(delta.size for delta in record.files) > MAX_SESSION_BYTES:
            raise Damaged("it is larger than a session may be")
        files = {one.role: self.files.get(one.role) or StoredFile() for one in record.files}
        # All are checked before the first is changed: a turn is whole or not there.
        after = [files[delta.role].fingerprint_after(delta) for delta in record.files]
        for delta, fingerprint in zip(record.files, after, strict=True):
            files[delta.role].change(delta, fingerprint)
        self.files = files
        self.states.add(self.state)
