"""A tool call that wrote a file to the change it made, as a unified diff."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

import msgspec

from geminorum.events import ToolResult
from geminorum.views.files import WRITING_TOOLS
from geminorum.views.transcript import TranscriptCall
from geminorum.wire.sessions.records import message_of

SHOWN_BY_DIFF = frozenset({"content", "old_string", "new_string"})
"""Arguments that a reader finds again in the diff."""
_MAX_COMPARED_LINES = 1000
_MAX_LINES_OF_PIECE = 5000
"""Of a replaced piece and its replacement together."""


def diff_of(call: TranscriptCall) -> str | None:
    """The change; None for a call that changed nothing, and for tools that write no files.

    A saved session knows the whole change. A stream knows what was asked for: the replaced piece
    without its surroundings, the new content without the old.
    """
    if call.use.name not in WRITING_TOOLS or call.status in ("error", "denied"):
        return None
    return (_saved_diff(call.result) if call.result else None) or _asked_diff(call.use.input)


def proposed_diff(tool: str, arguments: dict[str, Any], before: str | None = None) -> str | None:
    """The change that a tool would make to a file; None for tools that write none.

    `before`: what is in the file now. Unknown, a whole new content is shown as all new.
    """
    if tool not in WRITING_TOOLS or _is_ambiguous(arguments):
        return None
    content = arguments.get("content")
    if before is None or not isinstance(content, str) or _is_long(before) or _is_long(content):
        return _asked_diff(arguments)
    name = str(arguments.get("file_path") or "file").replace("\n", " ")
    return "\n".join(unified_diff(_lines(before), _lines(content), name, name, lineterm=""))


def _is_ambiguous(arguments: dict[str, Any]) -> bool:
    """Does it name two changes, of which the tool makes one and a reader might see the other?"""
    return "content" in arguments and not arguments.keys().isdisjoint(("old_string", "new_string"))


def _is_long(text: str) -> bool:
    # A comparison of many lines takes its time, and a model chooses them.
    return text.count("\n") > _MAX_COMPARED_LINES


def head_and_body(diff: str) -> tuple[list[str], list[str]]:
    """The lines that name the files, and those of the change, which may begin with `++ ` too."""
    lines = diff.split("\n")
    start = next((at for at, line in enumerate(lines) if line.startswith("@@")), len(lines))
    return (lines[:start], lines[start:]) if start < len(lines) else ([], lines)


def counts(diff: str) -> tuple[int, int]:
    """How many lines came and went."""
    _, lines = head_and_body(diff)
    return sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines)


def _saved_diff(result: ToolResult) -> str | None:
    if result.frame is msgspec.UNSET:
        return None
    for call in message_of(result.frame).tool_calls or ():
        display = call.result_display
        if call.id == (result.id or "") and isinstance(display, dict):
            diff = display.get("fileDiff")
            return _without_index(diff) if isinstance(diff, str) and diff.strip() else None
    return None


def _without_index(diff: str) -> str:
    """Without the line that only repeats the file's name, and its underline."""
    head, _, rest = diff.partition("\n--- ")
    return f"--- {rest}".rstrip("\n") if head.startswith("Index:") and rest else diff.rstrip("\n")


def _asked_diff(arguments: dict[str, Any]) -> str | None:
    if _is_ambiguous(arguments):
        return None
    path = str(arguments.get("file_path") or arguments.get("path") or "file")
    match arguments:
        case {"old_string": str(old), "new_string": str(new)}:
            return "\n".join(_lines_of_diff(old, new, path))
        case {"content": str(content)}:
            return "\n".join(_lines_of_diff("", content, path))
        case _:
            return None


def _lines_of_diff(old: str, new: str, path: str) -> Iterator[str]:
    name = path.replace("\n", " ")
    if old and new and old.count("\n") + new.count("\n") > _MAX_LINES_OF_PIECE:
        return _uncompared(_lines(old), _lines(new), name)
    # A piece of a file may differ only in white space or not at all; all its lines are shown.
    return unified_diff(_lines(old), _lines(new), name, name, lineterm="", n=10_000)


def _uncompared(old: list[str], new: list[str], name: str) -> Iterator[str]:
    """All that goes, then all that comes."""
    yield from (f"--- {name}", f"+++ {name}", f"@@ -1,{len(old)} +1,{len(new)} @@")
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else lines
