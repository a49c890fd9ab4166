"""How the API's answer ended, or why it refused, to the Error that says so."""

from __future__ import annotations

import contextlib
import email.utils
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from geminorum import errors
from geminorum.events import Error
from geminorum.wire.broken_json import mended
from geminorum.wire.causes import CHECK_KEY, WRONG_KEY, cause_of
from geminorum.wire.genai.answer import ModelAnswer

PROMPT_BLOCKED, ANSWER_STOPPED = "prompt blocked: ", "answer stopped: "
"""How the message of a Blocked begins."""

_FILTERS = frozenset(
    {
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"),
    }
)
_FAULTS = frozenset(
    {
        *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
        *("MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "NO_IMAGE", "IMAGE_OTHER"),
    }
)
_KINDS: Mapping[int | None, type[errors.GeminorumError]] = {
    401: errors.AuthError,
    403: errors.AuthError,
    404: errors.ModelNotFound,
    429: errors.QuotaError,
    # An error in mid-stream may come without a code.
    None: errors.ServerError,
}
_PASSING = frozenset({408, 429, 499, 500, 502, 503, 504})
"""What may be gone a little later."""
_SPENT = re.compile(r"PerDay|per day|limit: 0\b", re.I)
_PLEASE_WAIT = re.compile(r"retry in (?P<number>[\d.]+)(?P<unit>ms|s)\b")
_DURATION = re.compile(r"(?P<number>[\d.]+)(?P<unit>s)")


def failure(answer: ModelAnswer) -> Error | None:
    """Why the answer is none; None where it is one."""
    why = " ".join(word for word in (answer.finish, answer.finish_message) if word)
    if answer.blocked:
        return error_of(errors.Blocked, PROMPT_BLOCKED + answer.blocked)
    if answer.finish is None:
        text = f"no finishReason after {answer.chunks} chunk(s)"
        return error_of(errors.EndedEarly, text)
    if answer.finish in _FILTERS:
        return error_of(errors.Blocked, ANSWER_STOPPED + why)
    if answer.finish in _FAULTS:
        return error_of(errors.InvalidAnswer, why)
    if answer.finish == "MAX_TOKENS":
        return error_of(errors.AnswerCut, f"answer cut: {why}")
    if not answer.spoke and not answer.calls:
        return error_of(errors.InvalidAnswer, f"empty answer, finishReason {why}")
    return None


def remark(answer: ModelAnswer) -> Error | None:
    """A warning about a complete answer that ended for an unknown reason."""
    if answer.finish in ("STOP", "FINISH_REASON_UNSPECIFIED"):
        return None
    why = " ".join(word for word in (answer.finish, answer.finish_message) if word)
    return Error(f"the answer ended with {why}", "FINISH", recoverable=True)


def refusal(status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> Error:
    """The Error for an HTTP status that is no success, whatever the body holds."""
    told = _error_body(body)
    if told is None:
        told = {"status": phrase, "message": body.decode("utf-8", "replace")}
    if 300 <= status < 400:
        # Followed, it would take the key and the prompt to wherever it leads.
        told["message"] = (
            f"the address redirects to {headers.get('location')!r}; set base_url to it"
        )
    said = {"status": phrase, **told, "code": status}
    return refused(said, _seconds_of_header(headers.get("retry-after", ""), headers.get("date")))


def refused(said: Mapping[str, Any], retry_after: float | None = None) -> Error:
    """The Error for one in the API's own shape: code, status, message, details."""
    told = said.get("code")
    code = told if isinstance(told, int) and not isinstance(told, bool) else None
    message = _shown(said.get("message", ""))
    details = _encoded(said.get("details") or [])
    wait = _wait(details, message, retry_after)
    retryable = code in _PASSING and not (code == 429 and _SPENT.search(details + message))
    kind = _kind(code, message + details)
    hint = kind.default_hint
    if kind is errors.AuthError and WRONG_KEY.search(message + details):
        hint = CHECK_KEY
    if code == 429 and not retryable:
        hint = "the day's quota is used up: choose another model or key, or go on tomorrow"
    text = f"{code} {_shown(said.get('status', 'UNKNOWN'))}: {message}"
    return Error(text, kind.code, hint=hint, status=code, retryable=retryable, retry_after=wait)


def _kind(code: int | None, text: str) -> type[errors.GeminorumError]:
    if code == 400 and WRONG_KEY.search(text):
        return errors.AuthError
    if code == 400 and cause_of(text) is errors.ContextOverflow:
        return errors.ContextOverflow
    if code in _PASSING and code != 429:
        return errors.ServerError
    return _KINDS.get(code, errors.ServerError if (code or 0) >= 500 else errors.ApiError)


def _error_body(body: bytes) -> dict[str, Any] | None:
    try:
        found, _ = mended(body)
    except (ValueError, RecursionError):
        return None
    first = found[0] if isinstance(found, list) and found else found
    if not isinstance(first, dict):
        return None
    error = first.get("error", first)
    return error if isinstance(error, dict) else {"message": _shown(error)}


def _shown(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:  # It may have been read with more room for calls.
        return "…"


def _encoded(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return ""


def _wait(details: str, message: str, header: float | None) -> float | None:
    """What the API asks for: in a RetryInfo, in a header, or in plain words."""
    if found := re.search(r'"retryDelay":"([^"]*)"', details):
        return _seconds(_DURATION.fullmatch(found[1]))
    return _seconds(_PLEASE_WAIT.search(message)) if header is None else header


def _seconds(found: re.Match[str] | None) -> float | None:
    if found is None:
        return None
    try:
        number = float(found["number"])
    except ValueError:
        return None
    return number / 1000 if found["unit"] == "ms" else number


def _seconds_of_header(value: str, sent: str | None) -> float | None:
    """A Retry-After in seconds. A date counts from when the answer was sent, by the same clock."""
    with contextlib.suppress(ValueError):
        seconds = max(0.0, float(value))
        return seconds if math.isfinite(seconds) else None
    when = _moment(value)
    if when is None:
        return None
    begin = _moment(sent or "") or datetime.now(UTC)
    return max(0.0, (when - begin).total_seconds())


def _moment(date: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def error_of(kind: type[errors.GeminorumError], text: str) -> Error:
    """An Error with all that its kind says of itself."""
    return Error(text, kind.code, hint=kind.default_hint, retryable=kind.default_retryable)
