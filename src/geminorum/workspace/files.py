"""Writes files, links and folders that were not there before, and never through a link."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geminorum.errors import WorkspaceConflict, WorkspaceError
from geminorum.workspace import beneath
from geminorum.workspace.archive import Item
from geminorum.workspace.names import parents_of, shown

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NEW_FILE |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def save_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a new file; FileExistsError if there is one, or a link."""
    with os.fdopen(os.open(path, _NEW_FILE, mode), "wb") as file:
        file.write(data)


@contextmanager
def failure_is_told(what: str) -> Iterator[None]:
    """A full disk, a folder that is not ours, or one on another file system."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "look at the folder's owner, its disk and its mounts")
        text = f"{what}: {error.strerror}; nothing was written"
        raise WorkspaceError(text, hint=hint) from error


_HINTS = {
    errno.ENOSPC: "make room on the disk, then try again",
    errno.EDQUOT: "make room on the disk, then try again",
    errno.EACCES: "allow writing in the folder, then try again",
    errno.EPERM: "allow writing in the folder, then try again",
    errno.EROFS: "the folder is on a disk that is read-only: name another one",
    errno.EXDEV: "a part of the folder is mounted: apply a patch of that part there",
}


def empty_folder(folder: Path) -> Path:
    """The same folder; WorkspaceConflict if there is something in it."""
    hint = "name a new or an empty folder"
    if os.path.lexists(folder) and not folder.is_dir():
        raise WorkspaceConflict(f"{folder} is no folder", hint=hint)
    if folder.is_dir() and any(folder.iterdir()):
        raise WorkspaceConflict(f"{folder} is not empty", hint=hint)
    return folder


class TreeWriter:
    """Writes items into an empty folder. If the block fails, removes what it wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_new = not folder.is_dir()
        self._written: list[str] = []
        self._made: set[str] = set()
        self._links: list[Item] = []

    def __enter__(self) -> TreeWriter:
        # Sources and their secrets: for nobody else on the machine.
        if self._is_new:
            self._folder.mkdir(mode=0o700, parents=True)
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if failure is None:
                self._write_links()
        except BaseException:
            failure = BaseException
            raise
        finally:
            if failure is not None:
                self._remove()

    def add(self, item: Item) -> None:
        """Writes a file or a folder. Links are written last, so that nothing follows one."""
        for parent in reversed(parents_of(item.name)):
            self._make_folder(parent)
        if item.entry.kind == "link":
            self._links.append(item)
        elif item.entry.kind == "folder":
            self._make_folder(item.name)
        else:
            self._create(item)

    def _write_links(self) -> None:
        for item in self._links:
            self._create(item)

    def _create(self, item: Item) -> None:
        name, entry = item.name, item.entry
        with self._note_name(name):
            if entry.kind == "link":
                beneath.create_link(self._folder, name, entry.target)
            else:
                mode = 0o777 if entry.executable else 0o666
                beneath.create_file(self._folder, name, item.contents, mode)

    def _make_folder(self, name: str) -> None:
        if name in self._made:
            return
        with self._note_name(name):
            beneath.make_folder(self._folder, name)
        self._made.add(name)

    @contextmanager
    def _note_name(self, name: str) -> Iterator[None]:
        """Notes a name before it is made: a full disk leaves a part of a file."""
        self._written.append(name)
        try:
            yield
        except FileExistsError as error:
            self._written.pop()
            raise _clash(name) from error

    def _remove(self) -> None:
        for name in reversed(self._written):
            # What is gone, or has somebody else's files in it, must not hide why we failed.
            with suppress(OSError):
                if beneath.is_folder(self._folder, name):
                    beneath.remove_folder(self._folder, name)
                else:
                    beneath.remove_file(self._folder, name)
        if self._is_new:
            with suppress(OSError):
                self._folder.rmdir()


def _clash(name: str) -> WorkspaceConflict:
    why = "this file system does not tell its name from another one's"
    return WorkspaceConflict(
        f"{shown(name)} is there already: {why}",
        paths=[name],
        hint="unpack on a file system that distinguishes upper and lower case",
    )
