"""The files that the agent wrote, from events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from geminorum.events import Event, Init, ToolResult, ToolUse

WRITING_TOOLS = frozenset({"write_file", "replace", "edit"})


class FileChange(msgspec.Struct, frozen=True):
    """A file that a tool reported as written."""

    path: str
    """Absolute if the working folder is known."""
    tool: str


class FileFold:
    """Remembers calls until their results come: only a success counts as written."""

    def __init__(self, cwd: str | None = None) -> None:
        self._cwd = cwd
        self._pending: dict[str, FileChange] = {}
        self.changes: list[FileChange] = []

    def add(self, event: Event) -> None:
        if isinstance(event, ToolUse):
            self._add_call(event)
        elif isinstance(event, ToolResult):
            self._add_result(event)
        elif isinstance(event, Init) and event.cwd:
            self._cwd = event.cwd

    def _add_call(self, call: ToolUse) -> None:
        path = _path(call.input) if call.name in WRITING_TOOLS else None
        if path and call.id:
            self._pending[call.id] = FileChange(str(Path(self._cwd or "", path)), call.name)

    def _add_result(self, answer: ToolResult) -> None:
        change = self._pending.pop(answer.id or "", None)
        # A call that was cancelled reports success too, but never without an error type.
        if change and answer.status == "success" and answer.error_type is None:
            self.changes.append(self._as_told(change, answer.content or ""))

    def _as_told(self, change: FileChange, content: str) -> FileChange:
        """In plan mode, the CLI writes to a folder of its own whatever path it is given; only what
        it tells the model names that folder."""
        given = change.path.removeprefix(str(Path(self._cwd or "", "")))
        tail = re.escape(str(Path("plans", given.lstrip("/\\"))))
        told = re.search(rf"file: (.*?[\\/]{tail})", content.partition("\n")[0])
        return msgspec.structs.replace(change, path=told[1]) if told else change


def files(events: Iterable[Event], cwd: str | None = None) -> list[FileChange]:
    """Returns the files that were written, in order."""
    fold = FileFold(cwd)
    for event in events:
        fold.add(event)
    return fold.changes


def _path(arguments: dict[str, Any]) -> str | None:
    path = arguments.get("file_path") or arguments.get("path")
    return path if isinstance(path, str) else None
