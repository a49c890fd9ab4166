"""What the script before a CLI's requests asks and reports, and what it is answered."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

import msgspec

from geminorum.errors import LimitReached
from geminorum.events import Error
from geminorum.runtime import typed

GO = b'{"go":true}'
_MAX_BYTES = 256 * 1024 * 1024
"""Of a request; the API takes less. Whoever tells more would use up a limit for years."""


class Ask(msgspec.Struct, frozen=True, tag_field="what", tag="ask"):
    """A request to a model is about to be sent."""

    id: str
    model: str
    size: Annotated[int, msgspec.Meta(ge=0, le=_MAX_BYTES)]
    """Bytes of the request."""
    key: str | None = None
    """The fingerprint of the API key that it carries."""


class Report(msgspec.Struct, frozen=True, tag_field="what", tag="report"):
    """A request has been answered, or came to nothing."""

    id: str
    is_refused: bool = False
    """It reached no model: there was no connection, or the API answered with an error."""
    model: str | None = None
    usage: dict[str, Any] | None = None
    """The `usageMetadata` of the answer."""


Message: TypeAlias = Ask | Report
_decoder: Any = typed.decoder(Message)
# In the words of the message, because versions of the CLI wrap the rest of the body differently.
_REFUSED, _LATER = "[refused]", "[again in {:.0f} s]"
_MARKED = re.compile(r"\[limit reached\] (.*?) \[(?:refused|again in (\d+) s)\]", re.S)


def message_of(body: bytes) -> Message | None:
    try:
        found: Message = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found


def refusal(text: str, retry_after: float | None = None) -> bytes:
    """The body of a response that the CLI takes for the API's: it reports it, and does not try
    again. `retry_after`: the request may be sent in so many seconds."""
    end = _REFUSED if retry_after is None else _LATER.format(retry_after)
    told = {
        "code": 400,
        "status": "FAILED_PRECONDITION",
        "message": f"[limit reached] {text} {end}",
    }
    return msgspec.json.encode({"error": told})


def limit_in(message: str) -> Error | None:
    """The error that a refusal was made of, if a failure of the CLI repeats one."""
    found = _MARKED.search(message)
    if found is None:
        return None
    return limit_error(found[1], None if found[2] is None else float(found[2]))


def limit_error(text: str, retry_after: float | None) -> Error:
    return Error(
        text,
        LimitReached.code,
        hint=LimitReached.default_hint,
        status=LimitReached.default_status,
        retryable=retry_after is not None,
        retry_after=retry_after,
    )
