"""A folder on disk to entries: what each name is, its contents, and a digest to compare by."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from geminorum.errors import WorkspaceError, WorkspaceTooLarge
from geminorum.hints import advice
from geminorum.workspace import beneath
from geminorum.workspace.names import leads_out, parents_of, shown

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

Take: TypeAlias = Callable[[bytes], object]
"""Gets the contents of a file, piece by piece."""

FOLDER = Entry("folder")
_PIECE_BYTES = 1024 * 1024


def file_entry(contents: bytes, *, executable: bool = False) -> Entry:
    """The entry of a file with these contents."""
    return Entry("file", sha256(contents).hexdigest(), len(contents), executable)


def read_entry(folder: Path, name: str, max_bytes: int) -> tuple[Entry, bytes] | None:
    """Reads what a name is on disk; None if there is nothing, or nothing that can travel.

    WorkspaceTooLarge for a longer file: it may have grown since somebody looked.
    """
    contents = bytearray()

    def take(piece: bytes) -> None:
        contents.extend(piece)
        if len(contents) > max_bytes:
            text = f"{shown(name)} grows while it is read"
            raise WorkspaceTooLarge(text, paths=[name], hint="end what writes to it, and try again")

    entry = entry_of(folder, name, take)
    return None if entry is None else (entry, bytes(contents))


def entry_of(folder: Path, name: str, take: Take | None = None) -> Entry | None:
    """The same without the contents: of any size, a file takes little memory."""
    found = beneath.stat_of(folder, name)
    try:
        if found is None:
            return None
        if stat.S_ISLNK(found.st_mode):
            return Entry("link", target=beneath.target_of(folder, name))
        if stat.S_ISDIR(found.st_mode):
            return FOLDER
        return _read_file(folder, name, take) if stat.S_ISREG(found.st_mode) else None
    except FileNotFoundError:
        return None  # Removed since then, as if it had never been there.
    except OSError as error:
        raise _unreadable(name, error) from error


def _read_file(folder: Path, name: str, take: Take | None) -> Entry | None:
    with os.fdopen(beneath.open_to_read(folder, name), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return None
        digest, size = sha256(), 0
        # No more than it has now: somebody may write to it faster than we read.
        while piece := file.read(min(_PIECE_BYTES, found.st_size - size)):
            size += len(piece)
            digest.update(piece)
            if take is not None:
                take(piece)
    return Entry("file", digest.hexdigest(), size, bool(found.st_mode & stat.S_IXUSR))


def _unreadable(name: str, error: OSError) -> WorkspaceError:
    """Somebody replaces it while it is read, or it is not for us."""
    return WorkspaceError(
        f"{shown(name)} cannot be read: {error.strerror}",
        paths=[name],
        hint=advice(
            "make it readable, or leave it out of the pack: {workspace.exclude=name|exclude}",
            name=name,
            exclude=f"exclude={[name]}",
        ),
    )


def mode_of(folder: Path, name: str) -> int | None:
    """The mode of what the name is, which may be a link; None if there is nothing."""
    found = beneath.stat_of(folder, name)
    return None if found is None else found.st_mode


def links_out_of(tree: Tree) -> list[str]:
    """The links of a tree that lead out of it."""
    links = {name: entry.target for name, entry in tree.items() if entry.kind == "link"}
    return [name for name, target in links.items() if leads_out(name, target, links.get)]


def without_parents(names: Iterable[str]) -> Iterator[str]:
    """The names without folders that other names imply."""
    known = list(names)
    implied = {parent for name in known for parent in parents_of(name)}
    return (name for name in known if name not in implied)
