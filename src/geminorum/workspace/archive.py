"""Entries and their contents to one compressed tar, and back from one that anybody may have made.

The tar has `workspace.json`, then `files/NAME` for each entry in the order of their names. Times,
owners and modes are the same everywhere, so the same folder gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from geminorum.errors import InvalidPack, WorkspaceTooLarge
from geminorum.hints import advice
from geminorum.workspace.names import encoded, parents_of, problem_with
from geminorum.workspace.tree import FOLDER, Entry, Tree, file_entry

MAX_BYTES = 256 * 1024 * 1024
"""Contents of a pack or a patch, before compression."""
MAX_ENTRIES = 200_000
VERSION = 1

Kind: TypeAlias = Literal["pack", "patch"]
_MAKERS = {"pack": "`pack`", "patch": "`diff`"}

# More saves little and takes longer: docs/decisions/0017.
_COMPRESSION_LEVEL = 3
_HEADER, _FILES = "workspace.json", "files/"
_MAX_HEADER_BYTES = 64 * 1024 * 1024
_HEADER_COMMAS_PER_ENTRY = 10
"""An entry has five, and names may have some; but each may stand for an object in memory."""
# The header of an entry, a long name and padding.
_BYTES_AROUND_ENTRY = 4096
_BLOCK_BYTES = 64 * 1024
_MAX_LONG_BYTES = 8192
"""A name, or the target of a link."""
_MAX_NAMES_BYTES = 64 * 1024 * 1024
"""All names, and those of the folders above them."""
_ENCODING, _ERRORS = "utf-8", "surrogateescape"
_WRONG_DATA = (ValueError, KeyError, TypeError, RecursionError)
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, *_WRONG_DATA)


class Item(NamedTuple):
    """An entry of an archive, with the contents of a file."""

    name: str
    entry: Entry
    contents: bytes = b""


def write_archive(kind: Kind, facts: dict[str, Any], items: Iterable[Item]) -> bytes:
    """Makes an archive of items; `facts` is what else its reader needs."""
    ordered = sorted(items, key=lambda item: encoded(item.name))
    header = {"geminorum": kind, "version": VERSION, "entries": len(ordered), **facts}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0) as out,
        tarfile.open(
            fileobj=out,
            mode="w|",
            format=tarfile.GNU_FORMAT,
            encoding=_ENCODING,
            errors=_ERRORS,
        ) as tar,
    ):
        # ASCII, in which a name that is not UTF-8 can be written: as a lone surrogate.
        _add(tar, _HEADER, file_entry(b""), json.dumps(header, sort_keys=True).encode())
        for item in ordered:
            _add(tar, _FILES + item.name, item.entry, item.contents)
    return packed.getvalue()


def _add(tar: tarfile.TarFile, name: str, entry: Entry, contents: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o755 if entry.executable or entry.kind == "folder" else 0o644
    member.size = len(contents)
    member.linkname = entry.target
    member.type = _TYPES[entry.kind]
    tar.addfile(member, io.BytesIO(contents))


_TYPES = {"file": tarfile.REGTYPE, "link": tarfile.SYMTYPE, "folder": tarfile.DIRTYPE}


class Archive:
    """Reads an archive, as often as needed. Every reading checks everything that it returns."""

    def __init__(self, data: bytes, kind: Kind, max_bytes: int = MAX_BYTES) -> None:
        self._data, self._kind, self._max_bytes = data, kind, max_bytes

    def facts(self) -> dict[str, Any]:
        """What the archive says about itself."""
        with self._open() as tar:
            return self._header(tar)

    def items(self) -> Iterator[Item]:
        """The entries; InvalidPack as soon as one of them is damaged or could do harm."""
        with self._open() as tar:
            expected = self._header(tar)["entries"]
            places = _Places()
            for item in self._members(tar):
                places.add(item)
                yield item
            # The checksum is at the very end.
            tar.read_to_end()
            if len(places.tree) != expected:
                raise InvalidPack(f"it has {len(places.tree):,} of {expected!r} entries")

    def _members(self, tar: _TarReader) -> Iterator[Item]:
        room = self._max_bytes
        while (member := tar.next()) is not None:
            room -= member.size
            if room < 0:
                raise too_large(self._max_bytes)
            yield _item(tar, member)

    def _header(self, tar: _TarReader) -> dict[str, Any]:
        member = tar.next()
        if member is None or member.name != _HEADER or member.size > _MAX_HEADER_BYTES:
            raise InvalidPack(f"it is no {self._kind} of geminorum")
        header = json.loads(_bounded(tar.contents()))
        if header["geminorum"] != self._kind:
            what = f"it is a {header['geminorum']!r}, not a {self._kind}"
            raise InvalidPack(what, hint=f"name the {self._kind}, which {_MAKERS[self._kind]} made")
        if header["version"] != VERSION:
            text = (
                f"its format has version {header['version']!r}, and this geminorum reads {VERSION}"
            )
            raise InvalidPack(text, hint="update geminorum: pip install --upgrade geminorum")
        return cast("dict[str, Any]", header)

    @contextmanager
    def _open(self) -> Iterator[_TarReader]:
        limit = self._max_bytes + _MAX_HEADER_BYTES + MAX_ENTRIES * _BYTES_AROUND_ENTRY
        with gzip.GzipFile(fileobj=io.BytesIO(self._data)) as stream, _damage_is_told():
            yield _TarReader(_Bounded(stream, limit, self._max_bytes))


def _bounded(header: bytes) -> bytes:
    """The same; a few kilobytes of a pack may be millions of empty lists."""
    if header.count(b",") > MAX_ENTRIES * _HEADER_COMMAS_PER_ENTRY:
        raise too_many()
    return header


@contextmanager
def _damage_is_told() -> Iterator[None]:
    try:
        yield
    except gzip.BadGzipFile as error:
        text = "it is no file that geminorum made, or it is damaged"
        raise InvalidPack(text) from error
    except _DAMAGE as error:
        raise InvalidPack(f"it is damaged: {error}") from error


class _Bounded:
    """A stream that ends in an error instead of filling the disk: a bomb is small when packed."""

    def __init__(self, stream: gzip.GzipFile, limit: int, told: int) -> None:
        self._stream, self._left, self._told = stream, limit, told

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._told)
        return data


class _TarReader:
    """Reads the members of a tar, one after the other.

    `tarfile` would do, but it reads headers of any size into memory, takes damage for the end, and
    understands formats that geminorum does not write.
    """

    def __init__(self, stream: _Bounded) -> None:
        self._stream = stream
        self._unread = 0
        self._padding = 0

    def next(self) -> tarfile.TarInfo | None:
        """The next member; None at the end."""
        longer: dict[bytes, str] = {}
        while (member := self._read_header()) is not None and member.type in _LONGER:
            if member.size > _MAX_LONG_BYTES:
                raise InvalidPack("a name in it is too long")
            text = self.contents().partition(b"\0")[0]
            longer[member.type] = text.decode(_ENCODING, _ERRORS)
        if member is not None:
            member.name = longer.get(tarfile.GNUTYPE_LONGNAME, member.name)
            member.linkname = longer.get(tarfile.GNUTYPE_LONGLINK, member.linkname)
            if member.isdir():
                member.name = member.name.removesuffix("/")
        return member

    def _read_header(self) -> tarfile.TarInfo | None:
        self._skip()
        block = self._stream.read(tarfile.BLOCKSIZE)
        if block == tarfile.NUL * tarfile.BLOCKSIZE:
            return None
        member = tarfile.TarInfo.frombuf(block, _ENCODING, _ERRORS)
        if member.size < 0:
            raise InvalidPack("it is damaged: a size is negative")
        self._unread, self._padding = member.size, -member.size % tarfile.BLOCKSIZE
        return member

    def _skip(self) -> None:
        left = self._unread + self._padding
        while left and (data := self._stream.read(min(left, _BLOCK_BYTES))):
            left -= len(data)
        self._unread = self._padding = 0

    def contents(self) -> bytes:
        """The contents of the member that was read last."""
        contents = self._stream.read(self._unread)
        if len(contents) != self._unread:
            raise InvalidPack("it is damaged: it ends too early")
        self._unread = 0
        return contents

    def read_to_end(self) -> None:
        """Reads what is left, which has to be padding."""
        while self._stream.read(_BLOCK_BYTES):
            pass


_LONGER = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


def _item(tar: _TarReader, member: tarfile.TarInfo) -> Item:
    if not member.name.startswith(_FILES):
        raise InvalidPack(f"geminorum did not write its entry {member.name!r}")
    name = member.name.removeprefix(_FILES)
    if problem := problem_with(name):
        raise InvalidPack(f"the name {name!r} {problem}", paths=[name])
    if member.mode not in (0o644, 0o755):
        raise InvalidPack(f"{name!r} has the mode {member.mode:o}", paths=[name])
    if member.issym() and member.linkname and not member.size:
        return Item(name, Entry("link", target=member.linkname))
    if member.isdir() and not member.size:
        return Item(name, FOLDER)
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise InvalidPack(f"{name!r} is no file, link or folder", paths=[name])
    contents = tar.contents()
    return Item(name, file_entry(contents, executable=member.mode == 0o755), contents)


class _Places:
    """The names so far, and which of them later names may lie below."""

    def __init__(self) -> None:
        self.tree: Tree = {}
        self._folders: set[str] = set()
        self._room = _MAX_NAMES_BYTES

    def add(self, item: Item) -> None:
        """Refuses a name that is there already, or lies below something that is no folder."""
        name = item.name
        above = list(takewhile(lambda one: one not in self._folders, parents_of(name)))
        is_below_file = any(self.tree.get(parent, FOLDER) != FOLDER for parent in above)
        if name in self.tree or name in self._folders or is_below_file:
            raise InvalidPack(f"{name!r} is there twice, or below a file or link", paths=[name])
        self._room -= sum(map(len, (name, *above)))
        if len(self.tree) >= MAX_ENTRIES or self._room < 0:
            raise too_many()
        self.tree[name] = item.entry
        self._folders.update(above)


def too_many(what: str = "it", hint: str = "") -> WorkspaceTooLarge:
    """The error for more files than a pack or a patch may have."""
    return WorkspaceTooLarge(f"{what} has more than {MAX_ENTRIES:,} entries", hint=hint or None)


def too_large(max_bytes: int, what: str = "it", names: Iterable[str] = ()) -> WorkspaceTooLarge:
    """The error for contents above a limit."""
    return WorkspaceTooLarge(
        f"{what} has more than {max_bytes:,} bytes",
        paths=[*names],
        hint=advice("allow more: {workspace.max_bytes=…|max_bytes=…}"),
    )
