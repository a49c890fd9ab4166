"""Whatever a store raises, as a StoreError that shows no credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from geminorum.credentials import without_credentials
from geminorum.errors import GeminorumError, StoreError

_MAX_TEXT = 500
_DEBUG_OF_OBSTORE = "\n\nDebug source:"


@contextmanager
def explain_failures(url: str = "") -> Iterator[None]:
    """Turns what is not geminorum's own into a StoreError, without the credentials of `url`."""
    try:
        yield
    except GeminorumError:
        raise
    except Exception as error:
        why = str(error).partition(_DEBUG_OF_OBSTORE)[0]
        told = f"the store failed: {type(error).__name__}: {why}"
        text = without_credentials(told, url)
        # The cause is shown with it in a traceback: without it rather than with a password.
        raise StoreError(text[:_MAX_TEXT]) from (error if text == told else None)
