"""What a CLI looked at during its start, and whether another start would find the same."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from geminorum.runtime import typed
from geminorum.sessions.places import ID_IN_NAME
from geminorum.transports.launch.preloads.scripts import script_text

_SCRIPT, _RECORD = "start_record.cjs", "start_record.json"
_CONTENT = 1
TOO_FRESH_NS = 20_000_000
"""Two writes this close to each other may leave the same time; the script has the same number."""
_STORES = ("tmp", "history", "projects.json", "projects.json.lock")
"""Where CLIs keep their sessions, and which folder has which name there."""

State: TypeAlias = tuple[str, ...]
"""Device, number, mode, owner, group, size, and the times of the last change in nanoseconds; as
text, since JavaScript has no numbers of that size."""


class Look(msgspec.Struct, frozen=True):
    file: str
    how: int
    """0: is it there, and what is it? 1: what does it hold?"""
    state: State | None
    """As it was at the first look. None: it was not there."""
    fresh: bool = False
    """Was it written so shortly before that another write could leave the same time?"""


class StartRecord(msgspec.Struct, frozen=True):
    looks: tuple[Look, ...]
    changed: tuple[str, ...]
    """What the CLI itself wrote during its start."""

    def without_own_files(
        self, home: Path, names: Iterable[str], session_id: str | None
    ) -> StartRecord:
        """Leaves out what every CLI changes, and what does not matter to this one.

        `home` is the one that was made for it, `names` are the files that were written there, and
        `session_id` is the session that it resumes.
        """
        own = {*self.changed, *(str(home / name) for name in names)}
        stores = tuple(f"{home}/.gemini/{name}/" for name in _STORES)
        looks = (
            look
            for look in self.looks
            if look.file not in own
            and (not f"{look.file}/".startswith(stores) or _is_told(look, session_id))
        )
        return msgspec.structs.replace(self, looks=tuple(looks))

    def outside(self, folders: Iterable[Path], *, but_for: Iterable[Path]) -> StartRecord:
        """Leaves out what lies in the folders, unless it lies in one of `but_for` too."""
        left_out, kept = _beginnings(folders), _beginnings(but_for)
        looks = (
            look
            for look in self.looks
            if not look.file.startswith(left_out) or f"{look.file}/".startswith(kept)
        )
        return msgspec.structs.replace(self, looks=tuple(looks))

    def first_difference(self) -> str | None:
        """The first path at which a CLI that starts now would find something else."""
        return next((look.file for look in self.looks if _differs(look)), None)


class StartRecorder:
    """A script that Node loads ahead of the CLI, and what it wrote down."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @property
    def node_flag(self) -> str:
        return f"--import={(self._home / _SCRIPT).as_uri()}"

    @property
    def files(self) -> dict[str, str]:
        return {_SCRIPT: script_text(_SCRIPT)}

    def read(self) -> StartRecord | None:
        """The record, once the CLI has started and waits for its prompt."""
        try:
            data = (self._home / _RECORD).read_bytes()
        except FileNotFoundError:
            return None
        return typed.decode(data, StartRecord)


def state_of(file: str) -> State | None:
    """As the script writes it down."""
    try:
        found = os.stat(file)  # noqa: PTH116 - there are hundreds of them
    except (OSError, ValueError):  # No file can have a NUL in its name.
        return None
    identity = (found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid)
    return tuple(map(str, (*identity, found.st_size, found.st_mtime_ns, found.st_ctime_ns)))


def _beginnings(folders: Iterable[Path]) -> tuple[str, ...]:
    """Of the paths in them: as they are called, and as a process that was started there calls
    them."""
    absolute = {os.path.abspath(folder) for folder in folders}  # noqa: PTH100 - links stay
    names = absolute | {os.path.realpath(name) for name in absolute}
    return tuple(f"{name.rstrip('/')}/" for name in names)


def _is_told(look: Look, session_id: str | None) -> bool:
    """Does what the CLI finds there, in its own store, reach the model? To resume a session, it
    reads all of a folder, but goes on with one."""
    folder, name = os.path.split(look.file)
    resumed = session_id is not None and f"-{session_id[:ID_IN_NAME]}" in name
    return resumed or os.path.basename(folder) == "memory"  # noqa: PTH119


def _differs(look: Look) -> bool:
    before, now = look.state, state_of(look.file)
    if before is None or now is None:
        return before is not now
    if look.how < _CONTENT:
        return _rights(before) != _rights(now)
    # The last of the times can be set by nobody: a folder with a new file has another, whatever
    # was done to the time at which its list changed.
    return look.fresh or before != now


def _rights(state: State) -> State:
    """What it is, and who may do what with it."""
    return state[2:5]
