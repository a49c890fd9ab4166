"""What a message of the CLI or the API, an HTTP status or an exit code says about a failure."""

from __future__ import annotations

import re

import msgspec

from geminorum import errors
from geminorum.runtime import typed

KINDS_OF_EXIT: dict[int, type[errors.GeminorumError]] = {
    41: errors.AuthError,
    42: errors.InvalidPrompt,
    44: errors.SandboxError,
    52: errors.ConfigError,
    54: errors.ToolFailed,
    55: errors.TrustError,
}
KINDS_OF_STATUS: dict[int | None, type[errors.GeminorumError]] = {
    401: errors.AuthError,
    403: errors.AuthError,
    404: errors.ModelNotFound,
    429: errors.QuotaError,
    500: errors.ServerError,
    502: errors.ServerError,
    503: errors.ServerError,
    504: errors.ServerError,
}
# Only for text that the CLI itself wrote. Each is a whole phrase of it: a bare "auth" would also
# match "author".
_PHRASES: tuple[tuple[type[errors.GeminorumError], re.Pattern[str]], ...] = (
    (
        errors.SessionLost,
        re.compile(
            r"Error resuming session|unknown session|session \S+ not found"
            r"|checkpoint \S+ not found",
            re.I,
        ),
    ),
    (
        errors.ContextOverflow,
        re.compile(
            r"input token count exceeds|Context window will overflow"
            r"|exceeds the maximum number of tokens",
            re.I,
        ),
    ),
    (
        errors.AuthError,
        re.compile(
            r"Invalid auth method|set an Auth method|FatalAuthenticationError|IneligibleTierError"
            r"|API key not valid|API_KEY_INVALID|\bUNAUTHENTICATED\b"
            r"|must specify the GEMINI_API_KEY|Error authenticating"
            r"|Could not load the default credentials|GOOGLE_APPLICATION_CREDENTIALS",
        ),
    ),
    (
        errors.ModelNotFound,
        re.compile(r"\bNOT_FOUND\b|is not found for API version|Requested entity was not found"),
    ),
    (
        errors.QuotaError,
        re.compile(
            r"\bRESOURCE_EXHAUSTED\b|exceeded your current quota|exhausted your .{0,20}quota"
        ),
    ),
    (
        errors.NetworkError,
        re.compile(
            r"getaddrinfo|\bENOTFOUND\b|\bEAI_AGAIN\b|\bECONNREFUSED\b|\bECONNRESET\b|\bETIMEDOUT\b"
            r"|fetch failed"
        ),
    ),
)
# A 404 leaves with exit 1 and the API's bare message; only the name of the exception tells it.
NO_SUCH_MODEL = re.compile(r"^(?!Error executing tool).*\bModelNotFoundError: ", re.M)
WRONG_KEY = re.compile(r"API_KEY_INVALID|API key (?:not valid|expired)")
CHECK_KEY = "check GEMINI_API_KEY; https://aistudio.google.com/apikey lists your keys"
_API_CODE = re.compile(r'(?:"code":\s*|\bHTTP )(\d{3})\b')
_API_JSON = re.compile(r'(?:\[API Error: )?(\{"error":.*\})\]?', re.S)
DAILY = re.compile(r"daily quota|PerDay|per day", re.I)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(
    r"^(?:Ripgrep is not available|\[STARTUP\]|YOLO mode is enabled"
    r"|Warning: (?:256-color|True|Basic terminal)"
    r"|Error executing tool|Full report available at|\s+at )"
)


def cause_of(text: str) -> type[errors.GeminorumError] | None:
    """The kind of failure that a message of the CLI speaks of."""
    return next((kind for kind, phrase in _PHRASES if phrase.search(text)), None)


def last_words(stderr: str) -> str:
    """The part of stderr that says why, without colours and everyday noise."""
    lines = (line.rstrip() for line in _ANSI.sub("", stderr).split("\n"))
    return "\n".join(line for line in lines if line and not _NOISE.match(line))


def http_status(message: str, exit_code: int | None) -> int | None:
    """The API's HTTP status, told by the message or, mod 256, by the exit code."""
    if found := _API_CODE.search(message):
        return int(found[1])
    # 400 … 511 leave as 144 … 255; 143 and below are the shell's signal codes and the CLI's own.
    return exit_code + 256 if exit_code is not None and 144 <= exit_code <= 255 else None


def worth_retrying(message: str, status: int | None) -> bool | None:
    """Would the same request succeed a little later? None: that depends on the kind of error."""
    if DAILY.search(message):
        return False
    return None if status is None else status in (408, 429, 500, 502, 503, 504)


class _ApiFailure(msgspec.Struct):
    code: int
    message: str
    status: str


class _ApiBody(msgspec.Struct):
    error: _ApiFailure


def said_by_api(message: str) -> _ApiFailure | None:
    found = _API_JSON.fullmatch(message)
    try:
        return typed.decode(found[1], _ApiBody).error if found else None
    except msgspec.DecodeError:
        return None
