"""A folder to nothing: whatever an agent left in it, and never through a link."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def remove_tree(folder: Path) -> None:
    """Removes a folder and everything in it, as far as the system allows; raises no OSError.

    Also folders that nobody may write in, as Go's module cache has them, and more folders in each
    other than Python can enter.
    """
    with suppress(FileNotFoundError, RecursionError, OSError):
        shutil.rmtree(folder)
    if sys.platform != "win32" and os.path.lexists(folder):
        with suppress(OSError):
            _remove_stubborn(folder)


def _remove_stubborn(folder: Path) -> None:
    """Moves each folder to the top before it is emptied, so nothing has to be entered deeply."""
    folder.chmod(0o700)
    top = os.open(folder, _FOLDER)
    try:
        names, numbers = [""], count()
        while names:
            names += _empty(top, names.pop(), numbers)
    finally:
        os.close(top)
    folder.rmdir()


def _empty(top: int, name: str, numbers: count[int]) -> list[str]:
    """Empties a folder at the top, or the top itself, and returns the folders that were in it."""
    here = os.open(name or ".", _FOLDER, dir_fd=top)
    try:
        found = [_move_up(top, here, entry, numbers) for entry in os.listdir(here)]  # noqa: PTH208
    finally:
        os.close(here)
    if name:
        os.rmdir(name, dir_fd=top)
    return [one for one in found if one]


def _move_up(top: int, here: int, entry: str, numbers: count[int]) -> str:
    """Moves a folder to the top and returns its new name; removes anything else."""
    if not stat.S_ISDIR(os.stat(entry, dir_fd=here, follow_symlinks=False).st_mode):
        os.unlink(entry, dir_fd=here)
        return ""
    os.chmod(entry, 0o700, dir_fd=here)
    name = f".geminorum-removed-{next(numbers)}"
    os.rename(entry, name, src_dir_fd=here, dst_dir_fd=top)
    return name
