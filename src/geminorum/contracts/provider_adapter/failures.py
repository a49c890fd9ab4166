"""The interface's errors, and geminorum's failures as those with their codes."""

from __future__ import annotations

from typing import Any

from geminorum.adapter_parts import ANSWER_STOPPED, render
from geminorum.contracts.vocabulary import vocabulary
from geminorum.errors import Blocked, GeminorumError, class_for
from geminorum.events import Done, Error

NO_TEXT = "Invalid response structure from Gemini SDK: No text content found"

# An answer that is missing or broken; where nothing at all was said, the shape has one text for it.
_EMPTY = frozenset({"INVALID_ANSWER", "ENDED_EARLY", "LENGTH"})


class ARTError(GeminorumError):
    """Why a call failed: the `data` of an ERROR event; may also be raised before one.

    `.code` is the interface's; `__cause__` is geminorum's error, if there is one.
    """

    code = "LLM_PROVIDER_ERROR"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data; unknown values are left out."""
        cause = self.__cause__
        told = {
            "name": "ARTError",
            "message": self.message,
            "code": self.code,
            "retryable": self.retryable,
            "status": self.status,
            "retryAfter": self.retry_after,
            "hint": self.hint,
            "cause": cause.code if isinstance(cause, GeminorumError) else None,
        }
        return {key: value for key, value in told.items() if value is not None}


class MissingApiKey(ARTError):
    code = "MISSING_API_KEY"
    default_hint = (
        'GeminiAdapter({"apiKey": os.environ["GEMINI_API_KEY"]}); a key comes from '
        "https://aistudio.google.com/apikey"
    )


class PromptTranslationFailed(ARTError, ValueError):
    code = "PROMPT_TRANSLATION_FAILED"


class ProviderUnreachable(ARTError):
    code = "NETWORK_ERROR"


class ProviderTimeout(ARTError):
    code = "TIMEOUT_ERROR"


_KINDS: dict[str | None, type[ARTError]] = {
    "NETWORK": ProviderUnreachable,
    "TIMEOUT": ProviderTimeout,
    "STALLED": ProviderTimeout,
}


_IN_OPTIONS = vocabulary(
    {
        "set_key": 'pass "apiKey"',
        "Api.api_key": '"apiKey"',
        "Api.base_url": '"apiBaseUrl"',
        "Api.api_version": '"apiVersion"',
        "Api.retries": '"retries"',
        "api.max_output_tokens": '"maxOutputTokens"',
        "Options.model": '"model"',
        "Options.timeout": '"timeout"',
    },
    takes_options=False,
)


def failure_of(error: GeminorumError, message: str | None = None) -> ARTError:
    """An error of our own in the shape's words."""
    told = _KINDS.get(error.code, ARTError)(
        error.message if message is None else message,
        hint=render(error.hint, _IN_OPTIONS),
        status=error.status,
        retryable=error.retryable,
        retry_after=error.retry_after,
    )
    told.__cause__ = error
    return told


def failure_told(
    event: Error, stop_reason: str | None, *, empty: bool, stopped: bool = False
) -> ARTError:
    """The error of a call that ended so. `empty`: neither text nor a tool call had arrived;
    `stopped`: a filter stopped the answer."""
    cause = class_for(event.code)(
        event.message,
        hint=event.hint,
        status=event.status,
        retryable=event.retryable,
        retry_after=event.retry_after,
    )
    if stopped:
        text = f"Gemini stopped the answer: {event.message.removeprefix(ANSWER_STOPPED)}"
        return failure_of(cause, text)
    return failure_of(cause, _text(event, stop_reason, empty))


def is_stopped_answer(event: Error, done: Done) -> bool:
    """Whether a filter stopped the answer; a blocked prompt has none, and the API's last chunk says
    so."""
    match done.raw:
        case {"promptFeedback": {"blockReason": str()}}:
            return False
        case _:
            return event.code == Blocked.code


def _text(event: Error, stop_reason: str | None, empty: bool) -> str:
    if event.code == Blocked.code:
        return f"Gemini API call blocked: {stop_reason or event.message}"
    if empty and event.code in _EMPTY:
        return f"{NO_TEXT} ({event.message})"
    return event.message
