"""Lists sessions and finds one by id."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from geminorum.errors import InvalidOptions, SessionLost
from geminorum.events import Event
from geminorum.hints import advice, python_only
from geminorum.sessions import reading
from geminorum.sessions.places import (
    ID_IN_NAME,
    Project,
    all_projects,
    folder_named,
    home_of,
    projects_of,
    store_of,
)
from geminorum.sessions.reading import ID, SUFFIXES, Session
from geminorum.sessions.searching import says
from geminorum.sessions.summary import SessionInfo, info_of
from geminorum.sessions.tailing import events_in

AnyPath: TypeAlias = str | os.PathLike[str]
Kind: TypeAlias = Literal["main", "subagent", "all"]
USUAL_NAME = "session-"
HINT = advice("{sessions.list|geminorum.sessions.list()} lists the sessions")


def listed(
    cwd: AnyPath | None = None,
    *,
    home: AnyPath | None = None,
    since: datetime | int | None = None,
    until: datetime | int | None = None,
    text: str | None = None,
    kind: Kind = "main",
) -> list[SessionInfo]:
    """Returns the sessions of a folder, or of all folders, the last updated first.

    `home` is the folder that holds `.gemini`; default: GEMINI_CLI_HOME, or the user's home. `since`
    and `until` (milliseconds since 1970, or a datetime) select sessions active in between; `text`
    selects those that contain it, and is the only filter that reads whole files. Files that are not
    sessions are listed too, with their `problem`.
    """
    found = merged(_infos(cwd, home_of(home), kind))
    chosen = [info for info in found if was_alive(info, since, until)]
    if text is not None:
        chosen = [info for info in chosen if says(info, text)]
    return sorted(chosen, key=lambda info: info.updated, reverse=True)


def find(
    cwd: AnyPath | None = None, session_id: str | None = None, *, home: AnyPath | None = None
) -> SessionInfo | None:
    """Finds a session by its id or a unique prefix of it; without an id, the newest.

    Searches the sessions of a folder, or of all folders.
    """
    if session_id is None:
        return next((info for info in listed(cwd, home=home) if info.id and not info.empty), None)
    check_id(session_id)
    found = _beginning_with(session_id, cwd, home_of(home))
    exact = [info for info in found if info.id == session_id]
    if len(found) > 1 and not exact:
        names = ", ".join(sorted(info.id for info in found))
        raise InvalidOptions(f"{session_id!r} may be any of {names}", hint="write more of the id")
    return next(iter(exact or found), None)


def load(
    session: SessionInfo | AnyPath, cwd: AnyPath | None = None, *, home: AnyPath | None = None
) -> Session:
    """Loads a session by its file, its id (or a prefix), or its SessionInfo."""
    if isinstance(session, str) and ID.fullmatch(session):
        session = known(session, cwd, home=home)
    if isinstance(session, SessionInfo):
        return reading.load(session.path, session.cwd)
    path = Path(session)
    return reading.load(path, Path(cwd) if cwd else _owner(path, home_of(home)))


def tail(
    session: SessionInfo | Session | AnyPath,
    cwd: AnyPath | None = None,
    *,
    home: AnyPath | None = None,
) -> AsyncGenerator[Event, None]:
    """Yields a session's events, existing and future ones, until you leave the loop.

    There is no `Done`: a session may be resumed at any time. The file need not exist yet.
    """
    is_id = isinstance(session, str) and ID.fullmatch(session)
    if is_id or not isinstance(session, str | os.PathLike):
        return events_in(known(session, cwd, home=home).path)
    return events_in(Path(session))


def known(
    session: SessionInfo | Session | AnyPath,
    cwd: AnyPath | None = None,
    *,
    home: AnyPath | None = None,
) -> SessionInfo:
    """What a listing would tell of it; SessionLost where there is no such session."""
    if isinstance(session, SessionInfo):
        return session
    if isinstance(session, str) and ID.fullmatch(session):
        if info := find(cwd, session, home=home):
            return info
        where = f"for project: {cwd}" if cwd else f"with the id {session!r}"
        raise SessionLost(f"No Gemini session found {where}", hint=HINT, session_id=session)
    path = session.path if isinstance(session, Session) else Path(session)
    return _at(path.absolute(), home_of(home))


def check_id(session_id: str) -> None:
    """InvalidOptions for what cannot be an id: a path, a pattern, nothing."""
    if not ID.fullmatch(session_id):
        raise InvalidOptions(
            f"{session_id!r} is not a session id", hint="an id has letters, digits, - and _ only"
        )


def _at(path: Path, home: Path) -> SessionInfo:
    if not os.path.lexists(path):
        raise SessionLost(f"No Gemini session found at {str(path)!r}", hint=HINT)
    below = path.parent.parent.name == "chats"
    # A file that was never in the store may lie where it likes.
    store = store_of(home) if path.is_relative_to(store_of(home)) else path.parent
    return info_of(path, store, _owner(path, home), parent=path.parent.name if below else None)


def _owner(path: Path, home: Path) -> Path | None:
    """The folder whose sessions the CLI keeps around this file."""
    around = path.absolute().parents
    return next((one.cwd for one in all_projects(home) if one.folder in around), None)


def _beginning_with(start: str, cwd: AnyPath | None, home: Path) -> list[SessionInfo]:
    """Where the name of a file tells enough of the id, other files are left alone."""
    quick = _infos(cwd, home, "all", lambda path: start[:ID_IN_NAME] in path.name)
    known_ones = merged(info for info in quick if info.id.startswith(start))
    if known_ones and len(start) >= ID_IN_NAME:
        return known_ones
    return merged(info for info in _infos(cwd, home, "all") if info.id.startswith(start))


def _infos(
    cwd: AnyPath | None,
    home: Path,
    kind: Kind,
    wanted: Callable[[Path], bool] = lambda path: True,
) -> Iterator[SessionInfo]:
    store, inside = store_of(home), dict[Path, bool]()
    for project in _projects(cwd, home):
        for path, parent in files_of(project.folder, kind):
            if wanted(path):
                if path.parent not in inside:  # Each folder is asked once: it takes its time.
                    inside[path.parent] = is_inside(path.parent, store)
                safe = inside[path.parent]
                info = info_of(path, store, project.cwd, parent, is_inside=safe)
                if is_listed(info, kind):
                    yield info


def is_listed(info: SessionInfo, kind: Kind) -> bool:
    """Does it belong in a list of this kind? A broken file does if it has a session's name."""
    if not info.id:
        return info.parent is not None or info.path.name.startswith(USUAL_NAME)
    return kind in ("all", info.kind)


