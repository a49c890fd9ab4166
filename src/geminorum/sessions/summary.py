"""Session details from the start and the end of a file, without reading all of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from geminorum.errors import SessionUnreadable
from geminorum.sessions.reading import (
    index_of,
    lines_of,
    messages_at,
    opened,
    subagent_files,
    title_of,
)
from geminorum.wire.clock import Clock
from geminorum.wire.sessions.index import SessionIndex
from geminorum.wire.sessions.records import (
    SavedMessage,
    Top,
    is_spoken,
    message_of,
    messages_in,
    record_of,
    words_of,
)

_SMALL = 32 * 1024
"""A file of this size is read whole, which tells what was taken back, too."""
_FAR = 1024 * 1024
"""How far to look for the first words: the CLI's own come before them, and may be many."""
_END = 4 * 1024
_DAY = 24 * 60 * 60 * 1000


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a listing."""

    id: str
    """Empty if the file holds no session; `problem` says why."""
    path: Path
    cwd: Path | None = None
    """The folder it belongs to, if known."""
    started: int = 0
    """Milliseconds since 1970."""
    updated: int = 0
    kind: str = "main"
    title: str = ""
    size: int = 0
    """File size in bytes."""
    empty: bool = False
    """It has no messages: the run failed at once, or has just started."""
    parent: str | None = None
    """For a subagent's session: the session it belongs to."""
    forked_from: str | None = None
    """The id of the session it was forked from."""
    problem: str | None = None
    """What is wrong with the file. None: nothing found."""

    @property
    def subagents(self) -> list[SessionInfo]:
        """The sessions of the subagents that it started."""
        files = subagent_files(self.path, self.id)
        return [info_of(file, file.parent, self.cwd, parent=self.id) for file in files]


class _Glimpse(NamedTuple):
    top: Top
    title: str
    is_empty: bool


def info_of(
    path: Path,
    store: Path,
    cwd: Path | None = None,
    parent: str | None = None,
    *,
    is_inside: bool = False,
) -> SessionInfo:
    """Reads the summary of a session file; `problem` says what is wrong with the file.

    `is_inside`: that no folder above it leads out of the store is known already.
    """
    blank = SessionInfo(id="", path=path, cwd=cwd, parent=parent)
    try:
        # A link may stand for the file, or for a folder above it.
        if path.is_symlink() or not is_inside:
            real = path.resolve() if path.is_symlink() else path.parent.resolve()
            if not real.is_relative_to(store.resolve()):
                raise SessionUnreadable(f"{str(path)!r} is a link out of the store")
        with opened(path) as file:
            status = os.fstat(file.fileno())
            seen = _scan(file, path.suffix, status.st_size)
    except (SessionUnreadable, OSError, RuntimeError) as error:
        return msgspec.structs.replace(blank, problem=getattr(error, "message", str(error)))
    written = int(status.st_mtime * 1000)
    info = msgspec.structs.replace(blank, size=status.st_size, started=written, updated=written)
    return (
        _with_glimpse(info, seen)
        if seen
        else msgspec.structs.replace(info, problem=_why_none(info))
    )


def _why_none(info: SessionInfo) -> str:
    return "nothing in it is a record of a session" if info.size else "the file is empty"


def _with_glimpse(info: SessionInfo, seen: _Glimpse) -> SessionInfo:
    top, written, now = seen.top, info.updated, time.time_ns() // 1_000_000
    started = Clock().milliseconds(top.start_time) or written
    updated = Clock().milliseconds(top.last_updated) or written
    problem = None if top.session_id else "it does not say which session it is"
    if max(started, updated) > now + _DAY:
        problem = f"its date lies in the future: {max(top.start_time, top.last_updated)}"
        updated = min(written, now)  # It must not stand before all others for years.
    return msgspec.structs.replace(
        info,
        id=top.session_id or info.path.stem,
        started=started,
        updated=updated,
        kind=top.kind or ("subagent" if info.parent else "main"),
        title=seen.title,
        empty=seen.is_empty,
        forked_from=top.forked_from,
        problem=problem,
    )


def _scan(file: IO[bytes], suffix: str, size: int) -> _Glimpse | None:
    if size <= _SMALL:
        return _whole(BytesIO(file.read()))
    if suffix == ".jsonl":
        return _log(file, size)
    return _document(file.read(_SMALL)) or _whole(file)


def _whole(file: IO[bytes]) -> _Glimpse | None:
    index = index_of(file)
    if index is None:
        return None
    spoken = filter(is_spoken, messages_at(file, index.places.values()))
    first = [message for message in [next(spoken, None)] if message]
    title = title_of(index.top.summary, chain(first, spoken))
    return _Glimpse(index.top, title, is_empty=not first)


def _log(file: IO[bytes], size: int) -> _Glimpse | None:
    index, first, offset = SessionIndex(), None, 0
    for line, offset in lines_of(file, _FAR):
        index.add(line, offset)
        first = next(_said_in(line), None)
        if first or offset > _FAR:
            break
    if index.top.session_id is None and not index.places:
        return None
    # The time at the top is that of the beginning; where the end tells none, the file's own counts.
    index.top.last_updated = ""
    for line in _last_lines(file, size):
        if (record := record_of(line)) and record.id is None:
            index.note(record.change or record)
    return _Glimpse(
        index.top,
        title_of(index.top.summary, [first] if first else []),
        is_empty=first is None and offset <= _FAR,
    )


def _said_in(line: bytes) -> Iterator[SavedMessage]:
    record = record_of(line)
    return filter(words_of, map(message_of, messages_in(record, line) if record else []))


def _last_lines(file: IO[bytes], size: int) -> list[bytes]:
    """What was last noted about the whole: when it was updated, what it is about."""
    file.seek(max(0, size - _END))
    return file.read(_END).split(b"\n")[1:]


def _document(head: bytes) -> _Glimpse | None:
    """From the beginning of one, where the messages come last, as the CLI writes it."""
    text = head.decode("utf-8", "ignore")
    above, mark, below = text.partition('"messages"')
    top = record_of(f"{above.rstrip().removesuffix(',')}}}".encode()) if mark else None
    if top is None or top.session_id is None:
        return None
    return _Glimpse(top, title_of(top.summary, _first_messages(below.lstrip(": \n[\t\r"))), False)


def _first_messages(text: str) -> Iterator[SavedMessage]:
    """As far as they are whole."""
    decoder = json.JSONDecoder()
    while text:
        try:
            _, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            return
        yield message_of(text[:end].encode())
        text = text[end:].lstrip(", \n\t\r")
