"""A saved conversation, read on demand."""

from __future__ import annotations

import copy
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, overload

import msgspec

from geminorum.errors import SessionUnreadable
from geminorum.events import Done, Event, Init, ModelRequest, Usage, total_of
from geminorum.redaction import Redactor, own_secrets
from geminorum.system.regular_file import UnfitFile, open_regular
from geminorum.wire.clock import Clock
from geminorum.wire.sessions.events import events_of
from geminorum.wire.sessions.index import Place, SessionIndex
from geminorum.wire.sessions.records import (
    SavedMessage,
    Top,
    is_counted,
    message_of,
    messages_in,
    record_of,
    requests_of,
    words_of,
)
from geminorum.wire.sessions.turns import answers_in, in_turns

ID = re.compile(r"[A-Za-z0-9_-]+")
"""What the CLI takes for a session's id; nothing else can name a file or a folder."""
SUFFIXES = (".jsonl", ".json")
_LONGEST_TITLE = 80


class Session:
    """A conversation saved by the CLI. Its messages are read from the file on demand."""

    def __init__(self, path: Path, index: SessionIndex, cwd: Path | None = None) -> None:
        top = index.top
        self.path = path
        self.cwd = cwd
        """The folder it belongs to, where that is known."""
        self.id = top.session_id or path.stem
        self.kind = top.kind or "main"
        self.summary = top.summary
        self.project_hash = top.project_hash
        clock = Clock()
        self.started = clock.milliseconds(top.start_time)
        """Milliseconds since 1970."""
        self.updated = clock.milliseconds(top.last_updated)
        self.ended = clock.milliseconds(_last_word(top))
        """Like `updated`, but a fork without new messages has its original's."""
        self.messages: Messages = Messages(path, list(index.places.values()))

    def __repr__(self) -> str:
        return f"Session(id={self.id!r}, path={str(self.path)!r}, messages={len(self.messages)})"

    @property
    def title(self) -> str:
        """The CLI's summary, or the start of the first prompt."""
        return title_of(self.summary, self.messages)

    @property
    def subagents(self) -> list[Session]:
        """The sessions of its subagents; broken ones are left out."""
        return [session for file in subagent_files(self.path, self.id) for session in _loaded(file)]

    @cached_property
    def requests(self) -> tuple[ModelRequest, ...]:
        """All requests to models, in order."""
        return tuple(requests_of(self.messages).values())

    @property
    def usage(self) -> Usage:
        """Tokens that the whole conversation consumed."""
        models = dict.fromkeys(request.model for request in self.requests)
        shares = {
            name: total_of([one for one in self.requests if one.model == name]) for name in models
        }
        whole = total_of(self.requests)
        counts = {name: getattr(whole, name) for name in whole.__struct_fields__}
        calls, exact = 0, True
        for message in self.messages:
            calls += len(message.tool_calls or ())
            exact = exact and is_counted(message)
        return Usage(
            **counts, by_model=shares, tool_calls=calls, exact=exact, requests=self.requests
        )

    def excerpt(
        self, start: int = 0, stop: int | None = None, *, max_bytes: int | None = None
    ) -> Session:
        """A session with some of the messages, as if there were no others.

        From `start` until before `stop`, and no more than `max_bytes` of the file hold, but at
        least one; what its tools answered comes with a call. A long session is read in parts so.
        """
        part = copy.copy(self)
        part.__dict__.pop("requests", None)  # Those of the whole session, if they were counted.
        end = self.messages.end_of_part(start, stop, max_bytes)
        part.messages = self.messages.part(start, end)
        return part

    def events(self) -> Iterator[Event]:
        """The conversation as an event stream: `Init` first, one `Done` at the end."""
        models = [request.model for request in self.requests]
        yield Init(
            models[0] if models else None,
            str(self.cwd) if self.cwd else None,
            timestamp=self.started,
            session_id=self.id,
        )
        for message in in_turns(self.messages):
            yield from events_of(message, self.id)
        seconds = max(0, self.ended - self.started) / 1000
        yield Done(
            "success",
            usage=self.usage,
            duration=seconds,
            resume=self.id,
            timestamp=self.ended,
            session_id=self.id,
        )


def _last_word(top: Top) -> str:
    is_untouched_fork = top.forked_at and top.last_updated == top.forked_at
    return (is_untouched_fork and top.updated_before_fork) or top.last_updated


