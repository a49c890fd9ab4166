"""Text with half an emoji in it: JSON can hold half a surrogate pair, and UTF-8 cannot.

A model's answer comes in chunks, and a chunk may end between the two halves. They are joined again;
a half that stays alone becomes U+FFFD.
"""

from __future__ import annotations

import json
import re
from typing import Any

REPLACEMENT = "\ufffd"
_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]\\Z")


def loose(data: bytes) -> Any:
    """JSON with its halves left in it; ValueError, or RecursionError, where it is none."""
    return json.loads(data.decode("utf-8", "replace"))


def whole(text: str) -> str:
    """The text with its pairs joined, and a replacement for every half that is alone."""
    if _HALF.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_halves(data: bytes) -> bytes:
    """JSON with a replacement for every half; ValueError, or RecursionError, where it is none."""
    if b"\\u" not in data:
        return data
    return whole(json.dumps(json.loads(data.decode()), ensure_ascii=False)).encode()


class PairJoiner:
    """The chunks of one text, each as it can be shown: half a pair waits for its other half."""

    def __init__(self) -> None:
        self._half = ""

    @property
    def is_waiting(self) -> bool:
        return bool(self._half)

    def add(self, chunk: str) -> str:
        """What can be shown now; empty where that is nothing yet."""
        text = self._half + chunk
        found = _FIRST_HALF.search(text)
        self._half = found[0] if found else ""
        return whole(text.removesuffix(self._half))

    def take_rest(self) -> str:
        """Takes out a half for which no other came; returns what to show of it."""
        half, self._half = self._half, ""
        return REPLACEMENT if half else ""
