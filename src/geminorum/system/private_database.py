"""SQLite files that only their user can read and write, also in folders that others write to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_BESIDE = ("", "-wal", "-shm", "-journal")
"""What follows the name of the file in those that SQLite makes."""


def create_private(path: Path) -> None:
    """Makes the file, unless it is there. SQLite gives those that it makes beside it the same mode.

    One that is there is not opened: to close it would let go of every lock that SQLite holds on it
    in this process.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A link of the user's own may lead elsewhere; one in a shared folder may be anybody's.
    place = path if _is_shared(path) else path.resolve()
    with suppress(FileExistsError):
        os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def is_absent(path: Path) -> bool:
    """A look makes no file: the name may be mistyped."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        pass  # Whoever opens it says what is wrong.
    return False


def planted_file(path: Path) -> Path | None:
    """A file of another user's in place of the database, or beside it, who would read along.

    To be looked for before each use: SQLite makes and removes those beside it all the time.
    """
    if not _is_shared(path):
        return None
    return next((one for one, found in _files(path) if not _is_own(found)), None)


def has_other_writers(path: Path) -> bool:
    """Could another user change what is in the database, or exchange it?"""
    if sys.platform == "win32":
        return False
    folder = path.parent.stat()
    is_shared = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    writable = stat.S_IWGRP | stat.S_IWOTH
    return bool(is_shared) or any(
        not _is_own(found) or found.st_mode & writable for _, found in _files(path)
    )


def has_other_readers(path: Path) -> bool:
    """Does the mode of the database let other users read it?"""
    readable = stat.S_IRGRP | stat.S_IROTH
    return sys.platform != "win32" and any(found.st_mode & readable for _, found in _files(path))


def _is_shared(path: Path) -> bool:
    """May everybody write to its folder, such as /tmp?"""
    return sys.platform != "win32" and bool(path.parent.stat().st_mode & stat.S_IWOTH)


def _files(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for ending in _BESIDE:
        beside = path.with_name(path.name + ending)
        with suppress(FileNotFoundError):
            yield beside, beside.lstat()


def _is_own(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid in (0, os.geteuid())
