"""A folder and the pack it came from to a patch: what changed, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from geminorum.errors import InvalidPack, WorkspaceError
from geminorum.runtime.lazy import msgspec
from geminorum.runtime.typed import convert
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
from geminorum.workspace.files import TreeWriter, empty_folder, save_file
from geminorum.workspace.listing import list_names
from geminorum.workspace.names import encoded, is_control, parents_of, problem_with
from geminorum.workspace.pack import Base, refuse_links, require_size
from geminorum.workspace.tree import FOLDER, Entry, Tree, entry_of, read_entry

_NO_LINKS_OUT = "point them to a relative path inside, or remove them, and compare again"


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one name."""

    name: str
    before: Entry | None
    """None: it was not there."""
    after: Entry | None
    """None: it is gone."""

    @property
    def what(self) -> Literal["added", "changed", "deleted"]:
        """In one word."""
        if self.before is None:
            return "added"
        return "deleted" if self.after is None else "changed"


@dataclass(frozen=True)
class Patch:
    """What changed in a folder since it was unpacked, as one file: a compressed tar.

    It has the new contents, and digests of the old ones. It applies only where the old contents
    are what they were.
    """

    data: bytes = field(repr=False)
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Names that stay there: ignored files, repositories, and files that control later runs.
    Known to the maker only."""
    max_bytes: int = field(default=MAX_BYTES, repr=False, compare=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Patch:
        """Reads a patch that was saved."""
        return cls(Path(path).read_bytes(), max_bytes=max_bytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a new file that only its owner can read; FileExistsError if there is one."""
        save_file(Path(path), self.data)

    @property
    def changes(self) -> list[Change]:
        """What changed, in the order of the names."""
        return [change for change, _ in self.contents]

    @cached_property
    def contents(self) -> list[tuple[Change, bytes]]:
        """The changes, each with the new contents of a file; InvalidPack for a bad patch."""
        archive = Archive(self.data, "patch", self.max_bytes)
        after = {item.name: item for item in archive.items()}
        before = dict(_old_entries(archive.facts()))
        if not after.keys() <= before.keys():
            raise InvalidPack("it has entries that it does not list as changes")
        names = sorted(before, key=encoded)
        return [_change(name, before[name], after.get(name)) for name in names]

    @property
    def renames(self) -> dict[str, str]:
        """Old names to new ones, of files that are otherwise unchanged."""
        gone = {one.before: one.name for one in self.changes if one.after is None and one.before}
        new = {one.after: one.name for one in self.changes if one.before is None and one.after}
        both = [entry for entry in gone if entry in new and entry.kind == "file" and entry.size]
        return {gone[entry]: new[entry] for entry in both}

    def extract(self, into: str | os.PathLike[str], names: Collection[str] = ()) -> None:
        """Writes the new versions into an empty folder: all, or those of these names.

        For what is in conflict, and has to be merged by hand.
        """
        wanted = [(one, data) for one, data in self.contents if not names or one.name in names]
        with TreeWriter(empty_folder(Path(into))) as writer:
            for change, contents in wanted:
                if change.after is not None:
                    writer.add(Item(change.name, change.after, contents))


def make_patch(
    folder: Path, base: Base, *, control_files: bool = False, max_bytes: int = MAX_BYTES
) -> Patch:
    """Compares a folder with its base."""
    listing = list_names(folder, base.rules, base.tree)
    _require_room(folder, listing.names, base.tree, max_bytes)
    now, new = _read(folder, listing.names, base.tree, max_bytes)
    touched = {*new, *_gone(base.tree, now)}
    held = set() if control_files else {name for name in touched if is_control(name)}
    travels = {name: entry for name, entry in now.items() if name not in held}
    refuse_links(travels, WorkspaceError, _NO_LINKS_OUT)
    before = {name: base.tree.get(name) for name in sorted(touched - held, key=encoded)}
    facts = {"before": {name: asdict(old) if old else None for name, old in before.items()}}
    items = [Item(name, now[name], new[name]) for name in before if name in new]
    left_out = (*listing.left_out, *sorted(held))
    return Patch(write_archive("patch", facts, items), left_out, max_bytes)


def _require_room(folder: Path, names: Iterable[str], base: Tree, max_bytes: int) -> None:
    """Refuses what would not fit before it is read: an agent may have made any file."""
    sizes = {name: entry.size for name, entry in base.items() if entry.kind == "file"}
    found = ((name, beneath.stat_of(folder, name)) for name in names)
    new = [name for name, facts in found if facts and facts.st_size != sizes.get(name)]
    require_size(folder, new, max_bytes)


def _read(
    folder: Path, names: Iterable[str], base: Tree, max_bytes: int
) -> tuple[Tree, dict[str, bytes]]:
    """Reads the entries of these names, and the contents of those that are not as in the base."""
    tree: Tree = {}
    new: dict[str, bytes] = {}
    room = max_bytes
    for name in names:
        entry = entry_of(folder, name)
        if entry is not None and entry != base.get(name):
            if entry.size > room:
                raise too_large(max_bytes, f"what changed in {folder}", [name])
            # Only what changed is read whole.
            entry, new[name] = read_entry(folder, name, room) or (entry, b"")
            room -= len(new[name])
        if entry is not None:
            tree[name] = entry
    return tree, new


def _gone(base: Tree, now: Tree) -> set[str]:
    """The names of the base that are no more. A folder that has files in it now is still there."""
    implied = {parent for name in now for parent in parents_of(name)}
    folders = {name for name in implied if base.get(name) == FOLDER}
    return base.keys() - now.keys() - folders


def _old_entries(facts: Mapping[str, Any]) -> dict[str, Entry | None]:
    try:
        before: dict[str, Entry | None] = convert(facts["before"], dict[str, Entry | None])
    except (KeyError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise InvalidPack(f"its list of changes is damaged: {error}") from error
    if len(before) > MAX_ENTRIES:
        raise too_many()
    for name in before:
        if problem := problem_with(name):
            raise InvalidPack(f"the name {name!r} {problem}", paths=[name])
    return before


def _change(name: str, before: Entry | None, after: Item | None) -> tuple[Change, bytes]:
    if after is None:
        return Change(name, before, None), b""
    return Change(name, before, after.entry), after.contents
