# SPDX-License-Identifier: Apache-2.0
"""Each of our events to one of the AgentAdapter shape's: an envelope around a payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.events import (
    Done,
    Error,
    Event,
    Init,
    PermissionRequest,
    Status,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Unknown,
    Usage,
    UserMessage,
)

EVENT_TYPES = (
    *("init", "text", "text_delta", "tool_use", "tool_result"),
    *("thinking", "error", "permission_request", "done"),
)
"""All others are namespaced, like "gemini:user_message"; consumers pass over those."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class InitPayload(_Payload, frozen=True, kw_only=True):
    model: str
    cwd: str
    tools: list[str]
    """Empty also where nobody told them; `capabilities` says which."""
    capabilities: dict[str, Any] | None = None


class TextPayload(_Payload, frozen=True, kw_only=True):
    content: str


class TextDeltaPayload(_Payload, frozen=True, kw_only=True):
    delta: str


class ThinkingPayload(_Payload, frozen=True, kw_only=True):
    summary: str


class ErrorPayload(_Payload, frozen=True, kw_only=True):
    message: str
    recoverable: bool
    code: str | None = None


class ToolUsePayload(_Payload, frozen=True, kw_only=True):
    tool_name: str
    tool_use_id: str
    input: dict[str, Any]


class PermissionRequestPayload(ToolUsePayload, frozen=True, kw_only=True):
    reason: str | None = None


class ToolResultPayload(_Payload, frozen=True, kw_only=True):
    tool_use_id: str
    tool_name: str
    status: Literal["success", "error", "denied"]
    output: Any
    duration_ms: int | None = None


class DoneUsage(_Payload, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    tool_uses: int
    total_cost_usd: float | None = None


class DonePayload(_Payload, frozen=True, kw_only=True):
    status: Status
    usage: DoneUsage
    duration_ms: int
    result: str | None = None
    resume_token: str | None = None


class UnknownPayload(_Payload, frozen=True, kw_only=True):
    frame: Any
    kind: str | None = None


Payload: TypeAlias = (
    InitPayload
    | TextPayload
    | TextDeltaPayload
    | ThinkingPayload
    | ErrorPayload
    | ToolUsePayload
    | PermissionRequestPayload
    | ToolResultPayload
    | DonePayload
    | UnknownPayload
)


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event of any agent."""

    type: str
    agent: str
    timestamp: int
    """Milliseconds since 1970; 0 where nobody told."""
    session_id: str
    """Empty where nobody told."""
    payload: Any
    """One of the payloads above; of another agent's events, whatever that agent says."""
    metadata: dict[str, Any] | None = None
    """What only this agent knows: our own error code, the hint, the exit code."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the shape's own camelCase keys; what is not known is left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def envelope(event: Event) -> AgentEvent:
    """The event in the shape's words. What it does not tell itself stays empty."""
    return AgentEvent(
        type=event.type if event.type in EVENT_TYPES else f"{event.agent}:{event.type}",
        agent=event.agent,
        timestamp=event.timestamp,
        session_id=event.session_id or "",
        payload=_PAYLOADS[type(event)](event),
        metadata=_metadata(event) or None,
    )


def _init(event: Init) -> InitPayload:
    known = event.tools is not None
    return InitPayload(
        model=event.model or "unknown",
        cwd=event.cwd or "",
        tools=event.tools or [],
        capabilities={"toolsKnown": known, "toolsSource": "stream" if known else "unavailable"},
    )


def _error(event: Error) -> ErrorPayload:
    return ErrorPayload(message=event.message, recoverable=event.recoverable, code=event.code)


def _tool_use(event: ToolUse) -> ToolUsePayload:
    return ToolUsePayload(tool_name=event.name, tool_use_id=event.id or "", input=event.input)


def _permission_request(event: PermissionRequest) -> PermissionRequestPayload:
    return PermissionRequestPayload(
        tool_name=event.name,
        tool_use_id=event.id or "",
        input=event.input,
        reason=event.reason,
    )


def _tool_result(event: ToolResult) -> ToolResultPayload:
    return ToolResultPayload(
        tool_use_id=event.id or "",
        tool_name=event.name or "unknown_tool",
        status=event.status,
        output=event.output,
        duration_ms=None if event.duration is None else round(event.duration * 1000),
    )


def _done(event: Done) -> DonePayload:
    raw = event.raw
    return DonePayload(
        status=event.status,
        usage=_usage(event.usage or Usage(), event),
        duration_ms=_duration_ms(raw, event),
        result=_told_result(raw),
        resume_token=event.resume,
    )


def _told_result(raw: Any) -> str | None:
    match raw:
        case {"result": str(text)} if text:
            return text
        case _:
            return None


def _usage(usage: Usage, event: Done) -> DoneUsage:
    return DoneUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        tool_uses=usage.tool_calls,
        total_cost_usd=float(event.cost.usd) if event.cost else None,
    )


def _duration_ms(raw: Any, event: Done) -> int:
    match raw:
        case {"duration_ms": int() | float() as told} | {"durationMs": int() | float() as told}:
            return round(told)
        case _:
            return round(event.duration * 1000)


def _metadata(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {}
    match event:
        case Error():
            found = {"hint": event.hint}
        case ToolResult():
            found = {"errorType": event.error_type}
        case Done():
            # Zero tokens in the payload may mean that nobody counted.
            found = {"exitCode": event.exit_code, "usageReported": event.usage is not None}
    return {key: value for key, value in found.items() if value is not None}


_PAYLOADS: dict[type[Any], Callable[[Any], Payload]] = {
    Init: _init,
    Text: lambda event: TextPayload(content=event.text),
    TextDelta: lambda event: TextDeltaPayload(delta=event.text),
    Thinking: lambda event: ThinkingPayload(summary=event.text),
    ToolUse: _tool_use,
    ToolResult: _tool_result,
    PermissionRequest: _permission_request,
    Error: _error,
    Done: _done,
    UserMessage: lambda event: TextPayload(content=event.text),
    Unknown: lambda event: UnknownPayload(kind=event.kind, frame=event.raw),
}
