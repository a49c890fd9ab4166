"""The files of a session on this machine: gathers them for a store, and puts those of one here."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from glob import escape
from itertools import count
from pathlib import Path

from geminorum.errors import InvalidOptions, SessionUnreadable, StoreError
from geminorum.sessions.places import (
    ID_IN_NAME,
    hash_of,
    projects_of,
    store_of,
    top_of,
    was_used,
)
from geminorum.sessions.reading import ID, SUFFIXES, subagent_files
from geminorum.system.regular_file import open_regular
from geminorum.wire.stored.entries import (
    MAX_FILES,
    MAX_SESSION_BYTES,
    SavedFile,
    is_file_name,
)
from geminorum.wire.stored.journal import StoredFile

_MARK = ".project_root"
_NOTES = ".geminorum-stores"
_HALF_WRITTEN = ".stored-"
"""No session's file begins so."""
_AN_HOUR = 3600
_MAX_SHOWN = 200
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""In a name that has to be made up: the CLI damages a session that it resumes in the minute of its
name."""


def find_main_files(home: Path, cwd: Path, session: str) -> list[Path]:
    """The files of the conversation itself, oldest name first; usually one."""
    for project in projects_of(home, cwd):
        named = (project / "chats").glob(f"session-*-{escape(session[:ID_IN_NAME])}*")
        found = sorted(path for path in named if _is_of(path, session))
        # A folder of an older layout holds what the CLI has copied from there.
        if used := [path for path in found if was_used(path)]:
            return used
    return []


def gather_files(home: Path, cwd: Path, session: str) -> dict[str, SavedFile]:
    """All files of a session by role; none if nobody has said anything in it yet."""
    mains = find_main_files(home, cwd, session)
    if not mains:
        return {}
    paths = dict(_main_roles(mains))
    paths |= {f"subagent/{path.name}": path for path in subagent_files(mains[0], session)}
    outputs = _files_in(mains[0].parent.parent / "tool-outputs" / f"session-{session}")
    paths |= {f"output/{path.name}": path for path in outputs}
    wanted = {role: path for role, path in paths.items() if _can_be_saved(path)}
    _refuse_too_much(wanted)
    return {role: SavedFile(path.name, _content(path)) for role, path in wanted.items()}


def place_files(home: Path, cwd: Path, session: str, files: Mapping[str, StoredFile]) -> None:
    """Writes the files of a session where the CLI looks for those of `cwd`. To be called with the
    session's lock held.
    """
    _require_id(session)
    before = find_main_files(home, cwd, session)
    written = _write_all(_project_folder(home, cwd), session, files)
    for path in before:
        if path not in written:
            path.unlink(missing_ok=True)  # The same conversation under an older name.


def write_files(folder: Path, session: str, files: Mapping[str, StoredFile]) -> Path:
    """Writes the files into a folder, as in one of the CLI's; returns the conversation's own."""
    _require_id(session)
    return _write_all(folder, session, files)[-1]


def _require_id(session: str) -> None:
    """A store may hold any id, and this one becomes a part of paths."""
    if not ID.fullmatch(session):
        raise InvalidOptions(f"{session[:_MAX_SHOWN]!r} is not a session id")


def _write_all(project: Path, session: str, files: Mapping[str, StoredFile]) -> list[Path]:
    """The conversation comes last: whoever finds it takes all the others to be there."""
    written: list[Path] = []
    for role, one in sorted(files.items(), reverse=True):
        places = _places_of(project, session, role, one)
        path = next((place for place in places if place not in written), None)
        if path is None:
            continue  # Two of one name: nobody who follows the format has saved them.
        _refuse_links(project, path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, one.data)
        written.append(path)
    for folder in {path.parent for path in written}:
        _remove_half_written(folder)
    return written


def _remove_half_written(folder: Path) -> None:
    """What processes left that were killed here; a younger one may be at work."""
    for path in folder.glob(f"{_HALF_WRITTEN}*"):
        with suppress(OSError):
            if path.lstat().st_mtime < time.time() - _AN_HOUR:
                path.unlink()


def _refuse_links(project: Path, path: Path) -> None:
    """A link would put the file anywhere."""
    for folder in path.parents:
        if folder == project:
            return
        if folder.is_symlink():
            raise StoreError(f"{str(folder)!r} is a link", hint="replace it by a folder")


def read_note(home: Path, session: str) -> bytes | None:
    """The state of the store that the files here continue, as far as we know."""
    with suppress(OSError, ValueError), open_regular(_note_of(home, session)) as file:
        return bytes.fromhex(file.read(200).decode("ascii"))
    return None


def write_note(home: Path, session: str, state: bytes) -> None:
    note = _note_of(home, session)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace(note, state.hex().encode())


def _note_of(home: Path, session: str) -> Path:
    name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
    return store_of(home) / _NOTES / name[:32]


def _is_of(path: Path, session: str) -> bool:
    if path.suffix not in SUFFIXES or path.is_symlink():
        return False
    top = top_of(path)
    return top is not None and top.session_id == session


def _main_roles(mains: list[Path]) -> Iterator[tuple[str, Path]]:
    for suffix in SUFFIXES:
        same = [path for path in mains if path.suffix == suffix]
        for number, path in enumerate(same, 1):
            yield f"main{'' if number == 1 else f'-{number}'}{suffix}", path


def _files_in(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def _can_be_saved(path: Path) -> bool:
    # A link would take the store a file from anywhere.
    return is_file_name(path.name) and not path.is_symlink()


def _refuse_too_much(paths: Mapping[str, Path]) -> None:
    """Before anything is read into memory."""
    size = sum(path.stat().st_size for path in paths.values())
    if size > MAX_SESSION_BYTES or len(paths) > MAX_FILES:
        raise SessionUnreadable(
            f"the session has {len(paths)} files with {size:,} bytes",
            hint=f"a store takes {MAX_FILES} files and {MAX_SESSION_BYTES:,} bytes; begin anew",
        )


def _content(path: Path) -> bytes:
    with open_regular(path, follow=False) as file:
        return file.read(MAX_SESSION_BYTES)


def _project_folder(home: Path, cwd: Path) -> Path:
    """Where the CLI keeps the sessions of `cwd`; made if there is none yet."""
    real, root = cwd.resolve(), store_of(home)
    if known := projects_of(home, cwd):
        return known[0]
    # The CLI gives a new folder a name of its own choice, unless one bears this mark.
    words = re.sub(r"[^a-z0-9]+", "-", real.name.lower()).strip("-")[:40] or "project"
    folder = root / f"{words}-{hash_of(real)[:8]}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace(folder / _MARK, os.fsencode(real))
    return folder


def _places_of(project: Path, session: str, role: str, file: StoredFile) -> Iterator[Path]:
    """Where the file may be, the best place first."""
    kind, _, _ = role.partition("/")
    if kind == "subagent":
        yield project / "chats" / session / file.name
    elif kind == "output":
        yield project / "tool-outputs" / f"session-{session}" / file.name
    else:
        # Ids may begin alike, and a store may say any name: another session's file stays.
        for name in _main_names(session, Path(role).suffix, file.name):
            if _is_free(path := project / "chats" / name, session):
                yield path


def _main_names(session: str, suffix: str, name: str) -> Iterator[str]:
    short = session[:ID_IN_NAME]
    if re.fullmatch(rf"session-[0-9A-Za-z-]+-{re.escape(short)}{re.escape(suffix)}", name):
        yield name
    for minute in count():
        at = _LONG_AGO + timedelta(minutes=minute)
        yield f"session-{at:%Y-%m-%dT%H-%M}-{short}{suffix}"


def _is_free(path: Path, session: str) -> bool:
    return not os.path.lexists(path) or _is_of(path, session)


def _replace(path: Path, data: bytes | bytearray) -> None:
    """In one step, so that a crash leaves the old one or the new one."""
    handle, name = tempfile.mkstemp(prefix=_HALF_WRITTEN, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
