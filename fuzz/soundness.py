"""What holds for the events of every decoder, whatever it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec

from geminorum.events import Done, Event, decode, encode
from geminorum.views.result import ResultFold

T = TypeVar("T")
_PIECE = 61
_FEW_BYTES = 8_000


class Unsound(AssertionError):
    """A decoder returned what it promises never to return."""


def require_sound(events: Iterable[Event]) -> None:
    """Every event can be printed, saved and read again, and a result made of them."""
    fold = ResultFold()
    for event in events:
        # What is nested as deep as can be read may be too deep to be written again.
        with suppress(_TooDeep):
            _require_same_again(event, _encoded(event))
        repr(event)
        fold.add([event])
    fold.result().exception()


class _TooDeep(Exception):
    pass


def _encoded(event: Event) -> bytes:
    try:
        line = encode(event)
    except ValueError as error:
        raise _deep_or_unsound(error, "event that cannot be written", b"") from error
    if b"\n" in line:
        raise Unsound(f"event of more than one line: {line[:200]!r}")
    return line


def _require_same_again(event: Event, line: bytes) -> None:
    try:
        again = decode(line)
    except ValueError as error:
        raise _deep_or_unsound(error, "unreadable event", line) from error
    # Blanks around a frame are not kept.
    if encode(_without_frame(again)) != encode(_without_frame(event)):
        raise Unsound(f"other event when it is read again: {line[:200]!r}")


def _deep_or_unsound(error: ValueError, what: str, line: bytes) -> Exception:
    if "nested too deeply" in str(error):
        return _TooDeep()
    return Unsound(f"{what}: {error}: {line[:200]!r}")


def _without_frame(event: Event) -> Event:
    return msgspec.structs.replace(event, frame=msgspec.UNSET)


def require_one_done(events: list[Event]) -> None:
    """The last event is the only Done."""
    found = [number for number, event in enumerate(events) if isinstance(event, Done)]
    if found != [len(events) - 1]:
        raise Unsound(f"Done at {found} of {len(events)} events")


def require_same_in_pieces(read: Callable[[Iterable[bytes]], T], data: bytes) -> T:
    """What is read must not depend on how the bytes arrive."""
    whole = read([data])
    if len(data) > _FEW_BYTES:
        return whole
    pieces = read(data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    if whole != pieces:
        raise Unsound("other events when the bytes arrive in pieces")
    return whole
