"""JSON in broken encodings to its data: one bad character must not cost the message."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from geminorum.wire.surrogates import loose, whole

_MENDABLE = re.compile(rb"[^\x00-\x7f]|\\u")


def mended(line: bytes) -> tuple[Any, bytes]:
    """The line's data, and the line as it can be kept; ValueError where it is not JSON at all.

    Bytes that are not UTF-8, and half surrogate pairs, become U+FFFD: one bad character must not
    cost the message it stands in.
    """
    try:
        return msgspec.json.decode(line), line
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A file may hold millions of lines that are nothing at all.
        if _MENDABLE.search(line) is None:
            raise
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    try:
        return _mended(line)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def _mended(line: bytes) -> tuple[Any, bytes]:
    clean = whole(json.dumps(loose(line), ensure_ascii=False)).encode()
    return msgspec.json.decode(clean), clean
