# SPDX-License-Identifier: Apache-2.0
"""Converts geminorum's events to the AgentAdapter interface's: an envelope around a payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from geminorum import events as ours
from geminorum.adapter_parts import render
from geminorum.contracts.vocabulary import vocabulary

EVENT_TYPES = (
    *("init", "text", "text_delta", "tool_use", "tool_result"),
    *("thinking", "error", "permission_request", "done"),
)
"""All other types are namespaced, like "gemini:user_message"; consumers ignore them."""


_IN_OPTIONS = vocabulary(
    {
        "Options.policy": "permissions",
        **{
            f"Options.{name}": name
            for name in (
                *("cwd", "model", "max_turns", "max_budget_usd", "resume"),
                *("allowed_tools", "disallowed_tools"),
            )
        },
    },
    takes_options=True,
)


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event of any agent."""

    type: str
    agent: str
    timestamp: int
    """Milliseconds since 1970; 0 if unknown."""
    session_id: str
    """Empty if unknown."""
    payload: dict[str, Any]
    """The type's content under the interface's camelCase keys; unknown values have no key."""
    metadata: dict[str, Any] | None = None
    """Details of this agent only: geminorum's error code, the hint, the exit code."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data with the interface's camelCase keys; unknown values are left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def envelope(event: ours.Event) -> AgentEvent:
    """Wraps an event in the interface's envelope. Missing values stay empty."""
    return AgentEvent(
        type=event.type if event.type in EVENT_TYPES else f"{event.agent}:{event.type}",
        agent=event.agent,
        timestamp=event.timestamp,
        session_id=event.session_id or "",
        payload=_PAYLOADS[type(event)](event),
        metadata=_metadata(event) or None,
    )


def hint_for(hint: str | None) -> str | None:
    """The hint in the names of AgentOptions and of the adapter's own parameters."""
    return render(hint, _IN_OPTIONS)


def known(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def _init(event: ours.Init) -> dict[str, Any]:
    told = event.tools is not None
    return {
        "model": event.model or "unknown",
        "cwd": event.cwd or "",
        # Empty also if they are unknown; `capabilities` says which.
        "tools": event.tools or [],
        "capabilities": {"toolsKnown": told, "toolsSource": "stream" if told else "unavailable"},
    }


def _error(event: ours.Error) -> dict[str, Any]:
    return {"message": event.message, "recoverable": event.recoverable, **known(code=event.code)}


def _tool_use(event: ours.ToolUse | ours.PermissionRequest) -> dict[str, Any]:
    return {"toolName": event.name, "toolUseId": event.id or "", "input": event.input}


def _permission_decision(event: ours.PermissionDecision) -> dict[str, Any]:
    about = {"toolName": event.name, "toolUseId": event.id or "", "decision": event.decision}
    return {**about, **known(reason=event.reason)}


def _tool_result(event: ours.ToolResult) -> dict[str, Any]:
    return {
        "toolUseId": event.id or "",
        "toolName": event.name or "unknown_tool",
        "status": event.status,
        "output": event.output,
        **known(durationMs=None if event.duration is None else round(event.duration * 1000)),
    }


def _done(event: ours.Done) -> dict[str, Any]:
    usage, frame = event.usage or ours.Usage(), event.raw
    return {
        "status": event.status,
        "usage": {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "toolUses": usage.tool_calls,
            **known(totalCostUsd=float(event.cost.usd) if event.cost else None),
        },
        "durationMs": round(_told_ms(frame, event.duration * 1000)),
        **known(result=_told_result(frame), resumeToken=event.resume),
    }


def _told_ms(frame: Any, measured: float) -> float:
    match frame:
        case {"duration_ms": int() | float() as told} | {"durationMs": int() | float() as told}:
            return told
        case _:
            return measured


def _told_result(frame: Any) -> str | None:
    match frame:
        case {"result": str(text)} if text:
            return text
        case _:
            return None


def _metadata(event: ours.Event) -> dict[str, Any]:
    match event:
        case ours.Error():
            return known(hint=hint_for(event.hint))
        case ours.ToolResult():
            return known(errorType=event.error_type)
        case ours.Done():
            # Zero tokens in the payload may mean that they were not counted.
            return known(exitCode=event.exit_code, usageReported=event.usage is not None)
        case _:
            return {}


_PAYLOADS: dict[type[Any], Callable[[Any], dict[str, Any]]] = {
    ours.Init: _init,
    ours.Text: lambda event: {"content": event.text},
    ours.TextDelta: lambda event: {"delta": event.text},
    ours.Thinking: lambda event: {"summary": event.text},
    ours.ToolUse: _tool_use,
    ours.ToolResult: _tool_result,
    ours.PermissionRequest: lambda event: {**_tool_use(event), **known(reason=event.reason)},
    ours.PermissionDecision: _permission_decision,
    ours.Error: _error,
    ours.Done: _done,
    ours.UserMessage: lambda event: {"content": event.text},
    ours.Unknown: lambda event: {"frame": event.raw, **known(kind=event.kind)},
}
