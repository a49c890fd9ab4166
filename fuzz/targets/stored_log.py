"""The entries of a session store, one in a line, to the files of a session and what is missing.

An entry has digests, so changed bytes would be refused at once: a line has what an entry holds, and
the digests are made for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from fuzz.scratch import scratch_folder
from fuzz.soundness import Unsound, require_sound
from fuzz.target import Target
from geminorum.errors import GeminorumError, Unsupported
from geminorum.sessions.store.local_files import write_files
from geminorum.sessions.store.session_sync import missing_in
from geminorum.wire.stored.entries import (
    About,
    Entry,
    SavedFile,
    TurnRecord,
    encoded,
    known_after,
    turn_record,
)
from geminorum.wire.stored.fingerprint import fingerprint_of
from geminorum.wire.stored.journal import Journal

SESSION = "0f1e2d3c-4b5a-4697-8899-aabbccddeeff"
_NAME = f"session-2026-01-02T10-00-{SESSION[:8]}.jsonl"
_BYTES = "bytes:"
"""In front of what is bytes in an entry: JSON has none."""


def run(data: bytes) -> None:
    journal = Journal(SESSION)
    for line in data.split(b"\n"):
        journal.add(_raw(line))
    require_sound(missing_in(journal, "hint"))
    repr((journal.about, journal.problems, journal.state, journal.known_in_pieces()))
    if journal.files:
        _require_inside(journal)


def _require_inside(journal: Journal) -> None:
    """Whatever a store says, all files are where those of the session belong."""
    folder = scratch_folder("stored") / "project"
    with suppress(GeminorumError):
        write_files(folder, SESSION, journal.files)
    places = {path.parent for path in folder.rglob("*") if path.is_file()}
    allowed = {"chats", f"chats/{SESSION}", f"tool-outputs/session-{SESSION}"}
    shutil.rmtree(folder, ignore_errors=True)
    if not {place.relative_to(folder).as_posix() for place in places} <= allowed:
        raise Unsound(f"files in {places}")


def _raw(line: bytes) -> bytes:
    try:
        entry = _with_bytes(json.loads(line))
        record = entry.pop("record", None)
        data = b"" if record is None else msgspec.msgpack.encode(_with_digests(record))
        return encoded({"data": data, **entry})  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return line


def _with_bytes(value: Any) -> Any:
    match value:
        case str() if value.startswith(_BYTES):
            with suppress(binascii.Error, UnicodeEncodeError):
                return base64.b64decode(value.removeprefix(_BYTES).encode())
            return b""
        case list():
            return [_with_bytes(one) for one in value]
        case dict():
            return {key: _with_bytes(one) for key, one in value.items()}
    return value


def _with_digests(record: Any) -> Any:
    """Files that are sent whole fit, so that what follows is tried, too."""
    match record:
        case [base, [*files]]:
            return [base, [_whole(file) for file in files]]
    return record


def _whole(file: Any) -> Any:
    match file:
        case [role, name, 0, _, _, [bytes(data)]]:
            return [role, name, 0, len(data), fingerprint_of(data).digest, [data]]
    return file


def _lines() -> Iterator[bytes]:
    """Three turns: a whole one, one that grows, and one that only began."""
    said = b'{"sessionId":"%s"}\n' % SESSION.encode()
    turns = [said, said + b'{"id":"1","type":"user","content":"Hello"}\n']
    known: dict[str, Any] = {}
    for data in turns:
        files = {
            "main.jsonl": SavedFile(_NAME, data),
            "output/shell_1.txt": SavedFile("shell_1.txt", b"out"),
            "subagent/a.jsonl": SavedFile("a.jsonl", b"{}\n"),
        }
        after = known_after(files, known)
        yield _line("turn", turn_record(known, files, after))
        known = after
    yield _line("begun", None)


def _line(kind: Any, record: TurnRecord | None) -> bytes:
    about = About(title="Hello", cwd="/srv", cli_version="0.61.0", updated=1_700_000_000_000)
    at = 1_700_000_000_000
    entry = Entry(session=SESSION, kind=kind, turn="t", writer="host:1", at=at, about=about)
    plain = msgspec.to_builtins(entry, builtin_types=(bytes,))
    del plain["data"]
    plain["record"] = msgspec.to_builtins(record, builtin_types=(bytes,))
    return json.dumps(plain, default=_as_text).encode()


def _as_text(value: bytes) -> str:
    return _BYTES + base64.b64encode(value).decode()


_SEED = b"\n".join(_lines())
_WORDS = (b"../", b'"bytes:"', b'"main-2.jsonl"', b'"subagent/x"', b"[0,536870912]", b'"part": 2')
TARGET = Target("stored-log", run, (_SEED, *_SEED.split(b"\n")), (Unsupported,), words=_WORDS)
