"""Writes files, links and folders that were not there before, and never through a link."""

from __future__ import annotations

import os
from pathlib import Path

from geminorum.errors import WorkspaceConflict
from geminorum.workspace.archive import Item
from geminorum.workspace.names import parents_of

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NEW_FILE |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def save_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a new file; FileExistsError if there is one, or a link."""
    with os.fdopen(os.open(path, _NEW_FILE, mode), "wb") as file:
        file.write(data)


def empty_folder(folder: Path) -> Path:
    """The same folder; WorkspaceConflict if there is something in it."""
    if folder.is_dir() and any(folder.iterdir()):
        raise WorkspaceConflict(f"{folder} is not empty", hint="name a new or an empty folder")
    return folder


class TreeWriter:
    """Writes items into an empty folder. If the block fails, removes what it wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: list[Path] = []
        self._made: set[str] = set()
        self._links: list[Item] = []

    def __enter__(self) -> TreeWriter:
        # Sources and their secrets: for nobody else on the machine.
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True)
            self._written.append(self._folder)
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
        path = self._folder / item.name
        try:
            if item.entry.kind == "link":
                path.symlink_to(item.entry.target)
            else:
                save_file(path, item.contents, 0o777 if item.entry.executable else 0o666)
        except FileExistsError as error:
            raise _clash(item.name) from error
        self._written.append(path)

    def _make_folder(self, name: str) -> None:
        if name in self._made:
            return
        try:
            (self._folder / name).mkdir()
        except FileExistsError as error:
            raise _clash(name) from error
        self._made.add(name)
        self._written.append(self._folder / name)

    def _remove(self) -> None:
        for path in reversed(self._written):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()


def _clash(name: str) -> WorkspaceConflict:
    return WorkspaceConflict(
        f"{name} is there already: this file system does not tell its name from another one's",
        paths=[name],
        hint="unpack on a file system that distinguishes upper and lower case",
    )
