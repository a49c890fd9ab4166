"""What is done to names below a folder, without following a link on the way there.

Each folder on the way is opened by itself, and a link in its place is an error. So a link that
somebody else puts there in the last moment leads nobody out of the folder. On Windows, where
Python cannot do this, the last moment is not covered.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IS_COVERED = sys.platform != "win32" and os.open in os.supports_dir_fd
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# On Linux, passing through a folder does not need the permission to list it.
_PASSED = _FOLDER | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
# Otherwise, opening a pipe without a writer would block.
_READ = _FILE | os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NEW = _FILE | os.O_WRONLY | os.O_CREAT | os.O_EXCL


@contextmanager
def _parent(folder: Path, name: str) -> Iterator[tuple[int | None, str]]:
    """Where the name is: an open folder, and the last part. NotADirectoryError behind a link."""
    if not IS_COVERED:
        yield None, _checked_path(folder, name)
        return
    *above, last = name.split("/")
    here = os.open(folder, _PASSED)
    try:
        for part in above:
            below = _open_folder(here, part, _PASSED)
            os.close(here)
            here = below
        yield here, last
    finally:
        os.close(here)


def _open_folder(here: int | None, part: str, flags: int) -> int:
    try:
        return os.open(part, flags, dir_fd=here)
    except OSError as error:
        if error.errno != errno.ELOOP:  # What some systems say of a link.
            raise
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), part) from error


def _checked_path(folder: Path, name: str) -> str:
    path = folder
    for part in name.split("/")[:-1]:
        path /= part
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return os.fspath(folder / name)


def stat_of(folder: Path, name: str) -> os.stat_result | None:
    """What the name is, which may be a link; None if there is nothing.

    A name below a link is nothing: what is behind the link has another name, or lies outside.
    """
    try:
        with _parent(folder, name) as (here, last):
            return os.stat(last, dir_fd=here, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_folder(folder: Path, name: str) -> bool:
    """Is it a folder, and no link to one?"""
    found = stat_of(folder, name)
    return found is not None and stat.S_ISDIR(found.st_mode)


def open_to_read(folder: Path, name: str) -> int:
    """Opens a file; never waits for the writer of a pipe."""
    with _parent(folder, name) as (here, last):
        return os.open(last, _READ, dir_fd=here)


def target_of(folder: Path, name: str) -> str:
    """Where a link points to."""
    with _parent(folder, name) as (here, last):
        return os.readlink(last, dir_fd=here)


def open_new(folder: Path, name: str, mode: int) -> int:
    """Opens a new file to be written; FileExistsError if there is anything."""
    with _parent(folder, name) as (here, last):
        return os.open(last, _NEW, mode, dir_fd=here)


def create_file(folder: Path, name: str, data: bytes, mode: int) -> None:
    """Writes a new file; FileExistsError if there is anything."""
    with os.fdopen(open_new(folder, name, mode), "wb") as file:
        file.write(data)


def create_link(folder: Path, name: str, target: str) -> None:
    """Makes a link; FileExistsError if there is anything."""
    with _parent(folder, name) as (here, last):
        os.symlink(target, last, dir_fd=here)


def make_folder(folder: Path, name: str, mode: int | None = None) -> None:
    """Makes a folder; a mode is not subject to the umask."""
    with _parent(folder, name) as (here, last):
        os.mkdir(last, 0o777 if mode is None else mode, dir_fd=here)
        if mode is not None and IS_COVERED:
            opened = _open_folder(here, last, _FOLDER | os.O_RDONLY)
            os.fchmod(opened, mode)
            os.close(opened)


def remove_folder(folder: Path, name: str) -> None:
    """Removes an empty folder."""
    with _parent(folder, name) as (here, last):
        os.rmdir(last, dir_fd=here)


def remove_file(folder: Path, name: str) -> None:
    """Removes a file or a link."""
    with _parent(folder, name) as (here, last):
        os.unlink(last, dir_fd=here)


def move(folder: Path, old: str, new: str) -> None:
    """Renames a file or a link, over another one if there is one."""
    with _parent(folder, old) as (here, last), _parent(folder, new) as (there, name):
        os.rename(last, name, src_dir_fd=here, dst_dir_fd=there)


def link_again(folder: Path, old: str, new: str) -> None:
    """Gives a file or a link another name; FileExistsError if there is anything."""
    with _parent(folder, old) as (here, last), _parent(folder, new) as (there, name):
        os.link(last, name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
