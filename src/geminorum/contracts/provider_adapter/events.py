"""The interface's stream events and their data."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.contracts.provider_adapter.failures import ARTError

EventType: TypeAlias = Literal["TOKEN", "METADATA", "ERROR", "END", "TOOL_CALL"]
TokenType: TypeAlias = Literal[
    "LLM_THINKING",
    "LLM_RESPONSE",
    "AGENT_THOUGHT_LLM_THINKING",
    "AGENT_THOUGHT_LLM_RESPONSE",
    "FINAL_SYNTHESIS_LLM_THINKING",
    "FINAL_SYNTHESIS_LLM_RESPONSE",
]


class LLMMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Tokens and duration of a call. None: not reported."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    """Of the visible answer, without thoughts."""
    thinking_tokens: int | None = None
    time_to_first_token_ms: int | None = None
    total_generation_time_ms: int | None = None
    stop_reason: str | None = None
    """The API's own reason: STOP, MAX_TOKENS …"""
    provider_raw_usage: dict[str, Any] | None = None
    """`usageMetadata` of the last chunk, unchanged."""
    trace_id: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """The model calls a tool. Send the answer back as a `tool_result` with this id and name."""

    id: str
    name: str
    arguments: dict[str, Any] = {}

    def as_tool_call(self) -> dict[str, Any]:
        """Returns it in the format of an assistant message's `tool_calls`."""
        arguments = msgspec.json.encode(self.arguments).decode()
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function}


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event of a call."""

    type: EventType
    """TOOL_CALL is not in the interface: consumers that do not know it ignore it."""
    data: Any
    """Text (TOKEN), LLMMetadata, ARTError, ToolCall; None (END)."""
    token_type: TokenType | None = None
    thread_id: str
    trace_id: str
    session_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data with the interface's camelCase keys; unknown values are left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_plain_error)
        return plain


def _plain_error(value: Any) -> Any:
    if isinstance(value, ARTError):
        return value.as_dict()
    raise NotImplementedError(f"no plain form for {type(value).__name__}")
