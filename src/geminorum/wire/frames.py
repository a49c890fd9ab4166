"""The frames of `gemini --output-format stream-json`, as the CLI prints them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.events import Cost, Tokens, Usage, total_of


class _Frame(msgspec.Struct, tag_field="type", gc=False):
    timestamp: str = ""


class InitFrame(_Frame, tag="init", kw_only=True):
    session_id: str | None
    model: str | None = None
    cwd: str | None = None
    tools: list[str] | None = None


class MessageFrame(_Frame, tag="message", kw_only=True):
    content: str
    role: str = "assistant"
    delta: bool = False


class ToolUseFrame(_Frame, tag="tool_use", kw_only=True):
    tool_name: str
    tool_id: str | None = None
    parameters: dict[str, Any] | None = None


ToolStatus: TypeAlias = Literal["success", "error", "denied"]


class ToolError(msgspec.Struct):
    type: str | None = None
    message: str | None = None


class ToolResultFrame(_Frame, tag="tool_result", kw_only=True):
    tool_id: str | None
    tool_name: str | None = None
    status: str | None = None
    output: Any = None
    error: ToolError | None = None
    duration_ms: float | None = None


class ErrorFrame(_Frame, tag="error", kw_only=True):
    message: str
    severity: str | None = None
    code: str | None = None
    recoverable: bool | None = None


class Stats(msgspec.Struct):
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    cached_input_tokens: int = 0
    tool_calls: int = 0
    total_cost_usd: Decimal | None = None
    models: dict[str, Stats] | None = None


class ResultFrame(_Frame, tag="result", kw_only=True):
    status: str
    error: str | dict[str, Any] | None = None
    stats: Stats | None = None
    session_id: str | None = None
    stop_reason: str | None = msgspec.field(default=None, name="stopReason")
    total_cost_usd: Decimal | None = None


Frame: TypeAlias = (
    InitFrame | MessageFrame | ToolUseFrame | ToolResultFrame | ErrorFrame | ResultFrame
)
frame_decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


def status_of(frame: ToolResultFrame) -> ToolStatus:
    error = frame.error
    if error is None:
        return "error" if (frame.status or "success") in ("error", "failed") else "success"
    if (error.type or "").lower() == "policy_violation":
        return "denied"
    # What would have needed a question is refused when nobody is there to be asked.
    if "requires user confirmation" in (error.message or ""):
        return "denied"
    return "error"


def usage_of(stats: Stats | None, tool_uses: int) -> Usage | None:
    """The run's tokens, as far as the stream tells them."""
    if stats is None:
        return None
    by_model = {name: _tokens(share) for name, share in (stats.models or {}).items()}
    whole = total_of(by_model.values()) if by_model else _tokens(stats)
    calls = stats.tool_calls or tool_uses
    return Usage(**msgspec.structs.asdict(whole), by_model=by_model, tool_calls=calls)


def told_cost(result: ResultFrame | None) -> Cost | None:
    """The price, from a program that tells it. The Gemini CLI does not, yet."""
    if result is None:
        return None
    told = result.total_cost_usd or (result.stats.total_cost_usd if result.stats else None)
    return None if told is None else Cost(told)


def _tokens(stats: Stats) -> Tokens:
    # The stream leaves thoughts out; what the parts lack to the total is thoughts, and the tokens
    # of built-in tools, which only the session file tells apart.
    hidden = max(0, stats.total_tokens - stats.input_tokens - stats.output_tokens)
    return Tokens(
        input=stats.input_tokens,
        output=stats.output_tokens,
        cached=stats.cached or stats.cached_input_tokens,
        thoughts=hidden,
        total=stats.total_tokens,
    )
