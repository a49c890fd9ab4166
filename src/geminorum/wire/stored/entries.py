"""A turn of a session to the entries of a log, and an entry's bytes back to an entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from geminorum.errors import SessionUnreadable, Unsupported
from geminorum.runtime import typed
from geminorum.wire.stored.fingerprint import (
    Data,
    Fingerprint,
    common_start,
    digest_of,
    fingerprint_of,
)
from geminorum.wire.stored.pieces import Op, Piece, ops_of, pieces_of

FORMAT = 1
MAX_PART_BYTES = 4 * 1024 * 1024
"""Of a turn in one entry; a larger turn takes several."""
MAX_SESSION_BYTES = 512 * 1024 * 1024
MAX_PARTS = MAX_SESSION_BYTES // MAX_PART_BYTES + 1
MAX_FILES = 2000
MAX_OPS = 1_000_000
_SEARCHED_BYTES = 4096
"""A shorter tail is sent as it is."""
_MAX_SHOWN = 200
"""Letters of what an entry says, in a message."""
_MAGIC = b"gses"
_HEAD_BYTES = len(_MAGIC) + 1 + 16
_ROLE = re.compile(r"main(-\d{1,3})?\.jsonl?|(subagent|output)/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")

_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_SESSION_BYTES)]


_Moment = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970; to the end of the last year that has four digits."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing says about a session, and what a resume has to know before it begins."""

    title: str = ""
    cwd: str = ""
    """The folder in which the turn ran, on the machine where it ran."""
    cli_version: str | None = None
    """Of the CLI that wrote the files."""
    created: _Moment = 0
    updated: _Moment = 0
    size: Annotated[int, msgspec.Meta(ge=0)] = 0


class FileDelta(msgspec.Struct, frozen=True, array_like=True):
    """A file after a turn: the first `keep` bytes of what the store has, then `tail`."""

    role: str
    """What it is to the session, whatever its name: "main.jsonl", "subagent/….jsonl"."""
    name: str
    keep: _Size
    size: _Size
    digest: bytes
    """Of the whole content."""
    tail: Annotated[tuple[bytes | tuple[_Size, _Size], ...], msgspec.Meta(max_length=MAX_OPS)] = ()
    """New bytes, and parts of what the store has: where they begin, and their length."""


