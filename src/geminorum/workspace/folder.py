"""A folder that travels: packed here, unpacked there, and its changes applied here again."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from geminorum.errors import InvalidOptions
from geminorum.hints import advice, python_only
from geminorum.workspace.applying import carry_out, recover, refuse_unfinished
from geminorum.workspace.archive import MAX_BYTES
from geminorum.workspace.listing import list_here
from geminorum.workspace.opening import Opened
from geminorum.workspace.pack import Base, Pack, pack_folder, unpack_into
from geminorum.workspace.patch import Change, Patch, make_patch
from geminorum.workspace.plan import Plan, plan_patch
from geminorum.workspace.rendering import rendered
from geminorum.workspace.sources import (
    check_out,
    git_source,
    is_git_source,
    without_password,
)
from geminorum.workspace.tree import entry_of

Location: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, or what `check` says that it would do."""

    changes: tuple[Change, ...]
    already: tuple[Change, ...] = ()
    """Changes that the folder had already."""


class Workspace:
    """A folder, and the state that its changes are relative to.

    All methods do plain file I/O and may be called from any thread.
    """

    def __init__(self, folder: Location, base: Pack | Base | None = None) -> None:
        """`base` is the pack that the folder was unpacked from; only `diff` needs it."""
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise _no_folder(self.folder, str(folder))
        self._base = base

    @classmethod
    def unpack(cls, pack: Pack | bytes, into: Location, *, max_bytes: int = MAX_BYTES) -> Workspace:
        """Unpacks into a new or an empty folder, and returns it as a workspace.

        The pack may come from anybody: one that is damaged or could write elsewhere raises
        InvalidPack before anything is written.
        """
        given = pack if isinstance(pack, Pack) else Pack(pack)
        base = unpack_into(given, Path(into).resolve(), max_bytes)
        return cls(into, base)

    @classmethod
    def open(
        cls,
        source: Pack | bytes | Location,
        into: Location | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> Workspace:
        """Makes a source available here: a pack or a git address in the folder `into`, or a folder
        that exists here, as it is.

        `diff` returns what changes from now on.
        """
        if not _is_copied(source):
            here = cls(cast("Location", source))
            here._base = here.snapshot()
            return here
        if into is None:
            hint = python_only("name one: Workspace.open(source, folder); or Workspace.opened(…)")
            raise InvalidOptions("a pack or a git address needs a folder to go into", hint=hint)
        if not isinstance(source, Pack | bytes):
            source = pack(source, max_bytes=max_bytes)
        return cls.unpack(source, into, max_bytes=max_bytes)

    @classmethod
    def opened(
        cls,
        source: Pack | bytes | Location,
        *,
        place: Location | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Opened:
        """Opens a source for the length of a block, and removes what was made for it:

        ```python
        with Workspace.opened(pack) as there:  # or `async with`
            ...  # an agent works in there.folder
            patch = there.diff()
        ```

        A pack or a git address is in a temporary folder, in `place` if given. A folder that exists
        here is used as it is, and stays.
        """

        def make(into: Path | None) -> Workspace:
            return cls.open(source, into, max_bytes=max_bytes)

        return Opened(make, place, is_copy=_is_copied(source))

    def pack(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        exclude: Collection[str] = (),
        submodules: bool = False,
        lfs_pointers: bool = False,
    ) -> Pack:
        """Packs what git tracks and what it does not ignore; all of a folder without git.

        `exclude` has names and patterns that stay here, such as `data` or `*.bin`. Repositories in
        the folder are refused, unless `submodules` says that their files travel too. So are Git
        LFS pointers in the place of files, unless `lfs_pointers` lets them travel as they are.
        """
        refuse_unfinished(self.folder)
        return pack_folder(
            self.folder,
            max_bytes=max_bytes,
            exclude=exclude,
            submodules=submodules,
            lfs_pointers=lfs_pointers,
        )

    def snapshot(self) -> Base:
        """The state of the folder as it is now, to compare with later."""
        listing, rules = list_here(self.folder)
        found = {name: entry_of(self.folder, name) for name in listing.names}
        return Base({name: entry for name, entry in found.items() if entry}, rules)

    def diff(self, *, control_files: bool = False, max_bytes: int = MAX_BYTES) -> Patch:
        """Returns what changed since the folder was unpacked or opened.

        Changes in `.gemini` and `.agents`, which control later runs, are left out and listed in
        `Patch.left_out`, unless `control_files` asks for them.
        """
        if self._base is None:
            hint = advice("{workspace.base|pass the pack: Workspace(folder, base=pack)}")
            raise InvalidOptions("there is no pack to compare the folder with", hint=hint)
        if isinstance(self._base, Pack):
            self._base = self._base.base(max_bytes)
        return make_patch(self.folder, self._base, control_files=control_files, max_bytes=max_bytes)

    def check(
        self, patch: Patch, *, skip: Collection[str] = (), control_files: bool = False
    ) -> Applied:
        """Says what `apply` would do, or raises as it would, and writes nothing."""
        return _applied(plan_patch(self.folder, patch, skip=skip, control_files=control_files))

    def apply(
        self, patch: Patch, *, skip: Collection[str] = (), control_files: bool = False
    ) -> Applied:
        """Applies all of a patch, or nothing.

        Files that changed on both sides raise WorkspaceConflict; `.paths` has their names, and
        `skip` leaves them out. Changes of files that control later runs are refused, unless
        `control_files` allows them. What a killed process left half done is undone first.
        """
        recover(self.folder)
        plan = plan_patch(self.folder, patch, skip=skip, control_files=control_files)
        if plan.changes:
            carry_out(self.folder, plan)
        return _applied(plan)

    def recover(self) -> bool:
        """Undoes an `apply` whose process was killed; False if there is nothing to undo."""
        return recover(self.folder)

    def render(self, patch: Patch) -> str:
        """Returns a patch as a unified diff for people, with the old lines from this folder."""
        return rendered(self.folder, patch)


def pack(
    source: Location,
    *,
    max_bytes: int = MAX_BYTES,
    exclude: Collection[str] = (),
    submodules: bool = False,
    lfs_pointers: bool = False,
) -> Pack:
    """Packs a folder, or a git repository: `git+https://host/path@ref`. See `Workspace.pack`."""

    def packed(folder: Location) -> Pack:
        return Workspace(folder).pack(
            max_bytes=max_bytes, exclude=exclude, submodules=submodules, lfs_pointers=lfs_pointers
        )

    if not is_git_source(source):
        return packed(source)
    with check_out(git_source(str(source))) as folder:
        return packed(folder)


def _no_folder(folder: Path, text: str) -> InvalidOptions:
    if "://" in text or text.startswith("git@"):
        hint = "write git+ before the address of a repository: git+https://host/path@ref"
        return InvalidOptions(f"{without_password(text)} is no folder", hint=hint)
    return InvalidOptions(f"{folder} is no folder", hint="name a folder that exists")


def _is_copied(source: Pack | bytes | Location) -> bool:
    """Is it unpacked or cloned, and not used where it is?"""
    return isinstance(source, Pack | bytes) or is_git_source(source)


def _applied(plan: Plan) -> Applied:
    return Applied(tuple(plan.changes), tuple(plan.already))
