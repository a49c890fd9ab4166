"""Saved sessions of a project to messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from geminorum.contracts.agent_cli.routing import TOOL, refuse_others
from geminorum.errors import SessionLost
from geminorum.options import Options, StrPath
from geminorum.sessions import places
from geminorum.sessions.reading import Session, load
from geminorum.surroundings import home_of
from geminorum.views.messages import Message, claude, of_saved
from geminorum.wire.session_file import is_spoken, message_of


def parse(message: Mapping[str, Any]) -> Message:
    """One message of a session file, as JSON has it, in Claude's format."""
    return of_saved(message_of(msgspec.json.encode(message)))


def load_session(
    project_path: StrPath | None = None,
    session_id: str | None = None,
    *,
    home: StrPath | None = None,
    context: bool = False,
) -> list[Message]:
    """The messages of a session: the one named, else the one of the project used last.

    `home` is the folder that holds `.gemini`; None: GEMINI_CLI_HOME, else the user's own. `context`
    brings in what the CLI says before every conversation. Raises SessionLost where there is none.
    """
    session = find_session(project_path, session_id, home=home)
    if session is None:
        raise SessionLost(
            f"No Gemini session found for project: {os.fspath(project_path or Path.cwd())}",
            hint="sessions belong to the folder they began in: load_session(project_path=…)",
            session_id=session_id,
        )
    return claude(session, context=context)


def load_messages(
    tool: str = TOOL,
    *,
    project_path: StrPath | None = None,
    session_id: str | None = None,
    home: StrPath | None = None,
) -> list[Message]:
    """`load_session` for callers that name the agent; there is one."""
    refuse_others(tool)
    return load_session(project_path, session_id, home=home)


def find_session(
    project_path: StrPath | None = None,
    session_id: str | None = None,
    *,
    home: StrPath | None = None,
) -> Session | None:
    """The session that `load_session` would load; None where there is none."""
    store = home_of(Options(home=home), os.environ)
    folder = Path(project_path or Path.cwd()).expanduser()
    wanted = session_id or places.latest(store, folder)
    found = [load(path, folder) for path in _files_of(store, folder, wanted)] if wanted else []
    # To resume a session in a later minute leaves a second file, with nothing said in it.
    used = (session for session in found if any(map(is_spoken, session.messages)))
    return next(used, found[0] if found else None)


def _files_of(store: Path, folder: Path, session_id: str) -> Iterator[Path]:
    for project in places.projects_of(store, folder):
        for path in places.files_in(project):
            # The name first: reading the top of every file takes time.
            if session_id[: places.ID_IN_NAME] in path.name:
                top = places.top_of(path)
                if top and top.session_id == session_id:
                    yield path