class TurnRecord(msgspec.Struct, frozen=True, array_like=True):
    """All files of a session after a turn."""

    base: bytes
    """The state that this is a change of; see `state_of`."""
    files: Annotated[tuple[FileDelta, ...], msgspec.Meta(max_length=MAX_FILES)]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log: the beginning of a turn, or a part of what the turn left."""

    session: str
    kind: Literal["begun", "turn"]
    turn: str
    """The same in all entries of a turn."""
    writer: str
    at: _Moment
    about: About
    part: int = 1
    parts: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTS)] = 1
    data: bytes = b""


class SavedFile(NamedTuple):
    """A file of a session, to be saved."""

    name: str
    data: bytes


class KnownFile(NamedTuple):
    """A file as the store has it."""

    name: str
    fingerprint: Fingerprint
    pieces: Sequence[Piece] = ()
    """Empty where nobody has to find them again."""


_entry_decoder = typed.msgpack_decoder(Entry)
_turn_decoder = typed.msgpack_decoder(TurnRecord)


class Damaged(ValueError):
    """The bytes are not those that were saved."""


def encoded(entry: Entry) -> bytes:
    body = msgspec.msgpack.encode(entry)
    return _MAGIC + bytes([FORMAT]) + digest_of(body) + body


def decoded(given: Data, session: str) -> Entry:
    """Raises Damaged, or Unsupported if a newer geminorum has written it."""
    raw = _as_bytes(given)
    body = raw[_HEAD_BYTES:]
    if not raw.startswith(_MAGIC) or len(raw) <= _HEAD_BYTES:
        raise Damaged("no entry of a session")
    if raw[len(_MAGIC)] > FORMAT:
        raise Unsupported(
            f"session {session!r} was saved by a newer geminorum",
            hint="update this one with `pip install --upgrade geminorum`",
        )
    if raw[len(_MAGIC) + 1 : _HEAD_BYTES] != digest_of(body):
        raise Damaged("its bytes are not those that were saved")
    try:
        entry = _entry_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(str(error)) from error
    if entry.session != session:
        raise Damaged(f"it belongs to session {entry.session[:_MAX_SHOWN]!r}")
    return entry


def _as_bytes(given: Data) -> bytes:
    """Some databases return views. Never by `bytes(given)`: of a number, it makes so many zeros."""
    try:
        return bytes(memoryview(given))
    except TypeError as error:
        raise Damaged(f"it is no bytes, but a {type(given).__name__}") from error


def turn_in(parts: Iterable[bytes]) -> TurnRecord:
    """The turn whose parts these are."""
    try:
        record = _turn_decoder.decode(b"".join(parts))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(str(error)) from error
    for file in record.files:
        # These become the names of files: they must not lead anywhere else.
        if not _ROLE.fullmatch(file.role) or not is_file_name(file.name):
            raise Damaged(f"{file.name!r} is not the name of a session's file")
    if len({file.role for file in record.files}) < len(record.files):
        raise Damaged("it has a file twice")
    return record


def is_file_name(name: str) -> bool:
    """Can a file of a session be called so on every machine?"""
    return _NAME.fullmatch(name) is not None


def known_after(
    files: Mapping[str, SavedFile], known: Mapping[str, KnownFile] | None = None
) -> dict[str, KnownFile]:
    """The files as the store will know them after what is `known`. Refuses more than it takes."""
    size = sum(len(file.data) for file in files.values())
    if size > MAX_SESSION_BYTES or len(files) > MAX_FILES:
        raise SessionUnreadable(
            f"the session has {len(files)} files with {size:,} bytes",
            hint=f"a store takes {MAX_FILES} files and {MAX_SESSION_BYTES:,} bytes; begin anew",
        )
    return {role: _known(file, (known or {}).get(role)) for role, file in files.items()}


def turn_record(
    known: Mapping[str, KnownFile],
    files: Mapping[str, SavedFile],
    after: Mapping[str, KnownFile],
) -> TurnRecord:
    """What is new in `files`, which `after` is of, to a store that knows what is `known`."""
    deltas = (
        _delta(role, file, known.get(role), after[role]) for role, file in sorted(files.items())
    )
    return TurnRecord(state_of(known), tuple(deltas))


def parts_of(record: TurnRecord) -> list[bytes]:
    data = msgspec.msgpack.encode(record)
    return [data[at : at + MAX_PART_BYTES] for at in range(0, len(data), MAX_PART_BYTES)]


def state_of(files: Mapping[str, KnownFile]) -> bytes:
    """A digest of the conversation: its main files, whatever their names are."""
    mains = sorted(role for role in files if role.startswith("main"))
    return digest_of(b"".join(role.encode() + files[role].fingerprint.digest for role in mains))


def _known(file: SavedFile, known: KnownFile | None) -> KnownFile:
    fresh = fingerprint_of(file.data)
    keep = 0 if known is None else common_start(known.fingerprint, fresh, file.data)
    return KnownFile(file.name, fresh, pieces_of(file.data, known.pieces if known else (), keep))


def _delta(role: str, file: SavedFile, known: KnownFile | None, after: KnownFile) -> FileDelta:
    data, fresh = file.data, after.fingerprint
    keep = 0 if known is None else common_start(known.fingerprint, fresh, data)
    tail: list[Op] = [data[keep:]] if keep < len(data) else []
    if known is not None and len(data) - keep > _SEARCHED_BYTES:
        keep, tail = ops_of(data, keep, known.pieces, after.pieces)
    ops = tuple(bytes(op) if isinstance(op, bytearray) else op for op in tail)
    return FileDelta(role, file.name, keep, fresh.size, fresh.digest, ops)