class Messages(Sequence[SavedMessage]):
    """The messages of a file; one at a time is in memory."""

    def __init__(self, path: Path, places: list[Place]) -> None:
        self._path, self._places = path, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, number: int) -> SavedMessage: ...
    @overload
    def __getitem__(self, number: slice) -> list[SavedMessage]: ...
    def __getitem__(self, number: int | slice) -> SavedMessage | list[SavedMessage]:
        if isinstance(number, slice):
            return list(self._read(self._places[number]))
        return next(self._read([self._places[number]]))

    def __iter__(self) -> Iterator[SavedMessage]:
        return self._read(self._places)

    def part(self, start: int, stop: int) -> Messages:
        """Those in between, without reading them."""
        return Messages(self._path, self._places[start:stop])

    def end_of_part(self, start: int, stop: int | None, max_bytes: int | None) -> int:
        """Where a part ends that has room for so much, and takes no tool's answer from its call."""
        end = self._end_by_size(start, len(self) if stop is None else stop, max_bytes)
        while 0 < end < len(self) and _only_answers(self[end]):
            end += 1
        return end

    def _end_by_size(self, start: int, stop: int, max_bytes: int | None) -> int:
        end = min(stop, len(self))
        if max_bytes is None:
            return end
        # Of a document, all messages lie in one line.
        shares = Counter(place.offset for place in self._places)
        room = max_bytes
        for number in range(start, end):
            place = self._places[number]
            room -= place.length // shares[place.offset]
            if room < 0 and number > start:
                return number
        return end

    def _read(self, places: list[Place]) -> Iterator[SavedMessage]:
        with opened(self._path) as file:
            yield from messages_at(file, places)


def _only_answers(message: SavedMessage) -> bool:
    return message.type == "user" and bool(answers_in(message.content))


def messages_at(file: IO[bytes], places: Iterable[Place]) -> Iterator[SavedMessage]:
    """The messages that lie there, one at a time."""
    # Many messages may lie in one line, and later ones among them; it is taken apart once.
    shared: dict[int, list[msgspec.Raw]] = {}
    redactor = Redactor(own_secrets())
    for place in places:
        raws = shared.get(place.offset) or _raws_at(file, place)
        if len(raws) > 1:
            shared[place.offset] = raws
        if place.ordinal >= len(raws):
            hint = "load it again: older CLIs write the whole file anew at every turn"
            raise SessionUnreadable("the file has changed since it was loaded", hint=hint)
        message = message_of(raws[place.ordinal])
        if place.is_nameless:
            message.type = None
        yield without_secrets(message, redactor)


def _raws_at(file: IO[bytes], place: Place) -> list[msgspec.Raw]:
    file.seek(place.offset)
    line = file.read(place.length)
    record = record_of(line)
    return messages_in(record, line) if record else []


def without_secrets(message: SavedMessage, redactor: Redactor) -> SavedMessage:
    """The message; keys are blacked out of what neither a person nor the model has said."""
    if message.type in ("user", "gemini"):
        return message
    text = bytes(message.raw).decode("utf-8", "replace")
    clean = redactor.text(text)
    return message if clean == text else message_of(clean.encode())


def load(path: str | os.PathLike[str], cwd: Path | None = None) -> Session:
    """The session in a file, of any version of the CLI; broken lines are passed over."""
    file = Path(path)
    with opened(file) as lines:
        index = index_of(lines)
    if index is None:
        raise SessionUnreadable(f"{str(file)!r} holds no session")
    return Session(file, index, cwd)


def index_of(file: IO[bytes]) -> SessionIndex | None:
    """Where the messages of a file lie; None where it holds no session."""
    index = SessionIndex()
    for line, offset in lines_of(file):
        index.add(line, offset)
    if _holds_nothing(index):
        # No line of it says anything: perhaps the document of older versions, over many lines.
        file.seek(0)
        index = SessionIndex()
        index.add(file.read(), 0)
    return None if _holds_nothing(index) else index


def _holds_nothing(index: SessionIndex) -> bool:
    return index.top.session_id is None and not index.places


def lines_of(file: IO[bytes], longest: int = -1) -> Iterator[tuple[bytes, int]]:
    """Each line and where it begins; what is longer than `longest` comes in pieces."""
    offset = 0
    while line := file.readline(longest):
        yield line, offset
        offset += len(line)


def title_of(summary: str | None, messages: Iterable[SavedMessage]) -> str:
    """One line that tells a session from others."""
    line = " ".join((summary or next(filter(None, map(words_of, messages)), "")).split())
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1] + "…"


def subagent_files(path: Path, session_id: str) -> list[Path]:
    """The files of the agents that a session started; the id names their folder beside it."""
    if not ID.fullmatch(session_id) or path.parent.name != "chats":
        return []  # An id is read from a file: it must not lead anywhere else.
    folder = path.parent / session_id
    if folder.is_symlink():
        return []
    return sorted(file for file in folder.glob("*.json*") if file.suffix in SUFFIXES)


def _loaded(path: Path) -> list[Session]:
    try:
        return [load(path)]
    except SessionUnreadable:
        return []


def opened(path: Path) -> IO[bytes]:
    """The file, to be read; SessionUnreadable where there is none."""
    try:
        return open_regular(path)
    except UnfitFile as error:
        raise SessionUnreadable(f"{str(path)!r} is not a file") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SessionUnreadable(f"cannot read {str(path)!r}: {why}") from error
