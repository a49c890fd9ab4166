"""Which saved session is meant by what was typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import geminorum
from geminorum.errors import SessionLost

if TYPE_CHECKING:
    from geminorum.sessions import SessionInfo


def place_of(name: str) -> SessionInfo | Path:
    """The session that is meant: a file as it is named, `latest`, or the one id that begins so."""
    if any(mark in name for mark in "/\\."):  # None of them is in an id.
        return _file(name)
    return _latest() if name == "latest" else _by_id(name)


def existing_place_of(name: str) -> SessionInfo | Path:
    """The same; SessionLost where there is no such file."""
    place = place_of(name)
    if isinstance(place, Path) and not place.exists():
        return _found(None, f"there is no file {place}")
    return place


def _file(name: str) -> Path:
    """A file as it is named; the list names one that has no id without its folder."""
    path = Path(name)
    if len(path.parts) > 1 or path.exists():
        return path
    saved = geminorum.sessions.list()
    return next((info.path for info in saved if info.path.name == name), path)


def _latest() -> SessionInfo:
    cwd = Path.cwd()
    return _found(geminorum.sessions.find(cwd), f"there is no session of {cwd} yet")


def _by_id(name: str) -> SessionInfo:
    info = geminorum.sessions.find(session_id=name)
    return _found(info, f"there is no session {name!r}")


def _found(info: SessionInfo | None, problem: str) -> SessionInfo:
    if info is None:
        hint = "list the sessions: geminorum sessions list --all"
        raise SessionLost(problem, hint=hint)
    return info
