"""Which session a run goes on with, and how a warm CLI can load one without destroying it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from geminorum.errors import InvalidOptions, SessionLost
from geminorum.events import Error
from geminorum.hints import advice
from geminorum.sessions import places
from geminorum.sessions.repairing import repair_file
from geminorum.system.reserve import RESERVE

_STAMP = re.compile(r"session-(\d{4}-\d\d-\d\dT\d\d-\d\d)-")
_MINUTES = "%Y-%m-%dT%H-%M"


def resolve_session(home: Path, cwd: Path, wanted: str) -> str:
    """The id of the session that is meant; refuses one of another folder."""
    if wanted == "latest":
        found = places.latest(home, cwd)
        if found is None:
            raise SessionLost(f"{str(cwd)!r} has no session to resume")
        return found
    owner = places.project_of(home, wanted)
    # A session that came through a store may be in several folders of one home.
    if owner not in (None, cwd.resolve()) and not files_of(home, cwd, wanted):
        raise InvalidOptions(
            f"session {wanted!r} belongs to the folder {str(owner)!r}",
            hint=advice("resume it there, with {Options.cwd=owner}", owner=str(owner)),
        )
    return wanted


def fallback_notice(why: str, at: int) -> Error:
    """The word about it at the head of the stream."""
    text = f"{why}; going on in a fresh session"
    return Error(text, SessionLost.code, recoverable=True, timestamp=at)


@asynccontextmanager
async def guard_load(home: Path, cwd: Path, session_id: str) -> AsyncIterator[None]:
    """A block in which the CLI may load the session; removes the second one that it starts.

    That one stays empty, and the clean-up at the next start of a CLI would delete both for it.
    """
    if not files_of(home, cwd, session_id):
        raise SessionLost(f"there is no session {session_id!r} in {str(cwd)!r}")
    prepare_resume(home, cwd, session_id)
    try:
        yield
    finally:
        remove_strays(home, cwd, session_id)


def prepare_resume(home: Path, cwd: Path, session_id: str) -> None:
    """Makes a session's files safe to be loaded. To be called with the session's lock held.

    The CLI names a file by the minute. When it loads a session it first begins a new file, and in
    the minute of the old one's birth that is the old one: it overwrites what it is about to read,
    and where it ends before its first answer, the history is lost. So the file gets the name of an
    earlier minute, also where a clock that was set back has not reached its own yet.

    Calls and responses are paired, so that Google's API accepts the resume. A file that cannot be
    read or written stays as it is.
    """
    for path in files_of(home, cwd, session_id):
        if path.suffix == ".jsonl":  # Older documents have no responses besides those of calls.
            with suppress(OSError):
                repair_file(path)
        with suppress(OSError):
            _rename_as_older(path)


def remove_strays(home: Path, cwd: Path, session_id: str) -> None:
    """Takes away what the CLI began beside a session's file and never wrote to."""
    with RESERVE.spend(), suppress(OSError):
        unused = unused_files(home, cwd, session_id)
        # Never the only file that a session has.
        if not {*files_of(home, cwd, session_id)} <= {*unused}:
            for stray in unused:
                with suppress(OSError):
                    stray.unlink()


def files_of(home: Path, cwd: Path, session_id: str) -> list[Path]:
    """The files that a session has; there may be several."""
    return [path for path in _named(home, cwd, session_id) if _belongs(path, session_id)]


def unused_files(home: Path, cwd: Path, session_id: str) -> list[Path]:
    """Session files without a message, also those that a killed CLI had only opened."""
    found = _named(home, cwd, session_id)
    begun = [path for path in found if _belongs(path, session_id) or not path.stat().st_size]
    return [path for path in begun if not places.was_used(path)]


def _named(home: Path, cwd: Path, session_id: str) -> list[Path]:
    name = f"session-*-{session_id[: places.ID_IN_NAME]}*.json*"
    folders = [project / "chats" for project in places.projects_of(home, cwd)]
    return [path for folder in folders for path in folder.glob(name)]


def _belongs(path: Path, session_id: str) -> bool:
    top = places.top_of(path)
    return top is not None and top.session_id == session_id


def _rename_as_older(path: Path) -> Path:
    found = _STAMP.match(path.name)
    now = datetime.now(UTC)
    # Such stamps sort like the minutes they name. A past minute does not come again.
    if found is None or found[1] < now.strftime(_MINUTES):
        return path
    for minutes in range(1, 60):
        stamp = (now - timedelta(minutes=minutes)).strftime(_MINUTES)
        older = path.with_name(path.name.replace(found[1], stamp))
        if not older.exists():
            return path.rename(older)
    return path
