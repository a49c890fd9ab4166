"""Files that hold conversations: made for their owner alone. One that is there keeps its mode."""

from __future__ import annotations

import os
from pathlib import Path


def open_private(path: str, flags: int) -> int:
    """For `open(…, opener=open_private)`."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, text: str, how: str = "w") -> None:
    with open(path, how, encoding="utf-8", opener=open_private) as file:
        file.write(text)
