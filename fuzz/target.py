"""A decoder as the fuzzer sees it: bytes in, and which exceptions it documents."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

Shape: TypeAlias = Literal["json", "toml", "text"]

_FREE_FRAMES = 900
"""How deep a decoder may call. Always the same, so that a finding about nesting repeats."""


@dataclass(frozen=True, repr=False)
class Target:
    """A decoder, the recordings to begin from, and what it may raise."""

    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    typed: tuple[type[BaseException], ...] = ()
    """The exceptions that its documentation names. Anything else is a finding."""
    shape: Shape = "json"
    """What a seed can be parsed as, to be changed by its structure: JSON in one or many lines."""
    words: tuple[bytes, ...] = ()
    """What has a meaning to this decoder, and is inserted anywhere."""
    repeated: tuple[bytes, ...] = ()
    """What a file may hold any number of; `@@` in it is the number."""
    documented_warnings: str = "(?!)"
    """A pattern for the warnings that its documentation names."""

    def __repr__(self) -> str:
        return f"Target({self.name!r})"

    def attempt(self, data: bytes) -> None:
        """Decodes the data; raises what the decoder must not have raised, warnings included."""
        with _fixed_room(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", self.documented_warnings)
            with suppress(*self.typed):
                self.run(data)


@contextmanager
def _fixed_room() -> Iterator[None]:
    """Room for the same number of calls, however deep the stack is already."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + _FREE_FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
