"""Which records of a session file count, and where they lie: the fold of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from geminorum.wire.sessions.records import (
    Record,
    Top,
    is_context,
    is_nameless,
    message_of,
    record_of,
)

_ANSWER = "_response"
"""What the CLI adds to the id of a call to name the answer, when it starts a conversation anew."""


class Place(NamedTuple):
    """Where a message lies: a line, and which of its messages."""

    offset: int
    length: int
    ordinal: int
    is_nameless: bool = False
    """Does the message say nothing of its id? It may take the place of another."""


@dataclass(slots=True)
class SessionIndex:
    """The messages of a conversation, by where they lie: its size is theirs, not the file's.

    The CLI loses details when a session is resumed within the minute in which it was begun: it
    starts the conversation anew from what the model needs, without tool results, thoughts, tokens
    and model. The fuller records still stand in the log, under the same ids, and are kept.
    """

    top: Top = field(default_factory=Top)
    places: dict[str, Place] = field(default_factory=dict)
    _full: dict[str, Place] = field(default_factory=dict)
    """Every message that was written on a line of its own, by id."""
    _after_top: bool = False

    def add(self, line: bytes, offset: int) -> bool:
        """Takes in one line of a log, or a whole document; False where it is no record."""
        record = record_of(line)
        if record is None:
            return False
        if record.rewind_to is not None:
            self._rewind(record.rewind_to)
        elif record.id is not None:
            place = Place(offset, len(line), 0)
            self.places[record.id] = self._full[record.id] = place
        elif is_nameless(record):
            self.places[f"@{offset}"] = Place(offset, len(line), 0, is_nameless=True)
        else:
            self._change(record, line, offset)
        self._after_top = record.id is None and record.session_id is not None
        return True

    def _change(self, record: Record, line: bytes, offset: int) -> None:
        content = record.change or record
        self.note(content)
        if content.messages is None or self._is_stub(content.messages):
            return
        if record.change:
            self.places = {}
        for ordinal, raw in enumerate(content.messages):
            self._place(raw, Place(offset, len(line), ordinal))

    def _is_stub(self, raws: list[msgspec.Raw]) -> bool:
        """What the CLI writes at each start, before it knows that it goes on with a session."""
        return (
            self._after_top
            and bool(self.places)
            and all(is_context(message_of(raw)) for raw in raws)
        )

    def _place(self, raw: msgspec.Raw, place: Place) -> None:
        record = record_of(raw)
        key = (record and record.id) or f"#{place.ordinal}"
        # What a tool answered is told a second time; the full record of the call has it.
        if key.removesuffix(_ANSWER) == key or key.removesuffix(_ANSWER) not in self._full:
            self.places[key] = self._full.get(key, place)

    def _rewind(self, message_id: str) -> None:
        if message_id not in self.places:
            self.places.clear()
        # From the end: a log may take back one message after the other, behind any number.
        while self.places and self.places.popitem()[0] != message_id:
            pass

    def note(self, record: Top) -> None:
        """Takes in what a record says of the whole session."""
        began = self.top.start_time
        for name in Top.__struct_fields__:
            if value := getattr(record, name):
                setattr(self.top, name, value)
        # Each resumption within the minute claims to be the start.
        self.top.start_time = began or self.top.start_time
