"""Is a record of a session file written as the CLIs that we know write it?

Asked before a file is repaired: what is moved or left out must not stand for something that only a
newer CLI understands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OPERATIONS = {"$set", "$rewindTo"}
_MARKS = {
    *("toolCalls", "functionCall", "functionResponse"),
    *("tool_calls", "function_call", "function_response"),
}
"""Where a call or its response stands, in both spellings of Google's."""
_DATA = {"args", "response", "resultDisplay", "inlineData"}
"""What tools and the model wrote: any key may stand in it."""
_CALL_KEYS = {
    *("id", "name", "args", "result", "status", "timestamp", "agentId"),
    *("displayName", "description", "resultDisplay", "renderOutputAsMarkdown"),
}


def is_known(record: Any) -> bool:
    """False where calls or responses stand in places, or under names, that we do not know."""
    if not isinstance(record, dict):
        return True  # Torn, or nothing; the CLI passes over it as well.
    if any(key.startswith("$") and key not in _OPERATIONS for key in record):
        return False
    marks = 0
    for message in _messages_in(record):
        found = _marks_in_place(message)
        if found is None:
            return False
        marks += found
    return marks == _all_marks(record)


def _messages_in(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    change = record.get("$set")
    holder = change if isinstance(change, dict) else record
    for message in [record] if "id" in record else _list(holder.get("messages")):
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            yield message


def _marks_in_place(message: dict[str, Any]) -> int | None:
    """How many there are where they belong; None where one of them cannot be told from another."""
    kind, calls = message.get("type"), _list(message.get("toolCalls"))
    parts = [part for part in _list(message.get("content")) if isinstance(part, dict)]
    results = [part for call in calls if isinstance(call, dict) for part in _parts_of(call)]
    marked = [part for part in (*parts, *results) if not _MARKS.isdisjoint(part)]
    if not all(map(_has_id, marked)) or not all(map(_is_known_call, calls)):
        return None
    marks = ("toolCalls" in message) + len(marked)
    if calls and kind != "gemini":
        return None
    return None if marked and kind not in ("user", "gemini") else marks


def _parts_of(call: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in _list(call.get("result")) if isinstance(part, dict)]


def _has_id(part: dict[str, Any]) -> bool:
    """Is it one call or one response, and does it say which?"""
    marks = _MARKS & part.keys()
    inner = part.get("functionCall", part.get("functionResponse"))
    return len(marks) == 1 and isinstance(inner, dict) and isinstance(inner.get("id"), str)


def _is_known_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str) or not call["id"]:
        return False
    # Without a result, one of the others may be its new name.
    return "result" in call or call.keys() <= _CALL_KEYS


def _all_marks(record: dict[str, Any]) -> int:
    # A list of what is still to be read: JSON may be nested deeper than Python calls itself.
    marks, rest = 0, list[Any]([record])
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        elif isinstance(value, dict):
            marks += len(_MARKS & value.keys())
            rest += (inner for key, inner in value.items() if key not in _DATA)
    return marks


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
