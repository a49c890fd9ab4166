"""Deletes sessions, and copies them under a new id."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import IO, Any

import msgspec

from geminorum.errors import InvalidOptions, SessionLost, SessionUnreadable
from geminorum.hints import advice
from geminorum.runtime import typed
from geminorum.sessions.finding import HINT, AnyPath, check_id, find, known
from geminorum.sessions.lock import SessionLock
from geminorum.sessions.places import ID_IN_NAME, all_projects, hash_of, home_of, records, store_of
from geminorum.sessions.reading import ID, SUFFIXES, Session, load
from geminorum.sessions.repairing import repaired_copy
from geminorum.sessions.summary import SessionInfo, info_of
from geminorum.wire.sessions.records import SavedMessage

_MINUTE = 60_000


def delete(session: SessionInfo | Session | AnyPath, *, home: AnyPath | None = None) -> list[Path]:
    """Deletes a session: its files, its subagents' files, and its tools' files in the store.

    Returns what was deleted. Deletes nothing if any of it lies outside the store, directly or
    through a link; raises SessionBusy while a run uses the session.
    """
    place = home_of(home)
    info = known(session, home=place)
    if not info.path.is_symlink() and not info.path.is_file():
        raise SessionLost(f"{str(info.path)!r} is not a session file", hint=HINT)
    if not info.id:
        return _remove([_named_like_a_session(info.path)], place)
    with SessionLock(place, info.parent or info.id):
        return _remove(list(_belongings(info, place)), place)


def fork(
    session: SessionInfo | Session | AnyPath,
    *,
    new_id: str | None = None,
    home: AnyPath | None = None,
) -> SessionInfo:
    """Copies a session under a new id, so that both can continue; the original is unchanged.

    The copy has every message with all details, even where the CLI has lost some.
    """
    place, name = home_of(home), new_id or str(uuid.uuid4())
    info = known(session, home=place)
    _refuse_name(name, place)
    if info.empty or not info.id:
        why = info.problem or "it has no messages yet"
        raise SessionUnreadable(f"cannot fork {str(info.path)!r}: {why}", hint=HINT)
    chats = _chats_of(info)
    suffix = ".json" if info.path.suffix == ".json" else ".jsonl"
    target = chats / f"session-{_stamp(info.started)}-{name[:ID_IN_NAME]}{suffix}"
    if target.exists():
        raise InvalidOptions(
            f"{str(target)!r} already exists",
            hint=advice("choose another {sessions.new_id|new_id}"),
        )
    with repaired_copy(info.path) as path:
        _write(target, load(path, info.cwd), name)
    _copy_subagents(info, chats / name)
    return info_of(target, store_of(place), info.cwd)


def _belongings(info: SessionInfo, home: Path) -> Iterator[Path]:
    """All that is a session's; the file that it is known by comes last, so that what fails before
    can be tried again.
    """
    ids = [one.id for one in (info, *info.subagents) if ID.fullmatch(one.id)]
    for project in all_projects(home):
        if info.parent is None:
            yield from _other_files(info, project.folder, store_of(home))
        for one in ids:
            if one == info.id or not _is_shared(project.folder, info, one):
                yield from filter(os.path.lexists, _traces(project.folder, one))
    yield info.path


def _is_shared(project: Path, info: SessionInfo, subagent: str) -> bool:
    """Does another session, a fork or what it was forked from, have this subagent too?"""
    files = (project / "chats").glob(f"*/{escape(subagent)}.json*")
    return any(path.parent.name != (info.parent or info.id) for path in files)


def _named_like_a_session(path: Path) -> Path:
    inside = path.parent.name == "chats" or path.parent.parent.name == "chats"
    if path.suffix not in SUFFIXES or not (path.name.startswith("session-") or inside):
        raise InvalidOptions(f"{str(path)!r} is not named like a session's file")
    return path


def _other_files(info: SessionInfo, project: Path, store: Path) -> Iterator[Path]:
    """Files of the same id: a resumed session leaves some, and so does a newer CLI."""
    for folder in (project / "chats", project):
        for path in sorted(folder.glob(f"session-*-{escape(info.id[:ID_IN_NAME])}.json*")):
            if info_of(path, store).id == info.id and path.resolve() != info.path.resolve():
                yield path


def _traces(project: Path, session_id: str) -> list[Path]:
    """What the CLI keeps of a session beside its file, and removes with it."""
    found = [
        project / "chats" / session_id,
        project / "logs" / f"session-{session_id}.jsonl",
        project / "tool-outputs" / f"session-{session_id}",
    ]
    # Any other id might be the name of a folder that belongs to all sessions.
    return [*found, project / session_id] if _is_uuid(session_id) else found


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _remove(paths: list[Path], home: Path) -> list[Path]:
    for path in paths:
        _refuse_outside(path, store_of(home).resolve())
    once = list(dict.fromkeys(paths))
    for path in once:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # With the folder that it lay in.
    return once


def _refuse_outside(path: Path, store: Path) -> None:
    try:
        real, lies = path.resolve(), path.parent.resolve() / path.name
    except (OSError, RuntimeError) as error:
        raise InvalidOptions(f"{str(path)!r} leads nowhere: {error}") from error
    if not all(one.is_relative_to(store) and one != store for one in (real, lies)):
        raise InvalidOptions(
            f"{str(path)!r} is not in the store of sessions, {str(store)!r}",
            hint=advice("links are not followed[; for another store: {delete(…, home=…)}]"),
        )


def _refuse_name(session_id: str, home: Path) -> None:
    check_id(session_id)
    other = find(None, session_id, home=home)
    if other and other.id == session_id:
        raise InvalidOptions(
            f"there is a session {session_id!r} already",
            hint=advice("leave {sessions.new_id|new_id} out"),
        )


def _chats_of(info: SessionInfo) -> Path:
    """Where the CLI looks for the sessions of this one's project."""
    folder = info.path.parent
    if info.parent is not None:
        return folder.parent
    return folder if folder.name == "chats" else folder / "chats"


