"""A path to what the regular file there holds: never waits for a pipe, never reads without end."""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO

MAX_BYTES = 16 * 1024 * 1024
"""More than any settings, context file, skill or policy has."""

# Otherwise, opening a pipe without a writer would block.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class UnfitFile(OSError):
    """There is something, but not a regular file, or one with too much in it."""


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """The file, to be read in binary; UnfitFile where it is a pipe, a device or a folder.

    Without `follow`, a link is no file either.
    """
    # Before it is opened, too: to open a device may do something by itself.
    _require_regular(path, os.stat(path, follow_symlinks=follow).st_mode)  # noqa: PTH116
    flags = _FLAGS | getattr(os, "O_BINARY", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _require_regular(path, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def read_bytes(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes:
    """All of it; UnfitFile where it has more than `limit` bytes."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UnfitFile(f"{os.fspath(path)!r} has more than {limit:,} bytes")
    return data


def read_text(
    path: str | os.PathLike[str], *, errors: str = "strict", limit: int = MAX_BYTES
) -> str:
    """The same as text in UTF-8, with `\\n` at the end of each line."""
    data = io.BytesIO(read_bytes(path, limit))
    return io.TextIOWrapper(data, encoding="utf-8", errors=errors).read()


def _require_regular(path: str | os.PathLike[str], mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UnfitFile(f"{os.fspath(path)!r} is not a regular file")
