"""Whatever a store raises, as a StoreError that shows no credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from geminorum.credentials import without_credentials
from geminorum.errors import GeminorumError, StoreError
from geminorum.hints import advice

_MAX_TEXT = 500
_DEBUG_OF_OBSTORE = "\n\nDebug source:"
_KEPT = "what was not saved is still on this machine, and the next turn saves it"
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|permission denied"
    r"|role \"[^\"]*\" (?:is not permitted|does not exist)|Unauthenticated|PermissionDenied"
    r"|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch",
    re.IGNORECASE,
)
_MISNAMED = re.compile(
    r"unable to open database file|NoSuchBucket|bucket does not exist|file is not a database"
    r"|database \"[^\"]*\" does not exist|failed to resolve host",
    re.IGNORECASE,
)
_FULL = re.compile(
    r"database or disk is full|No space left|Disk quota exceeded|could not extend file",
    re.IGNORECASE,
)


@contextmanager
def explain_failures(url: str = "") -> Iterator[None]:
    """Turns what is not geminorum's own into a StoreError, without the credentials of `url`."""
    try:
        yield
    except (GeminorumError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # A library in Rust that panics raises no Exception.
        why = str(error).partition(_DEBUG_OF_OBSTORE)[0]
        told = f"the store failed: {type(error).__name__}: {why}"
        text = without_credentials(told, url)
        # The cause is shown with it in a traceback: without it rather than with a password.
        shown = StoreError(text[:_MAX_TEXT], **_advice_about(why))
        raise shown from (error if text == told else None)


def _advice_about(why: str) -> dict[str, Any]:
    """What to do about it, where the words of the store say what is wrong; it may be another's
    store, whose words are unknown."""
    if _REFUSED.search(why):
        what = "check the user, password or keys of the store[ in {Options.store=…}]"
        hint = advice(f"{what}; {_KEPT}")
        return {"hint": hint, "retryable": False}
    if _MISNAMED.search(why):
        hint = advice("check the address of the store[ in {Options.store=…}]; " + _KEPT)
        return {"hint": hint, "retryable": False}
    return {"hint": f"make room where the store is; {_KEPT}"} if _FULL.search(why) else {}
