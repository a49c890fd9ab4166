"""Does anybody in a saved session say these words?"""

from __future__ import annotations

import re
from pathlib import Path

from geminorum.errors import SessionUnreadable
from geminorum.sessions import reading
from geminorum.sessions.reading import opened
from geminorum.sessions.summary import SessionInfo
from geminorum.wire.sessions.records import words_of

_PLAIN = re.compile(r"[ !#-.0-\[\]-~]+")
"""Letters that JSON writes as they are: ASCII without controls, quotes, backslashes and slashes."""


def says(info: SessionInfo, text: str) -> bool:
    """Does a person or the model say it? Upper and lower case are the same."""
    wanted = text.casefold()
    try:
        if not info.id or not _may_contain(info.path, wanted):
            return False
        messages = reading.load(info.path, info.cwd).messages
        return any(wanted in words_of(one).casefold() for one in messages)
    except SessionUnreadable:
        return False


def _may_contain(path: Path, wanted: str) -> bool:
    """False if no message can have it: most files are left without decoding a single one."""
    # A document of older CLIs spreads one message over many lines.
    if path.suffix != ".jsonl" or not _PLAIN.fullmatch(wanted):
        return True
    needle = wanted.encode()
    with opened(path) as file:
        return any(_line_may_contain(line, needle) for line in file)


def _line_may_contain(line: bytes, needle: bytes) -> bool:
    # Letters may be escaped, and the words may go over the end of one part into the next.
    if needle in line.lower() or b"\\u" in line or line.count(b'"text"') > 1:
        return True
    # Some letters become ASCII ones without their case: ß is "ss", the Kelvin sign "k".
    return not line.isascii() and needle in line.decode("utf-8", "replace").casefold().encode()
