"""A folder to a pack, which is one file, and a pack to a folder somewhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from geminorum.errors import InvalidPack, WorkspaceError
from geminorum.hints import advice
from geminorum.workspace import beneath
from geminorum.workspace.archive import (
    MAX_BYTES,
    MAX_ENTRIES,
    Archive,
    Item,
    too_large,
    too_many,
    write_archive,
)
from geminorum.workspace.files import TreeWriter, empty_folder, failure_is_told, save_file
from geminorum.workspace.listing import Rules, list_origin
from geminorum.workspace.names import listed, shown
from geminorum.workspace.tree import LFS_POINTER, Tree, links_out_of, read_entry

_LARGEST_SHOWN = 3
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Pack:
    """A folder as one file: a compressed tar. The same folder always gives the same bytes."""

    data: bytes = field(repr=False)
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Names that stayed at the origin because they are ignored. Known to the maker only."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pack:
        """Reads a pack that was saved."""
        return cls(Path(path).read_bytes())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a new file that only its owner can read; FileExistsError if there is one."""
        save_file(Path(path), self.data)

    def base(self, max_bytes: int = MAX_BYTES) -> Base:
        """What is in the pack, as far as comparing a folder with it needs; checks all of it."""
        archive = Archive(self.data, "pack", max_bytes)
        tree = {item.name: item.entry for item in archive.items()}
        refuse_links(tree, InvalidPack)
        return Base(tree, _rules_in(archive))


@dataclass(frozen=True, slots=True)
class Base:
    """The state that changes are relative to."""

    tree: Tree
    rules: Rules


def pack_folder(
    folder: Path,
    *,
    max_bytes: int = MAX_BYTES,
    exclude: Collection[str] = (),
    submodules: bool = False,
    lfs_pointers: bool = False,
) -> Pack:
    """Packs what git tracks and what it does not ignore; everything, where git has no part."""
    listing, rules = list_origin(folder, exclude, submodules=submodules)
    require_size(folder, listing.names, max_bytes)
    items = list(_items(folder, listing.names, max_bytes))
    refuse_links({item.name: item.entry for item in items}, WorkspaceError)
    if not lfs_pointers:
        _refuse_pointers(items)
    facts = {"git": rules.uses_git, "ignore": rules.ignore, "exclude": rules.exclude}
    return Pack(write_archive("pack", facts, items), tuple(listing.left_out))


def unpack_into(pack: Pack, folder: Path, max_bytes: int = MAX_BYTES) -> Base:
    """Unpacks into an empty or a new folder; on a failure, what was written is removed again."""
    base = pack.base(max_bytes)
    told = failure_is_told(f"the pack cannot be unpacked into {folder}")
    with told, TreeWriter(empty_folder(folder)) as writer:
        for item in Archive(pack.data, "pack", max_bytes).items():
            writer.add(item)
    return base


def require_size(folder: Path, names: Collection[str], max_bytes: int) -> None:
    """Refuses a folder that is too large before anything is read."""
    sizes = {name: _size_of(folder, name) for name in names}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST_SHOWN]
    if len(sizes) > MAX_ENTRIES:
        raise too_many(f"{folder} has {len(sizes):,} files; it", _leave_out(largest))
    if sum(sizes.values()) > max_bytes:
        shown_sizes = ", ".join(f"{shown(name)} ({sizes[name]:,})" for name in largest)
        what = f"{folder} has {sum(sizes.values()):,} bytes, most of them in {shown_sizes}; it"
        raise too_large(max_bytes, what, largest)


def _size_of(folder: Path, name: str) -> int:
    found = beneath.stat_of(folder, name)
    # What the file system needs for an empty folder does not travel.
    return found.st_size if found is not None and not stat.S_ISDIR(found.st_mode) else 0


def _leave_out(names: Collection[str]) -> str:
    first = next(iter(names), "")
    top = first.partition("/")[0]
    return advice(
        "leave a folder out: {workspace.exclude=name|exclude}", name=top, exclude=f"exclude={[top]}"
    )


def _items(folder: Path, names: Iterable[str], room: int) -> Iterator[Item]:
    for name in names:
        # None: it was removed since it was listed.
        if (found := read_entry(folder, name, room)) is not None:
            room -= len(found[1])
            yield Item(name, *found)


def refuse_links(tree: Tree, kind: type[WorkspaceError], hint: str | None = None) -> None:
    """Refuses a tree with a link that leads out of it."""
    if bad := links_out_of(tree):
        pairs = ", ".join(f"{shown(one)} → {shown(tree[one].target)}" for one in bad[:_NAMES_SHOWN])
        raise kind(
            f"links lead out of the folder, or into a repository's own: {pairs}",
            paths=bad,
            hint=hint
            or advice(
                "point them to a relative path inside, or leave them out: "
                "{workspace.exclude=name|exclude}",
                name=bad[0],
                exclude=f"exclude={bad[:1]}",
            ),
        )


def _refuse_pointers(items: Iterable[Item]) -> None:
    bad = [item.name for item in items if item.contents.startswith(LFS_POINTER)]
    if bad:
        raise WorkspaceError(
            f"pointers of Git LFS are in the place of files: {listed(bad)}",
            paths=bad,
            hint=advice(
                "fetch them with `git lfs pull`, or let the pointers travel: "
                "{workspace.lfs_pointers|lfs_pointers=True}"
            ),
        )


def _rules_in(archive: Archive) -> Rules:
    match archive.facts():
        case {"git": bool(git), "ignore": str(ignore), "exclude": [*exclude]}:
            return Rules(git, ignore, tuple(map(str, exclude)))
    raise InvalidPack("it does not say which rules it was made by")
