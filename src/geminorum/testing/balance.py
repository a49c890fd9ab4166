"""Whether a conversation pairs function calls and responses as Google's API demands."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from geminorum.testing.request import parts_of

# Google's own words.
UNEQUAL = (
    "Please ensure that the number of function response parts is equal to the number of function "
    "call parts of the function call turn."
)
ORPHANED = "Please ensure that function response turn comes immediately after a function call turn."


def imbalance(contents: Sequence[Mapping[str, Any]]) -> str | None:
    """The message of Google's HTTP 400, or None for a conversation that Google accepts."""
    for before, content in pairwise([{}, *contents]):
        calls, responses = _count(before, "functionCall"), _count(content, "functionResponse")
        if responses and not calls:
            return ORPHANED
        if responses != calls:
            return UNEQUAL
    return None


def _count(content: Mapping[str, Any], kind: str) -> int:
    snake = kind.replace("C", "_c").replace("R", "_r")
    return sum(kind in part or snake in part for part in parts_of(content))
