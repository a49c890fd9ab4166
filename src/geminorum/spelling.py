"""Names as others spell them."""

from __future__ import annotations

import re

_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake_case(name: str) -> str:
    """`maxTurns` as `max_turns`; what is snake_case already stays as it is."""
    return _WORD_END.sub("_", name).lower()
