"""A session file to every request that was ever made in it.

Not `Session.requests`: that is the conversation as it stands. What was rewound, or compressed into
a summary, is no longer in it, and had to be paid all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from sys import maxsize
from typing import NamedTuple

import msgspec

from geminorum.events import ModelRequest, Tokens
from geminorum.runtime import typed
from geminorum.system.regular_file import open_regular
from geminorum.wire.clock import Clock
from geminorum.wire.sessions.records import Record, SavedMessage, message_of, messages_in, record_of


class Request(NamedTuple):
    made: ModelRequest
    session_id: str


class _Answer(msgspec.Struct):
    """As much of a message as a bill needs; contents are passed over, not built."""

    id: str | None = None
    timestamp: str = ""
    model: str | None = None
    tokens: Tokens | None = None


class _Line(Record, kw_only=True, rename="camel"):
    """A line of the log that may be an answer itself: one decoding tells both."""

    timestamp: str = ""
    model: str | None = None
    tokens: Tokens | None = None


_line_decoder = typed.decoder(_Line)
_answer_decoder = typed.decoder(_Answer)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass
class Bill:
    """The requests of one file, by the id of the answer: that is written again after its tools."""

    path: Path
    session_id: str
    started: int = maxsize
    """When the session was begun; a file that does not say so is taken for the youngest."""
    written: int = maxsize
    """When the file was begun: later than `started` in a fork, which keeps the time of that."""
    requests: dict[str, Request] = field(default_factory=dict)
    records: int = 0
    broken: int = 0
    """Lines that are no record; one that is still being written is not among them."""
    _clock: Clock = field(default_factory=Clock)

    def add(self, line: bytes) -> None:
        found = None if line.isspace() else _answers(line)
        if found is None:
            self.broken += line.endswith(b"\n") and not line.isspace()
            return
        record, answers = found
        self.records += 1
        self._note(record)
        for number, answer in enumerate(answers):
            self._count(answer, number)

    def _note(self, record: Record) -> None:
        # Two sessions whose ids begin alike may share a file: what follows belongs to the second.
        changed = record.change.session_id if record.change else None
        self.session_id = record.session_id or changed or self.session_id
        if record.start_time and self.started == maxsize:
            self.started = self._clock.milliseconds(record.start_time)
            self.written = Clock().milliseconds(record.last_updated)

    def _count(self, answer: _Answer | _Line | SavedMessage, number: int) -> None:
        if answer.model and answer.tokens:
            counts = msgspec.structs.asdict(answer.tokens)
            # One that says nothing is as late as the one before, or as the session's beginning.
            when = self._clock.milliseconds(answer.timestamp)
            made = ModelRequest(**counts, model=answer.model, timestamp=when)
            key = answer.id or f"{self.path}#{number}"
            owner = self.requests[key].session_id if key in self.requests else self.session_id
            self.requests[key] = Request(made, owner)

    @cached_property
    def parent(self) -> str | None:
        """The session that a subagent works for: its files lie in a folder of that name."""
        folder = self.path.parent
        return folder.name if folder.parent.name == "chats" else None

    @property
    def age(self) -> tuple[int, int, str]:
        """Sorts originals before their forks."""
        return self.started, self.written, str(self.path)


def bill_of(path: Path) -> Bill:
    """What a file tells, of any version of the CLI. OSError where it cannot be read."""
    bill = Bill(path, path.stem)
    with open_regular(path) as file:
        # The document of older versions begins like this, and a log never does.
        if file.readline().strip() != b"{":
            file.seek(0)
            for line in file:
                bill.add(line)
        if not bill.records:
            file.seek(0)
            bill.add(file.read())
    return bill


def _answers(
    line: bytes,
) -> tuple[Record, Sequence[_Answer | _Line | SavedMessage]] | None:
    try:
        record = _line_decoder.decode(line)
        if record.id is not None:
            return record, [record]
        return record, [_answer_decoder.decode(raw) for raw in messages_in(record, line)]
    except _UNREADABLE:
        # Something in it has not the shape that it should have; the rest may be fine.
        salvaged = record_of(line)
    if salvaged is None:
        return None
    return salvaged, [message_of(raw) for raw in messages_in(salvaged, line)]
