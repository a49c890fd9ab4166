"""What of a file's new content its old content had elsewhere, so that it need not be sent again.

The CLI writes all messages once more whenever it resumes a session, though in another shape, and
older CLIs the whole document at every turn. So content is cut where lines, messages and their texts
begin, and each piece that the old content had becomes a copy of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from geminorum.wire.stored.fingerprint import digest_of

# Messages of a list have a comma between them, those of a log a line's end. A text is a string by
# itself, or one of many parts.
_CUTS = re.compile(
    rb',?(\{)"id":"|\n()|"(?:text|content|output)":"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL
)
_LINE_END = 2
"""The group that it matches."""
_MAX_PIECES = 400_000
"""Beyond, content is sent as it is: nobody's messages are that short."""
_SHORTEST_SEARCHED = 48
"""Bytes of a piece that is worth a search; a shorter one may follow the one before it."""

Op: TypeAlias = bytes | bytearray | tuple[int, int]
"""Bytes, or the start and the length of a part of the old content."""


class Piece(NamedTuple):
    start: int
    size: int
    digest: bytes


def pieces_of(data: bytes, known: Sequence[Piece] = (), keep: int = 0) -> list[Piece]:
    """The pieces of `data`, whose first `keep` bytes are those that `known` are of."""
    # The last one that is whole may have become longer.
    old = [piece for piece in known if piece.start + piece.size <= keep][:-1]
    start = old[-1].start + old[-1].size if old else 0
    cuts = _cuts(data, start)
    if len(cuts) + len(old) > _MAX_PIECES:
        return []
    view = memoryview(data)
    pairs = zip(cuts, [*cuts[1:], len(data)], strict=True)
    return [*old, *(Piece(a, b - a, digest_of(view[a:b])) for a, b in pairs if a < b)]


def ops_of(
    data: bytes, keep: int, old: Sequence[Piece], new: Sequence[Piece]
) -> tuple[int, list[Op]]:
    """How the content comes from the old one, of which it has the first `keep` bytes: how many of
    them to keep, and what follows.
    """
    if not new:
        return keep, [data[keep:]]
    first = bisect_right(new, keep, key=lambda piece: piece.start) - 1
    places = {piece.digest: place for place, piece in enumerate(old)}
    ops: list[Op] = []
    following = -1
    for piece in islice(new, first, None):
        place = following if _is_at(old, following, piece) else None
        if place is None and piece.size >= _SHORTEST_SEARCHED:
            place = places.get(piece.digest)
        if place is None:
            _add_bytes(ops, data[piece.start : piece.start + piece.size])
        else:
            _add_copy(ops, old[place])
        following = -1 if place is None else place + 1
    return new[first].start, ops


def _cuts(data: bytes, start: int) -> list[int]:
    found = {start}
    for match in _CUTS.finditer(data, start):
        begin, end = match.span(match.lastindex or 0)
        # Before a message: the comma is apart from it. Around a line's end, or a text.
        found |= {match.start(), begin} if match.lastindex == 1 else {begin, end}
        if match.lastindex == _LINE_END:
            found.add(match.start())
        if len(found) > _MAX_PIECES:
            break
    return sorted(found)


def _is_at(old: Sequence[Piece], place: int, piece: Piece) -> bool:
    return 0 <= place < len(old) and old[place].digest == piece.digest


def _add_bytes(ops: list[Op], data: bytes) -> None:
    last = ops[-1] if ops else None
    if isinstance(last, bytearray):
        last += data
    elif data:
        ops.append(bytearray(data))


def _add_copy(ops: list[Op], piece: Piece) -> None:
    last = ops[-1] if ops else None
    if isinstance(last, tuple) and last[0] + last[1] == piece.start:
        ops[-1] = (last[0], last[1] + piece.size)
    else:
        ops.append((piece.start, piece.size))