def _stamp(started: int) -> str:
    """The minute for the name of a file, never the present one.

    A session that is resumed in the minute of its name is damaged: the CLI takes its file for a
    new one.
    """
    past = min(started, time.time_ns() // 1_000_000 - _MINUTE)
    return datetime.fromtimestamp(max(past, 0) / 1000, UTC).strftime("%Y-%m-%dT%H-%M")


def _copy_subagents(info: SessionInfo, folder: Path) -> None:
    for one in info.subagents:
        if one.id:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(one.path, folder / one.path.name)


def _write(target: Path, session: Session, new_id: str) -> None:
    target.parent.mkdir(exist_ok=True)
    # Under a name that is no session's, so that no one reads a half of it.
    handle, name = tempfile.mkstemp(prefix=".fork-", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            # A CLI that saves one document cannot read lines.
            fill = _fill_document if target.suffix == ".json" else _fill
            fill(file, session, new_id)
        shutil.copymode(session.path, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink()
        raise


def _fill(file: IO[bytes], session: Session, new_id: str) -> None:
    file.write(_line(_top(session, new_id)))
    for line in _message_lines(session, new_id):
        file.write(line)


def _fill_document(file: IO[bytes], session: Session, new_id: str) -> None:
    messages = [msgspec.Raw(line) for line in _message_lines(session, new_id)]
    file.write(_line({**_top(session, new_id), "messages": messages}))


def _message_lines(session: Session, new_id: str) -> Iterator[bytes]:
    for number, message in enumerate(session.messages):
        if message.type != "broken":
            yield _message_line(message, f"{new_id}-{number}")


def _top(session: Session, new_id: str) -> dict[str, Any]:
    now = _written_out(datetime.now(UTC))
    before = _written_out(datetime.fromtimestamp(session.ended / 1000, UTC))
    # The CLI does not take a session without it for one.
    project = session.project_hash or hash_of(session.cwd or session.path.parent)
    ours = {"sessionId": new_id, "projectHash": project, "kind": "main", "lastUpdated": now}
    fork = {"forkedFrom": session.id, "forkedAt": now, "updatedBeforeFork": before}
    return {"startTime": now, **_metadata(session.path), **ours, **fork}


def _written_out(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _metadata(path: Path) -> dict[str, Any]:
    """All that was noted about the session, also what this version has no word for."""
    found: dict[str, Any] = {}
    for record, line in records(path):
        if record.id is None and record.rewind_to is None:
            try:
                data = typed.decode(line, dict[str, msgspec.Raw])
                if "$set" in data:
                    data = typed.decode(data["$set"], dict[str, msgspec.Raw])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            start = found.get("startTime")
            found |= {key: value for key, value in data.items() if key != "messages"}
            found |= {"startTime": start} if start else {}
    return found


def _message_line(message: SavedMessage, new_id: str) -> bytes:
    if message.id:
        return bytes(message.raw) + b"\n"
    data = msgspec.json.decode(message.raw)
    return _line({**data, "id": new_id})


def _line(data: dict[str, Any]) -> bytes:
    return msgspec.json.encode(data) + b"\n"