def is_inside(folder: Path, store: Path) -> bool:
    """Does no link lead from the folder out of the store?"""
    try:
        return folder.resolve().is_relative_to(store.resolve())
    except (OSError, RuntimeError):
        return False


def _projects(cwd: AnyPath | None, home: Path) -> list[Project]:
    if cwd is None:
        return all_projects(home)
    real = folder_named(cwd)
    return [Project(folder, real) for folder in projects_of(home, real)]


def files_of(project: Path, kind: Kind) -> Iterator[tuple[Path, str | None]]:
    """A project's session files; of a subagent's, the id of the session that started it, too."""
    return ((Path(entry), parent) for entry, parent in file_entries(project, kind))


def file_entries(project: Path, kind: Kind) -> Iterator[tuple[os.DirEntry[str], str | None]]:
    """The same without a Path for each, which takes its time with ten thousand of them."""
    chats = project / "chats"
    if kind != "subagent":
        # Newer CLIs may name them in another way; what is hidden is half written.
        yield from ((entry, None) for entry in _named(chats) if entry.name[0] != ".")
        yield from ((entry, None) for entry in _named(project, USUAL_NAME))
    if kind != "main":
        for folder in _entries(chats):
            if not folder.name.startswith("session-") and not folder.is_symlink():
                found = _entries(Path(folder))
                yield from ((entry, folder.name) for entry in found if _has_suffix(entry))


def _named(folder: Path, prefix: str = "") -> Iterator[os.DirEntry[str]]:
    for entry in _entries(folder):
        if entry.name.startswith(prefix) and _has_suffix(entry):
            yield entry


def _has_suffix(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(SUFFIXES)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def merged(infos: Iterable[SessionInfo]) -> list[SessionInfo]:
    """One for each session: a resumed one leaves a file with nothing in it, an old one a copy."""
    best: dict[object, SessionInfo] = {}
    for info in infos:
        key = (info.parent, info.id) if info.id else info.path
        other = best.get(key)
        if other is None or _weight(info) > _weight(other):
            best[key] = info
    return list(best.values())


def _weight(info: SessionInfo) -> tuple[object, ...]:
    return not info.empty, info.updated, info.path.suffix == ".jsonl"


def was_alive(
    info: SessionInfo, since: datetime | int | None, until: datetime | int | None
) -> bool:
    """Was the session active in between?"""
    return (since is None or info.updated >= _milliseconds(since)) and (
        until is None or info.started <= _milliseconds(until)
    )


def _milliseconds(moment: datetime | int) -> float:
    if isinstance(moment, int):
        return moment
    if not isinstance(moment, datetime):
        raise InvalidOptions(
            f"{moment!r} is not a point in time",
            hint=python_only("pass a datetime, or milliseconds"),
        )
    return moment.timestamp() * 1000
