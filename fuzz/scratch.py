"""A folder for the files that decoders read, for as long as this process lives."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")  # nosec B108  # mkdtemp makes a folder of its own there
"""Linux keeps it in memory: a journal that is synced to a disk ten times a round is slow."""


@cache
def scratch_folder(name: str) -> Path:
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=f"geminorum-fuzz-{name}-", dir=place))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def scratch_file(folder: str, name: str, content: bytes) -> Path:
    file = scratch_folder(folder) / name
    file.write_bytes(content)
    return file
