"""Converts events to a transcript: entries for a page to show one below the other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from geminorum import events as ours
from geminorum.adapter_parts import last_words


class _Entry(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", rename="camel", omit_defaults=True
):
    timestamp: int = 0
    """Milliseconds since 1970; 0 if unknown."""


class InitEntry(_Entry, frozen=True, tag="init"):
    """The run has started."""

    session_id: str | None = None
    model: str | None = None


class UserEntry(_Entry, frozen=True, tag="user"):
    """The prompt."""

    text: str


class AssistantEntry(_Entry, frozen=True, tag="assistant"):
    """A complete message of the agent."""

    text: str


class ThinkingEntry(_Entry, frozen=True, tag="thinking"):
    text: str


class ToolCallEntry(_Entry, frozen=True, tag="tool_call"):
    name: str
    id: str | None = None
    input: dict[str, Any] = {}


class ToolResultEntry(_Entry, frozen=True, tag="tool_result"):
    id: str | None = None
    name: str | None = None
    text: str = ""
    status: Literal["success", "error", "denied"] = "success"


class SystemEntry(_Entry, frozen=True, tag="system"):
    """A message beside the conversation: a warning, an error, an unknown event."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class ResultEntry(_Entry, frozen=True, tag="result"):
    """How the run ended."""

    status: ours.Status
    usage: ours.Usage | None = None
    cost_usd: Decimal | None = None
    duration: float = 0.0


class StderrEntry(_Entry, frozen=True, tag="stderr"):
    """The program's stderr, without routine noise."""

    text: str


TranscriptEntry: TypeAlias = (
    InitEntry
    | UserEntry
    | AssistantEntry
    | ThinkingEntry
    | ToolCallEntry
    | ToolResultEntry
    | SystemEntry
    | ResultEntry
    | StderrEntry
)


def build_transcript(events: Iterable[ours.Event], stderr: str = "") -> list[TranscriptEntry]:
    """Returns the run for display: whole messages, no deltas, the result last."""
    entries = [entry for event in events if (entry := _entry(event)) is not None]
    if told := last_words(stderr):
        # Before the result: a reader from the bottom finds the outcome first.
        at = len(entries) - 1 if entries and isinstance(entries[-1], ResultEntry) else len(entries)
        entries.insert(at, StderrEntry(text=told))
    return entries


def _entry(event: ours.Event) -> TranscriptEntry | None:
    at = event.timestamp
    match event:
        case ours.TextDelta():
            return None
        case ours.Init():
            return InitEntry(session_id=event.session_id, model=event.model, timestamp=at)
        case ours.UserMessage():
            return UserEntry(text=event.text, timestamp=at)
        case ours.Text():
            return AssistantEntry(text=event.text, timestamp=at)
        case ours.Thinking():
            return ThinkingEntry(text=event.text, timestamp=at)
        case ours.ToolUse():
            return ToolCallEntry(name=event.name, id=event.id, input=event.input, timestamp=at)
        case ours.ToolResult():
            return _tool_result(event)
        case ours.Done():
            return _result(event)
        case ours.Error() | ours.PermissionRequest() | ours.PermissionDecision() | ours.Unknown():
            return _aside(event)
        case _:
            assert_never(event)


def _tool_result(event: ours.ToolResult) -> ToolResultEntry:
    return ToolResultEntry(
        id=event.id,
        name=event.name,
        text=_shown(event.output),
        status=event.status,
        timestamp=event.timestamp,
    )


def _result(event: ours.Done) -> ResultEntry:
    return ResultEntry(
        status=event.status,
        usage=event.usage,
        cost_usd=event.cost.usd if event.cost else None,
        duration=event.duration,
        timestamp=event.timestamp,
    )


def _aside(
    event: ours.Error | ours.PermissionRequest | ours.PermissionDecision | ours.Unknown,
) -> SystemEntry:
    match event:
        case ours.Error():
            level: Literal["warning", "error"] = "warning" if event.recoverable else "error"
            return SystemEntry(text=event.message, level=level, timestamp=event.timestamp)
        case ours.PermissionRequest():
            answer = f": {event.decision}" if event.decision else ""
            text = f"{event.name} asks for permission{answer}"
            return SystemEntry(text=text, timestamp=event.timestamp)
        case ours.PermissionDecision():
            why = f" ({event.reason})" if event.reason else ""
            text = f"{event.name}: {event.decision}{why}"
            return SystemEntry(text=text, timestamp=event.timestamp)
        case _:
            text = f"unknown event: {event.kind or 'no type'}"
            return SystemEntry(text=text, timestamp=event.timestamp)


def _shown(output: Any) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
