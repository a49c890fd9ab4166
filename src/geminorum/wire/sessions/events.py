"""Saved messages to the events that the same conversation gave while it ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from geminorum.events import Error, Event, Text, Thinking, ToolResult, ToolUse, Unknown, UserMessage
from geminorum.permissions import TOOL_GROUPS
from geminorum.wire.clock import Clock
from geminorum.wire.literal import unguarded
from geminorum.wire.sessions.records import (
    SavedCall,
    SavedMessage,
    SavedThought,
    is_context,
    text_of,
)

_DENIED = ("denied by policy", "requires user confirmation", "was canceled by the user")
"""What the CLI tells the model about a call that it did not make."""
_GUARDED = frozenset(name for names in TOOL_GROUPS.values() for name in names)
"""Tools that every CLI has: one that is not found was refused altogether, and so not offered."""


def events_of(message: SavedMessage, session_id: str | None = None) -> Iterator[Event]:
    """A message's events: thoughts, then text, then each call and each result."""
    at = Clock().milliseconds(message.timestamp)
    common: dict[str, Any] = {"timestamp": at, "session_id": session_id, "frame": message.raw}
    match message.type:
        case "user":
            yield from _said(message, common)
        case "gemini":
            yield from _answered(message, common)
        case "error" | "warning":
            code = "WARNING" if message.type == "warning" else "SAVED_ERROR"
            yield Error(text_of(message.content), code, recoverable=True, **common)
        case _:
            yield Unknown(kind=message.type, **common)


def _said(message: SavedMessage, common: dict[str, Any]) -> Iterator[Event]:
    if is_context(message):
        yield Unknown(kind="session_context", **common)
    elif text := text_of(message.display_content or message.content):
        yield UserMessage(unguarded(text), **common)
    elif not _only_answers_tools(message.content):
        yield Unknown(kind="user", **common)


def _only_answers_tools(content: Any) -> bool:
    """What a tool answered stands with its call already."""
    return isinstance(content, list) and all(
        isinstance(part, dict) and "functionResponse" in part for part in content
    )


def _answered(message: SavedMessage, common: dict[str, Any]) -> Iterator[Event]:
    for thought in message.thoughts or _thoughts_in(message.content):
        yield Thinking(thought_text(thought), **common)
    if text := text_of(message.content):
        yield Text(text, **common)
    calls = message.tool_calls or _calls_in(message.content)
    for call in calls:
        yield ToolUse(call.name, call.id or None, call.args or {}, **common)
    for call in calls:
        if call.result is not None or call.status in ("success", "error", "cancelled"):
            yield _result(call, common)


def thought_text(thought: SavedThought) -> str:
    """As a reader sees it: what it is about, then what was thought."""
    return f"{thought.subject}: {thought.description}" if thought.subject else thought.description


def _thoughts_in(content: Any) -> list[SavedThought]:
    """From a message that the CLI has rebuilt from what it sends to the model."""
    return [
        SavedThought(description=str(part.get("text", "")))
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, dict) and part.get("thought")
    ]


def _calls_in(content: Any) -> list[SavedCall]:
    return [
        SavedCall(id=str(call.get("id", "")), name=str(call.get("name", "")), args=_args(call))
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, dict) and isinstance(call := part.get("functionCall"), dict)
    ]


def _args(call: dict[str, Any]) -> dict[str, Any]:
    args = call.get("args")
    return args if isinstance(args, dict) else {}


def _result(call: SavedCall, common: dict[str, Any]) -> ToolResult:
    told, failed = told_to_model(call)
    ended = Clock().milliseconds(call.timestamp)
    shown = call.result_display if isinstance(call.result_display, str) else None
    return ToolResult(
        id=call.id or None,
        name=call.name,
        status=_status(call, told, failed),
        output=told if shown is None or failed else shown,
        content=told,
        error_type="cancelled" if call.status == "cancelled" else None,
        # The CLI saves when all calls of an answer had ended; the answer came before them.
        duration=(ended - common["timestamp"]) / 1000 if ended > common["timestamp"] > 0 else None,
        **common,
    )


def _status(call: SavedCall, told: str, failed: bool) -> Literal["success", "error", "denied"]:
    if not failed and call.status not in ("error", "cancelled"):
        return "success"
    hidden = call.name in _GUARDED and told.startswith(f'Tool "{call.name}" not found')
    return "denied" if hidden or any(words in told for words in _DENIED) else "error"


def told_to_model(call: SavedCall) -> tuple[str, bool]:
    """What the model was told of a call, all parts of it joined, and whether it was an error."""
    responses = [_response(part) for part in _parts(call.result)]
    failed = any(response.get("error") for response in responses)
    texts = (response.get("output") or response.get("error") or "" for response in responses)
    return "\n".join(text if isinstance(text, str) else _json(text) for text in texts), failed


def _parts(result: Any) -> list[Any]:
    if result is None:
        return []
    return result if isinstance(result, list) else [result]


def _response(part: Any) -> dict[str, Any]:
    """A part's response; any other part, an image for one, stands for itself."""
    if not isinstance(part, dict):
        return {"output": part}
    inner = part.get("functionResponse")
    response = inner.get("response") if isinstance(inner, dict) else None
    if isinstance(response, dict):
        return response
    return {"output": text_of(part) or part} if inner is None else {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
