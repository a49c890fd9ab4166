"""The frames of `gemini --output-format stream-json`, as the CLI prints them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.events import Cost, ModelRequest, Tokens, Usage, total_of
from geminorum.runtime import typed
from geminorum.wire.usage import tokens_by_model, usage_of_requests


class _Frame(msgspec.Struct, tag_field="type", gc=False):
    timestamp: str = ""


class InitFrame(_Frame, tag="init", kw_only=True):
    session_id: str | None
    model: str | None = None
    cwd: str | None = None
    tools: list[str] | None = None


class MessageFrame(_Frame, tag="message", kw_only=True):
    # Required, so that a renamed role never makes the user's words the agent's.
    content: str
    role: str
    delta: bool = False


class ToolUseFrame(_Frame, tag="tool_use", kw_only=True):
    # Required, though they may be null: a frame that names them otherwise is one for `dialects`.
    tool_name: str
    tool_id: str | None
    parameters: dict[str, Any] | None


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


def is_telling(stats: Stats) -> bool:
    """Are there tokens in it, and in each model's share? Otherwise it may have other names."""
    return stats.total_tokens > 0 and all(map(is_telling, (stats.models or {}).values()))


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
frame_decoder: msgspec.json.Decoder[Frame] = typed.decoder(Frame)


_QUESTION = "requires user confirmation"
_NOT_LISTED = "not in the allowed commands list"
"""How CLIs before 0.30 refuse a command."""


def status_of(frame: ToolResultFrame) -> ToolStatus:
    error = frame.error
    if error is None:
        return "error" if (frame.status or "success") in ("error", "failed") else "success"
    if (error.type or "").lower() == "policy_violation":
        return "denied"
    return "denied" if was_unasked(frame) or _NOT_LISTED in (error.message or "") else "error"


def was_unasked(frame: ToolResultFrame) -> bool:
    """Was it refused only because the CLI could not ask?"""
    return frame.error is not None and _QUESTION in (frame.error.message or "")


def usage_of(
    stats: Stats | None, tool_uses: int, requests: Sequence[ModelRequest] = ()
) -> Usage | None:
    """The run's tokens: the stream's sums, told apart as far as the requests are known."""
    if stats is None:
        return usage_of_requests(requests, tool_uses)
    told = _reported_tokens(stats, requests)
    known = {
        name: share
        for name, share in tokens_by_model(requests).items()
        if _fits(share, told.get(name))
    }
    by_model = {name: _told_apart(tokens, known.get(name)) for name, tokens in told.items()}
    whole = total_of(by_model.values()) if by_model else _tokens(stats)
    return Usage(
        **msgspec.structs.asdict(whole),
        by_model=by_model,
        tool_calls=stats.tool_calls or tool_uses,
        exact=bool(known) and all(_nothing_hidden(told[name], known.get(name)) for name in told),
        requests=tuple(request for request in requests if request.model in known),
    )


def _reported_tokens(stats: Stats, requests: Sequence[ModelRequest]) -> dict[str, Tokens]:
    """Each model's sum. CLIs before 0.40 tell one for all, which is enough where there is one."""
    models = dict.fromkeys(request.model for request in requests)
    if stats.models is None and len(models) == 1:
        return {name: _tokens(stats) for name in models}
    return {name: _tokens(share) for name, share in (stats.models or {}).items()}


def _fits(known: Tokens, told: Tokens | None) -> bool:
    """Are the requests part of the sum? Otherwise the file is damaged, or somebody else's."""
    if told is None:
        return False
    return known.total <= told.total and known.thoughts + known.tool <= told.thoughts


def _told_apart(told: Tokens, known: Tokens | None) -> Tokens:
    """A sum with its tool tokens told apart from its thoughts."""
    if known is None:
        return told
    return msgspec.structs.replace(told, thoughts=told.thoughts - known.tool, tool=known.tool)


_MAX_USD = 10**12
"""No run costs more; with larger numbers, sums would overflow."""
_LOWEST_STEP = 128_000
"""Tokens read, beyond which some model asks more for each."""


def _nothing_hidden(told: Tokens, known: Tokens | None) -> bool:
    """What the requests leave over is the CLI's own small questions, which seldom think. Were they
    long, they might stand on a dearer step, one by one or not: that cannot be told."""
    seen = known or Tokens()
    small = told.input - seen.input <= _LOWEST_STEP
    return small and told.thoughts == seen.thoughts + seen.tool


def told_cost(result: ResultFrame | None) -> Cost | None:
    """The price, from a program that tells it. The Gemini CLI does not, yet."""
    if result is None:
        return None
    told = result.total_cost_usd or (result.stats.total_cost_usd if result.stats else None)
    if told is None or not (told.is_finite() and 0 <= told < _MAX_USD):
        return None
    return Cost(told)


def _tokens(stats: Stats) -> Tokens:
    # The stream leaves thoughts out; what the parts lack to the total is thoughts, and the tokens
    # of built-in tools, which only the session file tells apart.
    told = stats.input_tokens + stats.output_tokens
    hidden = max(0, stats.total_tokens - told)
    return Tokens(
        input=stats.input_tokens,
        output=stats.output_tokens,
        cached=stats.cached or stats.cached_input_tokens,
        thoughts=hidden,
        # Some programs leave the total out. A total of 0 would make the run look free.
        total=stats.total_tokens or told,
    )
