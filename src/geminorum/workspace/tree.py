"""A folder on disk to entries: what each name is, its contents, and a digest to compare by."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from geminorum.system.regular_file import open_regular
from geminorum.workspace.names import leads_out, parents_of

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a name in a workspace is. Two entries are equal if their bytes are."""

    kind: Literal["file", "link", "folder"]
    """A folder is an entry of its own only if nothing in it travels."""
    digest: str = ""
    """SHA-256 of a file's contents."""
    size: int = 0
    executable: bool = False
    target: str = ""
    """Where a link points to."""


Tree: TypeAlias = dict[str, Entry]
"""Names, relative and with `/`, to entries. Names that are not UTF-8 have surrogate escapes."""

FOLDER = Entry("folder")


def file_entry(contents: bytes, *, executable: bool = False) -> Entry:
    """The entry of a file with these contents."""
    return Entry("file", sha256(contents).hexdigest(), len(contents), executable)


def read_entry(folder: Path, name: str) -> tuple[Entry, bytes] | None:
    """Reads what a name is on disk; None if there is nothing, or nothing that can travel."""
    mode = mode_of(folder, name)
    if mode is None:
        return None
    if stat.S_ISLNK(mode):
        # Not as a Path, which would drop a `./` in front and a `/` at the end.
        return Entry("link", target=os.readlink(folder / name)), b""  # noqa: PTH115
    if stat.S_ISDIR(mode):
        return FOLDER, b""
    return _read_file(folder / name) if stat.S_ISREG(mode) else None


def _read_file(path: Path) -> tuple[Entry, bytes]:
    with open_regular(path) as file:
        contents = file.read()
        executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
    return file_entry(contents, executable=executable), contents


def mode_of(folder: Path, name: str) -> int | None:
    """The mode of what the name is, which may be a link; None if there is nothing.

    A name below a link is nothing: what is behind the link has another name, or lies outside.
    """
    if any((folder / parent).is_symlink() for parent in parents_of(name)):
        return None
    try:
        return (folder / name).lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def links_out_of(tree: Tree) -> list[str]:
    """The links of a tree that lead out of it."""
    links = {name: entry.target for name, entry in tree.items() if entry.kind == "link"}
    return [name for name, target in links.items() if leads_out(name, target, links.get)]


def without_parents(names: Iterable[str]) -> Iterator[str]:
    """The names without folders that other names imply."""
    known = list(names)
    implied = {parent for name in known for parent in parents_of(name)}
    return (name for name in known if name not in implied)
