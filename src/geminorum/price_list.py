"""Google's list prices, from the library `genai_prices`, mostly without loading it.

To load it takes a quarter of a second, for the prices of fifty providers and for pydantic. Its data
file is there to be read, in a hundredth of that time. The library itself is asked where the program
uses it, because it may have fetched newer prices then, and where its file has another form.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from geminorum.runtime.lazy import price_library
from geminorum.wire.list_prices import Provider, provider_in

_GOOGLE = "google"
_COMPACT_DATE = re.compile(r"-20\d{6}")
"""The library also looks for the same date with dashes."""


_UNREADABLE = (OSError, ValueError)
"""Why the library is asked instead; it may know better."""


class ListedModel(Protocol):
    """A model of the list, whichever way it was read."""

    @property
    def id(self) -> str: ...
    @property
    def context_window(self) -> int | None: ...
    @property
    def deprecated(self) -> bool | None: ...
    def get_prices(self, when: datetime, /) -> Any: ...


def find_model(name: str) -> ListedModel | None:
    """The model that the list means by this name; None if it has none."""
    if not _is_library_used():
        with suppress(*_UNREADABLE):
            found = _found_in_file(name.lower())
            if found is not None or not _COMPACT_DATE.search(name):
                return found
    return _found_by_library(name)


def google_models() -> Sequence[ListedModel]:
    """All of Google's models, in the order of the list."""
    if not _is_library_used():
        with suppress(*_UNREADABLE):
            return [row.model for row in _provider(_GOOGLE).rows]
    providers = price_library.get_snapshot().providers
    return next(one.models for one in providers if one.id == _GOOGLE)


def load() -> None:
    """Reads the list, so that the first question need not wait for it."""
    if not _is_library_used():
        with suppress(*_UNREADABLE):
            _provider(_GOOGLE)
            return
    # The library reads its list when it is first asked for a price.
    price_library.get_snapshot()


def _is_library_used() -> bool:
    return "genai_prices" in sys.modules


@lru_cache(maxsize=256)
def _found_in_file(name: str) -> ListedModel | None:
    """Remembered: a report asks a hundred thousand times for a handful of models."""
    google = _provider(_GOOGLE)
    for provider in chain([google], map(_provider, google.fallbacks)):
        for row in provider.rows:
            if row.is_match(name):
                return row.model
    return None


def _found_by_library(name: str) -> ListedModel | None:
    try:
        _, model = price_library.get_snapshot().find_provider_model(name, None, _GOOGLE, None)
    except LookupError:
        return None
    return model


@cache
def _provider(name: str) -> Provider:
    return provider_in(_data_file().read_bytes(), name)


def _data_file() -> Path:
    spec = find_spec("genai_prices")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("genai_prices")
    return Path(spec.origin).with_name("data.py")
