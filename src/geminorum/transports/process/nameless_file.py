"""A file without a name, for bytes that another process is to read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PREFIX = "geminorum-"


@contextmanager
def open_nameless_file(content: bytes) -> Iterator[int]:
    """A descriptor to read the content from; a process that inherits it may keep it."""
    with os.fdopen(_open(), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _open() -> int:
    # In memory where the system can: what is as short as a prompt is there already, and a new file
    # on a disk may take a millisecond where many others were deleted just before.
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            return os.memfd_create(_PREFIX)
    with tempfile.TemporaryFile(prefix=_PREFIX) as file:
        return os.dup(file.fileno())
