"""A patch and a folder to the steps that apply it, or to the names that are in conflict.

Nothing is written here. A name is as the patch expects it, as the patch would leave it, or in
conflict; the new files need room, and what would have to make room for them may be somebody's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from geminorum.errors import InvalidPack, WorkspaceConflict, WorkspaceError
from geminorum.hints import advice
from geminorum.workspace import beneath
from geminorum.workspace.beneath import is_folder
from geminorum.workspace.names import (
    STAGING,
    is_control,
    is_excluded,
    is_vcs,
    leads_out,
    listed,
    parents_of,
)
from geminorum.workspace.patch import Change, Patch
from geminorum.workspace.tree import FOLDER, Entry, entry_of

Contents: TypeAlias = list[tuple[Change, bytes]]


@dataclass(slots=True)
class Plan:
    """The steps, by kind, in the order in which they are done."""

    take: dict[str, Entry] = field(default_factory=dict)
    """Files and links that make room, as they should be when they are taken."""
    remove_folders: list[str] = field(default_factory=list)
    make_folders: list[str] = field(default_factory=list)
    put: dict[str, tuple[Entry, bytes]] = field(default_factory=dict)
    """New files and links."""
    changes: list[Change] = field(default_factory=list)
    """What is to be done, for people."""
    already: list[Change] = field(default_factory=list)
    """What is as the patch would leave it."""


def plan_patch(
    folder: Path, patch: Patch, *, skip: Collection[str] = (), control_files: bool = False
) -> Plan:
    """Plans a patch; WorkspaceConflict if a file changed on both sides."""
    plan, conflicts = _sort_out(folder, _chosen(patch, skip))
    conflicts |= _in_the_way(folder, plan)
    if conflicts:
        raise _conflict(conflicts)
    _plan_folders(folder, plan)
    if not control_files:
        _refuse_control(folder, plan)
    _refuse_links(folder, plan)
    return plan


def _chosen(patch: Patch, skip: Collection[str]) -> Contents:
    """The changes that are not skipped. A name that the patch has is no pattern."""
    named = {change.name for change in patch.changes} & {*skip}
    patterns = [pattern for pattern in skip if pattern not in named]
    return [
        (change, contents)
        for change, contents in patch.contents
        if named.isdisjoint([change.name, *parents_of(change.name)])
        and not is_excluded(change.name, patterns)
    ]


def _sort_out(folder: Path, chosen: Contents) -> tuple[Plan, set[str]]:
    plan, conflicts, emptied = Plan(), set(), _Emptied(chosen)
    for change, contents in chosen:
        now = None if emptied.is_same_file(folder, change) else _now(folder, change)
        if now == change.after or emptied.is_filled_again(now, change):
            plan.already.append(change)
        elif now == change.before or emptied.is_replaced(now, change):
            plan.changes.append(change)
            _plan_change(plan, change, contents)
        else:
            conflicts.add(change.name)
    return plan, conflicts


def _now(folder: Path, change: Change) -> Entry | None:
    """What the name is. A file of another size than expected is not read: it may be huge."""
    found = beneath.stat_of(folder, change.name)
    if found is None:
        return None
    sizes = {one.size for one in (change.before, change.after) if one is not None}
    if stat.S_ISREG(found.st_mode) and found.st_size not in sizes:
        return _SOMETHING_ELSE
    return entry_of(folder, change.name) or _SOMETHING_ELSE


# A pipe, a socket or a device, or a file that the patch does not know: equal to nothing in it.
_SOMETHING_ELSE = Entry("folder", digest="something else")


class _Emptied:
    """Which folders a patch empties or fills, and which names it deletes."""

    def __init__(self, chosen: Contents) -> None:
        gone = [change.name for change, _ in chosen if change.after is None]
        new = [change.name for change, _ in chosen if change.after is not None]
        self._emptied = {parent for name in gone for parent in parents_of(name)}
        self._filled = {parent for name in new for parent in parents_of(name)}
        self._gone = {name.casefold(): name for name in gone}

    def is_replaced(self, now: Entry | None, change: Change) -> bool:
        """Does the patch delete the files of a folder that becomes a file or a link?"""
        is_new = change.before is None and change.after is not None
        return is_new and now == FOLDER and change.name in self._emptied

    def is_filled_again(self, now: Entry | None, change: Change) -> bool:
        """Is it the folder that the patch makes in the place of a file or a link?"""
        return now == FOLDER and change.after is None and change.name in self._filled

    def is_same_file(self, folder: Path, change: Change) -> bool:
        """Is it there only as another spelling of a file that the patch deletes?"""
        twin = self._gone.get(change.name.casefold())
        return change.before is None and _is_same(folder, change.name, twin)


def _is_same(folder: Path, name: str, twin: str | None) -> bool:
    """Does the file system not tell these names apart, such as `README` and `readme`?"""
    if twin is None or twin == name:
        return False
    one, other = beneath.stat_of(folder, name), beneath.stat_of(folder, twin)
    if one is None or other is None or not os.path.samestat(one, other):
        return False
    # Where it does, a file with two names counts them.
    return stat.S_ISDIR(one.st_mode) or one.st_nlink == 1


def _plan_change(plan: Plan, change: Change, contents: bytes) -> None:
    if change.before is not None and change.before != FOLDER:
        plan.take[change.name] = change.before
    if change.after is not None and change.after != FOLDER:
        plan.put[change.name] = change.after, contents


def _in_the_way(folder: Path, plan: Plan) -> set[str]:
    """The names whose place is taken by something that the patch does not know."""
    return {name for name in _wanted_names(plan) if _is_blocked(folder, name, plan)} | {
        name
        for name in plan.put
        if is_folder(folder, name) and not _becomes_empty(folder, name, plan)
    }


def _wanted_names(plan: Plan) -> list[str]:
    return [change.name for change in plan.changes if change.after is not None]


def _is_blocked(folder: Path, name: str, plan: Plan) -> bool:
    """Is there a file or link above the name, which stays?"""
    above = [parent for parent in parents_of(name) if parent not in plan.take]
    return any(os.path.lexists(folder / one) and not is_folder(folder, one) for one in above)


def _becomes_empty(folder: Path, name: str, plan: Plan) -> bool:
    files = (found for found, is_folder in _below(folder, name) if not is_folder)
    return all(found in plan.take for found in files)


def _below(folder: Path, name: str) -> Iterable[tuple[str, bool]]:
    """Everything below a folder, the deepest first; True for folders."""
    for place, folders, files in os.walk(folder / name, topdown=False):
        here = Path(place).relative_to(folder).as_posix()
        links = [one for one in folders if (Path(place) / one).is_symlink()]
        yield from ((f"{here}/{one}", False) for one in (*files, *links))
        yield here, True


def _plan_folders(folder: Path, plan: Plan) -> None:
    kept = {parent for name in _wanted_names(plan) for parent in parents_of(name)}
    kept |= {one.name for one in (*plan.changes, *plan.already) if one.after == FOLDER}
    leaving = _Leaving(folder, {*plan.take}, kept)
    for name in sorted(_may_leave(folder, plan), key=lambda name: -name.count("/")):
        leaving.try_to_remove(name)
    plan.remove_folders = leaving.removed
    new = {one.name for one in plan.changes if one.after == FOLDER} | kept
    leave = {one.casefold(): one for one in plan.remove_folders}
    missing = [
        name
        for name in new
        if name in plan.take
        or not is_folder(folder, name)
        or _is_same(folder, name, leave.get(name.casefold()))
    ]
    plan.make_folders = sorted(missing, key=lambda name: name.count("/"))


def _may_leave(folder: Path, plan: Plan) -> set[str]:
    """Folders that may be empty when the files are gone."""
    above = {parent for name in plan.take for parent in parents_of(name)}
    named = {one.name for one in plan.changes if one.before == FOLDER}
    for change in plan.changes:
        if change.before == FOLDER:
            above |= {*parents_of(change.name)}
    replaced = [name for name in plan.put if is_folder(folder, name)]
    inside = {found for name in replaced for found, is_one in _below(folder, name) if is_one}
    return {name for name in above | named | inside if is_folder(folder, name)}


@dataclass(slots=True)
class _Leaving:
    """Which folders become empty, if these files are taken and these folders have to stay."""

    folder: Path
    taken: set[str]
    kept: set[str]
    removed: list[str] = field(default_factory=list)

    def try_to_remove(self, name: str) -> None:
        inside = {f"{name}/{one.name}" for one in (self.folder / name).iterdir()}
        if name not in self.kept and inside <= self.taken:
            self.removed.append(name)
            self.taken.add(name)


def _conflict(names: Collection[str]) -> WorkspaceConflict:
    return WorkspaceConflict(
        f"changed on both sides: {listed(names)}; nothing was written",
        paths=sorted(names),
        hint=advice(
            "apply the rest with {workspace.skip=name|skip}, or get the patch's versions, to merge "
            "them, with {workspace.extract|patch.extract(folder, error.paths)}",
            name=min(names),
            skip="skip=error.paths",
        ),
    )


def _refuse_control(folder: Path, plan: Plan) -> None:
    """Refuses files that control later runs, and folders that git would take for a repository."""
    touched = {*plan.take, *plan.put}
    bad = {name for name in touched if is_control(name)} | _in_repositories(folder, plan)
    if bad:
        raise WorkspaceError(
            f"the patch changes files that control agents or git: {listed(bad)}",
            paths=sorted(bad),
            hint=advice(
                "read them, then allow it: {workspace.control_files|control_files=True}; "
                "or leave them out: {workspace.skip=name|skip}",
                name=min(bad),
                skip="skip=error.paths",
            ),
        )


def _in_repositories(folder: Path, plan: Plan) -> set[str]:
    """Files in folders that would be bare repositories: their configuration can run programs."""
    made = {name.casefold() for name in (*plan.put, *plan.make_folders)}

    def is_there(name: str) -> bool:
        return name.casefold() in made or os.path.lexists(folder / name)

    def is_bare(place: str) -> bool:
        # With `commondir`, objects, references and the configuration are elsewhere.
        below = f"{place}/" if place else ""
        has = [is_there(below + part) for part in ("HEAD", "commondir", "objects", "refs")]
        return has[0] and (has[1] or all(has[2:]))

    above = {name: [*parents_of(name), ""] for name in plan.put}
    bare = {place for places in above.values() for place in places}
    bare = {place for place in bare if is_bare(place)}
    return {name for name, places in above.items() if not bare.isdisjoint(places)}


def _refuse_links(folder: Path, plan: Plan) -> None:
    """Refuses a patch after which a link leads out of the folder that did not before."""
    if not any(entry.kind == "link" for entry, _ in plan.put.values()):
        return
    before = dict(_links_in(folder))
    after = {name: target for name, target in before.items() if name not in plan.take}
    after |= {name: entry.target for name, (entry, _) in plan.put.items() if entry.kind == "link"}
    bad = _outside(after) - (_outside(before) - plan.put.keys())
    if bad:
        text = f"the patch makes links that lead out of the folder: {listed(bad)}"
        raise InvalidPack(text, paths=sorted(bad))


def _outside(links: dict[str, str]) -> set[str]:
    target_of: Callable[[str], str | None] = links.get
    return {name for name, target in links.items() if leads_out(name, target, target_of)}


def _links_in(folder: Path) -> Iterable[tuple[str, str]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not is_vcs(one) and one != STAGING]
        for path in (Path(place) / one for one in (*folders, *files)):
            if path.is_symlink():
                yield path.relative_to(folder).as_posix(), os.readlink(path)  # noqa: PTH115
