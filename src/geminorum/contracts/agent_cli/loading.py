"""Converts a project's saved sessions to messages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

import geminorum
from geminorum.adapter_parts import (
    ID_IN_NAME,
    SUFFIXES,
    files_in,
    home_of,
    is_spoken,
    message_of,
    of_saved,
    projects_of,
    top_of,
)
from geminorum.contracts.agent_cli.routing import TOOL, refuse_others
from geminorum.contracts.agent_cli.spelling import merged
from geminorum.errors import InvalidOptions, SessionLost, SessionUnreadable
from geminorum.options import Options, StrPath
from geminorum.sessions import Session
from geminorum.views.messages import Message, claude


class Spelled(TypedDict, total=False):
    """The document's own spelling of the arguments."""

    projectPath: StrPath | None
    sessionId: str | None


def parse(message: Mapping[str, Any]) -> Message:
    """Converts one message of a session file, decoded from JSON, to Claude's format."""
    if not isinstance(message, Mapping):
        kind = type(message).__name__
        raise InvalidOptions(f"parse() takes one message of a session file, a dict, not {kind}")
    return of_saved(message_of(msgspec.json.encode(message)))


def load_session(
    project_path: StrPath | None = None,
    session_id: str | None = None,
    *,
    home: StrPath | None = None,
    context: bool = False,
    **spelled: Unpack[Spelled],
) -> list[Message]:
    """Loads the messages of the session named, else of the project's newest by `lastUpdated`.

    `home` is the folder that holds `.gemini`. None: GEMINI_CLI_HOME, else the user's home.
    `context` includes what the CLI says before every conversation. Raises SessionLost if there is
    no session.
    """
    wanted = merged({"project_path": project_path, "session_id": session_id}, spelled)
    session = find_session(**wanted, home=home)
    if session is None:
        raise SessionLost(
            "No Gemini session found for project: "
            f"{os.fspath(wanted.get('project_path') or Path.cwd())}",
            hint="sessions belong to the folder they began in: load_session(project_path=…)",
            session_id=wanted.get("session_id"),
        )
    return claude(session, context=context)


def load_messages(
    tool: str = TOOL,
    *,
    project_path: StrPath | None = None,
    session_id: str | None = None,
    home: StrPath | None = None,
    **spelled: Unpack[Spelled],
) -> list[Message]:
    """`load_session` for callers that name the agent; there is only one."""
    refuse_others(tool)
    return load_session(project_path, session_id, home=home, **spelled)


def find_session(
    project_path: StrPath | None = None,
    session_id: str | None = None,
    *,
    home: StrPath | None = None,
    **spelled: Unpack[Spelled],
) -> Session | None:
    """Finds the session that `load_session` would load; None if there is none."""
    wanted = merged({"project_path": project_path, "session_id": session_id}, spelled)
    store = home_of(Options(home=home), os.environ)
    folder = Path(wanted.get("project_path") or Path.cwd()).expanduser()
    files = [path for project in projects_of(store, folder) for path in _files_in(project)]
    session_id = wanted.get("session_id")
    found = _load(files, folder) if session_id is None else _named(files, folder, session_id)
    return _newest(found)


def _files_in(project: Path) -> list[Path]:
    # A renamed session is still one; beside `chats` lie other files of the CLI.
    renamed = [path for path in (project / "chats").glob("*.json*") if path.suffix in SUFFIXES]
    return list(dict.fromkeys([*files_in(project), *renamed]))


def _load(files: Iterable[Path], folder: Path) -> list[Session]:
    sessions = list[Session]()
    for path in files:
        try:
            sessions.append(geminorum.sessions.load(path, folder))
        except SessionUnreadable:
            continue
    return [session for session in sessions if session.kind != "subagent" and _was_used(session)]


def _named(files: list[Path], folder: Path, session_id: str) -> list[Session]:
    """The sessions with this id. Names first: reading the top of every file takes time."""
    likely = [path for path in files if session_id[:ID_IN_NAME] in path.name]
    for some in (likely, files):
        paths = [path for path in some if _id_in(path) == session_id]
        if paths:
            # To resume a session in a later minute leaves a second file, with nothing said in it.
            sessions = [geminorum.sessions.load(path, folder) for path in paths]
            return [one for one in sessions if _was_used(one)] or sessions
    return []


def _id_in(path: Path) -> str | None:
    top = top_of(path)
    return top.session_id if top else None


def _was_used(session: Session) -> bool:
    return any(map(is_spoken, session.messages))


def _newest(sessions: list[Session]) -> Session | None:
    """By what the files say: a copy or a backup has a time of its own."""
    return max(sessions, key=lambda one: one.updated or _written(one.path), default=None)


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0
