"""Session files while the CLI writes them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from geminorum.events import Event, ToolResult, ToolUse
from geminorum.sessions.places import ID_IN_NAME, projects_of
from geminorum.wire.clock import Clock
from geminorum.wire.lines import Lines
from geminorum.wire.saved_events import events_of
from geminorum.wire.session_file import Record, SavedMessage, message_of, messages_in, record_of

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.02


class Written(NamedTuple):
    """A message that was written, or written again."""

    message: SavedMessage
    by_subagent: bool


class FileTail:
    """What a session file gained since the last look; a file that was rewritten is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = Lines()
        self._offset = 0
        self._inode = 0
        self.session_id: str | None = None
        self.is_subagent = False

    def messages(self) -> Iterator[SavedMessage]:
        for record, line in self._records():
            if record.session_id:
                self.session_id = record.session_id
                self.is_subagent = record.kind == "subagent"
            for raw in messages_in(record, line):
                yield message_of(raw)

    def _records(self) -> Iterator[tuple[Record, bytes]]:
        try:
            data = self._fresh()
        except OSError:
            return  # Swept away by another CLI; what was read stays counted.
        # A document is written anew each time, a log grows line by line.
        for piece in self._lines.feed(data) if self._is_log else [data]:
            if (record := record_of(piece)) is not None:
                yield record, piece

    @property
    def _is_log(self) -> bool:
        return self.path.suffix == ".jsonl"

    def _fresh(self) -> bytes:
        with self.path.open("rb") as file:
            now = os.fstat(file.fileno())
            if now.st_ino != self._inode or now.st_size < self._offset or not self._is_log:
                self._offset, self._inode, self._lines = 0, now.st_ino, Lines()
            file.seek(self._offset)
            data = file.read(now.st_size - self._offset)
        self._offset += len(data)
        return data


class SessionTail:
    """The messages of one session since a moment, in whichever files the CLI writes them.

    A resumed session goes on in its old file, so what lies before the moment is not told.
    """

    def __init__(self, home: Path, cwd: Path, since: int = 0) -> None:
        self._home, self._cwd, self._since = home, cwd, since
        self._files: dict[Path, FileTail] = {}

    @property
    def found(self) -> bool:
        """Is there a file of this session?"""
        return bool(self._files)

    def read(self, session_id: str) -> list[Written]:
        clock = Clock()
        for path in self._paths(session_id):
            self._files.setdefault(path, FileTail(path))
        return [
            Written(message, file.is_subagent)
            for file in self._files.values()
            for message in file.messages()
            # Two ids may begin alike, and then share a file.
            if (file.is_subagent or file.session_id in (None, session_id))
            and clock.milliseconds(message.timestamp) >= self._since
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
            for number, event in enumerate(events_of(message, session_id)):
                key = (message.id, event.type, _own_id(event) or number)
                if key not in self._told:
                    self._told.add(key)
                    yield event


def _own_id(event: Event) -> str | None:
    return event.id if isinstance(event, ToolUse | ToolResult) else None


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
