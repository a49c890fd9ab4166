"""Session files while the CLI writes them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from geminorum.events import Event, ToolResult, ToolUse
from geminorum.redaction import Redactor, own_secrets
from geminorum.sessions.places import ID_IN_NAME, projects_of
from geminorum.sessions.reading import without_secrets
from geminorum.system.regular_file import open_regular
from geminorum.system.reserve import RESERVE
from geminorum.wire.lines import Lines
from geminorum.wire.sessions.events import events_of
from geminorum.wire.sessions.records import Record, SavedMessage, message_of, messages_in, record_of

_SEARCH = 0.1
"""Seconds between two searches for files: a folder may hold thousands."""
_HEAD = 256
"""Bytes at the beginning by which a file is known again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.02


class Written(NamedTuple):
    """A message that was written, or written again."""

    message: SavedMessage
    by_subagent: bool


class FileTail:
    """What a session file gained since the last look; a file that was rewritten is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._redactor = Redactor(own_secrets())
        self._lines = Lines()
        self._offset = 0
        self._head = b""
        self._seen = (0, 0, 0)
        self.session_id: str | None = None
        self.is_subagent = False

    def messages(self) -> Iterator[SavedMessage]:
        for record, line in self._records():
            if record.session_id:
                self.session_id = record.session_id
                self.is_subagent = record.kind == "subagent"
            for raw in messages_in(record, line):
                yield without_secrets(message_of(raw), self._redactor)

    def _records(self) -> Iterator[tuple[Record, bytes]]:
        try:
            data = self._read_new()
        except OSError:
            return  # Swept away by another CLI; what was read stays counted.
        # A document is written anew each time, a log grows line by line.
        pieces = self._lines.feed(data) if self._is_log else [data]
        for piece in filter(None, pieces):
            if (record := record_of(piece)) is not None:
                yield record, piece

    @property
    def _is_log(self) -> bool:
        return self.path.suffix == ".jsonl"

    def _read_new(self) -> bytes:
        if not self.path.is_file():
            raise FileNotFoundError  # To open a pipe would wait for somebody to write.
        now = self.path.stat()
        seen = (now.st_ino, now.st_size, now.st_mtime_ns)
        if seen == self._seen:
            return b""
        with open_regular(self.path) as file:
            head = file.read(_HEAD)
            if self._is_another(now, head):
                self._offset, self._lines = 0, Lines()
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        self._seen, self._head = seen, head
        return data

    def _is_another(self, now: os.stat_result, head: bytes) -> bool:
        """A log only grows; what has another beginning, or less in it, was written anew."""
        grown = now.st_ino == self._seen[0] and now.st_size >= self._offset
        return not (self._is_log and grown and head.startswith(self._head))


class SessionTail:
    """The messages of one session, in whichever files the CLI writes them.

    A resumed session goes on in its old file: `skip_present` passes over what earlier runs wrote.
    """

    def __init__(self, home: Path, cwd: Path) -> None:
        self._home, self._cwd = home, cwd
        self._files: dict[Path, FileTail] = {}
        self._searched = -_SEARCH
        # By id, not by time: clocks step, and an old document is copied to a new log.
        self._skipped: set[str] = set()

    @property
    def found(self) -> bool:
        """Is there a file of this session?"""
        return bool(self._files)

    def skip_present(self, session_id: str) -> None:
        """Skips the messages that are there by now, also when the CLI writes them again."""
        present = self.read(session_id, thoroughly=True)
        self._skipped |= {message.id for message, _ in present if message.id}

    def skip_import(self, path: Path) -> None:
        """Skips the messages of a session file that the CLI copies into this session."""
        self._skipped |= {message.id for message in FileTail(path).messages() if message.id}

    def read(self, session_id: str, *, thoroughly: bool = False) -> list[Written]:
        """What was written since the last look; new files are looked for now and then only."""
        searches = thoroughly or time.monotonic() - self._searched >= _SEARCH
        if not searches and not self._files:
            return []
        with RESERVE.spend():
            return self._read(session_id, searches=searches)

    def _read(self, session_id: str, *, searches: bool) -> list[Written]:
        if searches:
            self._searched = time.monotonic()
            with suppress(OSError):  # A folder that cannot be listed now may be the next time.
                for path in self._paths(session_id):
                    self._files.setdefault(path, FileTail(path))
        return [
            Written(message, file.is_subagent)
            for file in self._files.values()
            for message in file.messages()
            # Two ids may begin alike, and then share a file.
            if (file.is_subagent or file.session_id in (None, session_id))
            and message.id not in self._skipped
        ]

    def _paths(self, session_id: str) -> list[Path]:
        # Found once, the folder is kept: to look for it takes time.
        found = {path.parent for path in self._files if path.parent.name == "chats"}
        chats = found or {project / "chats" for project in projects_of(self._home, self._cwd)}
        patterns = (f"session-*-{session_id[:ID_IN_NAME]}*.json*", f"{session_id}/*.json*")
        return [path for folder in chats for name in patterns for path in folder.glob(name)]


class Novelties:
    """Events that were not told yet: a message is written again when its tools have answered."""

    def __init__(self) -> None:
        self._told: set[tuple[object, ...]] = set()

    def of(self, messages: Iterable[SavedMessage], session_id: str | None) -> Iterator[Event]:
        for message in messages:
            for event in events_of(message, session_id):
                key = (message.id or bytes(message.raw), event.type, _own_mark(event))
                if key not in self._told:
                    self._told.add(key)
                    yield event


def _own_mark(event: Event) -> object:
    """What tells an event from others of its kind in one message."""
    if isinstance(event, ToolUse | ToolResult):
        return event.id
    return hash(getattr(event, "text", None))


async def events_in(path: Path) -> AsyncGenerator[Event, None]:
    """The events of a session file, those that are there and those to come."""
    file, new, pause = FileTail(path), Novelties(), _FIRST_PAUSE
    while True:
        written = list(file.messages())
        events = list(new.of(written, file.session_id))
        for event in events:
            yield event
        pause = _FIRST_PAUSE if events else min(pause * 1.5, _LONGEST_PAUSE)
        await asyncio.sleep(pause)
