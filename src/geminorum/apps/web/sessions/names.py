"""Which ids of sessions may stand in an address."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")


def is_session_id(text: object) -> bool:
    """Is it an id that the CLI would take? A file may say anything else."""
    return isinstance(text, str) and bool(_ID.fullmatch(text))
