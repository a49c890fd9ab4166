"""Odd lines in today's words: broken encodings, older schemas, other tools' recordings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from geminorum.wire.broken_json import mended

Data: TypeAlias = dict[str, Any]

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "session_id": ("sessionId", "threadId", "thread_id"),
    "tool_name": ("toolName", "name"),
    "tool_id": ("toolId", "toolUseId", "tool_use_id", "toolCallId", "callId", "call_id", "id"),
    "parameters": ("input", "args", "arguments"),
    "output": ("response", "content"),
    "duration_ms": ("durationMs",),
    "error": ("errorMessage",),
}
_COUNTS: Mapping[str, tuple[str, ...]] = {
    "total_tokens": ("totalTokens", "total", "totalTokenCount"),
    "input_tokens": ("inputTokens", "input", "prompt", "promptTokenCount"),
    "output_tokens": ("outputTokens", "output", "candidates", "candidatesTokenCount"),
    "cached": ("cached_input_tokens", "cachedTokens", "cachedContentTokenCount"),
    "tool_calls": ("toolCalls", "totalCalls"),
}
_PRICE = "total_cost_usd"
_COUNT_GROUPS = ("tokens", "usage", "tools")
"""Where counts may stand together, one level deeper."""
_KINDS: Mapping[str, type] = {"tool_id": str, "session_id": str, "parameters": dict}
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "init": ("session_id",),
    "tool_use": ("tool_name", "tool_id", "parameters"),
    "tool_result": ("tool_name", "tool_id", "output", "duration_ms"),
    "result": ("session_id", "error"),
}
_MESSAGE_FIELDS = {"type", "timestamp", "content", "delta", "session_id", "sessionId"}
_MESSAGE_KEYS = ("detail", "errorMessage", "error", "message")
"""Where an error has its message; the last is looked at first."""


def in_todays_words(data: Data) -> Data | None:
    """The frame that today's CLI would have printed; None for an unknown frame."""
    kind = data.get("type")
    translate = _TRANSLATIONS.get(kind) if isinstance(kind, str) else None
    if translate is None:
        return None
    stamp = data.get("timestamp")
    return {**translate(data), "timestamp": stamp if isinstance(stamp, str) else ""}


def _renamed(data: Data) -> Data:
    frame = dict(data)
    for field in _FIELDS.get(str(data.get("type")), ()):
        names = (field, *_ALIASES[field])
        found = next((frame[name] for name in names if frame.get(name) is not None), None)
        frame[field] = found if isinstance(found, _KINDS.get(field, object)) else None
    return frame


def _init(data: Data) -> Data:
    return _renamed({**data, "type": "init"})


def _message(data: Data) -> Data:
    # Without a role it is the agent's, but not where a name that nobody knows may be the role's.
    speaker = "assistant" if data.keys() <= _MESSAGE_FIELDS else "unknown"
    content = _plain(data.get("content"))
    return {"role": speaker, **data, "type": "message", "content": content}


def _legacy_message(data: Data) -> Data:
    message = data.get("message")
    body = message.get("content") if isinstance(message, dict) else message
    return {"type": "message", "role": data["type"], "content": _plain(body)}


def _tool_use(data: Data) -> Data:
    return _renamed({**data, **_inner(data, "functionCall")})


def _tool_result(data: Data) -> Data:
    frame = _renamed({**data, **_inner(data, "functionResponse")})
    error = data.get("error")
    if error is not None:
        kind = error.get("type") if isinstance(error, dict) else None
        frame["error"] = {
            "type": kind if isinstance(kind, str) else None,
            "message": error_message(error),
        }
    return frame


def _inner(data: Data, key: str) -> Data:
    """The parts of a call that some versions wrap in `functionCall`, or that in `value`."""
    wrapper = data.get("value")
    holder = wrapper if isinstance(wrapper, dict) else data
    inner = holder.get(key)
    return inner if isinstance(inner, dict) else {}


def _error(data: Data) -> Data:
    return {**data, "message": error_message(data) or json.dumps(data, ensure_ascii=False)}


def _result(data: Data) -> Data:
    frame = _renamed(data)
    frame["status"] = data.get("status") or data.get("subtype") or "unknown"
    if not isinstance(frame["error"], str | dict):
        frame["error"] = None
    frame["stats"] = _counts(data.get("stats"))
    return frame


def _counts(stats: Any) -> Data | None:
    """The counts that can be read, under today's names; None where there is none.

    One odd number must not cost the result it stands in, and no count must become a zero.
    """
    if not isinstance(stats, dict):
        return None
    groups = [group for name in _COUNT_GROUPS if isinstance(group := stats.get(name), dict)]
    flat = {key: value for group in groups for key, value in group.items()} | stats
    counts: Data = {key: int(n) for key, n in flat.items() if isinstance(n, int | float)}
    if _PRICE in counts:
        counts[_PRICE] = Decimal(str(flat[_PRICE]))  # Money has a fraction, counts have none.
    for name, others in _COUNTS.items():
        found = next((counts[one] for one in (name, *others) if one in counts), None)
        counts |= {} if found is None else {name: found}
    if isinstance(models := stats.get("models"), dict):
        shares = {str(name): _counts(share) for name, share in models.items()}
        # An incomplete list would pass for the whole.
        counts |= {"models": shares} if None not in shares.values() else {}
    if counts.keys().isdisjoint({*_COUNTS, "models"}):
        return None
    least = counts.get("input_tokens", 0) + counts.get("output_tokens", 0)
    return {"total_tokens": least, **counts}


def stats_in(line: bytes) -> Data | None:
    """The counts of a `result` line, whatever a version calls them."""
    data, _ = mended(line)
    return _counts(data.get("stats"))


def output_in(line: bytes) -> Any:
    """What a tool returned, whatever a version calls it."""
    data, _ = mended(line)
    return _tool_result(data).get("output")


def error_message(data: Any) -> str | None:
    """The message inside an error, however deep it is wrapped."""
    # A list of what is still to be looked at: JSON may be nested deeper than Python calls itself.
    rest = [data]
    while rest:
        match rest.pop():
            case str(text) if text:
                return text
            case dict(wrapper):
                rest += [wrapper.get(key) for key in _MESSAGE_KEYS]
    return None


def _plain(content: Any) -> str:
    """Text from a string, a part, or a list of parts."""
    texts, rest = list[str](), [content]
    while rest:
        match rest.pop():
            case str(text):
                texts.append(text)
            case dict(part):
                rest.append(part.get("text") or part.get("content"))
            case list(parts):
                rest += reversed(parts)
    return "\n\n".join(filter(None, texts))


_TRANSLATIONS: Mapping[str, Callable[[Data], Data]] = {
    "init": _init,
    "system": _init,
    "message": _message,
    "assistant": _legacy_message,
    "user": _legacy_message,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "error": _error,
    "result": _result,
}
