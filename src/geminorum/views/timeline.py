"""A conversation to a timeline of its tool calls: when each began, how long it took, how it ended.

People leave sessions alone for hours and come back. Time in which nothing was done is cut short, so
that the calls before and after stay visible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from geminorum.events import UserMessage
from geminorum.views.transcript import Entry, Transcript, TranscriptAnswer, TranscriptCall

_LONGEST_PAUSE = 20_000
"""Milliseconds. A model may think that long; what is longer is shown as this much."""


class ToolSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A call on the timeline, in milliseconds from its beginning."""

    name: str
    about: str
    """The argument that says best what it is about."""
    status: str
    """"success", "error", "denied", or "unanswered"."""
    start: int
    end: int
    at: int
    """When it was made, in milliseconds since 1970."""
    entry: int
    """In which entry of the transcript it stands; the first is 1."""

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1000


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All calls in order, and the moments at which a person said something."""

    spans: list[ToolSpan]
    prompts: list[int]
    length: int
    """Milliseconds, without long pauses."""


class _Interval(NamedTuple):
    start: int
    end: int


class _Call(NamedTuple):
    entry: int
    call: TranscriptCall

    @property
    def interval(self) -> _Interval:
        start, result = self.call.use.timestamp, self.call.result
        if result is None:
            return _Interval(start, start)
        # A stream tells when a result came, a saved session how long it took.
        lasted = round((result.duration or 0) * 1000)
        return _Interval(start, max(start + lasted, result.timestamp))


def timeline(transcript: Transcript) -> Timeline:
    """Places every tool call on a common scale of time."""
    calls = list(_calls(transcript.entries))
    moments = list(_moments(transcript.entries))
    scale = _Scale([*(one.interval for one in calls), *(_Interval(at, at) for at in moments)])
    asked = [one.timestamp for one in transcript.entries if isinstance(one, UserMessage)]
    return Timeline(
        spans=[_span(one, scale) for one in calls],
        prompts=[scale.place(at) for at in asked if at],
        length=scale.length,
    )


def _calls(entries: Iterable[Entry]) -> Iterator[_Call]:
    for number, entry in enumerate(entries, 1):
        for part in entry.parts if isinstance(entry, TranscriptAnswer) else ():
            # A call without a time has no place.
            if isinstance(part, TranscriptCall) and part.use.timestamp:
                yield _Call(number, part)


def _moments(entries: Iterable[Entry]) -> Iterator[int]:
    """When somebody said something. The CLI's own notes may be much older, or have no date."""
    for entry in entries:
        if isinstance(entry, UserMessage | TranscriptAnswer):
            at = entry.timestamp if isinstance(entry, UserMessage) else entry.at
            if at:
                yield at


def _span(one: _Call, scale: _Scale) -> ToolSpan:
    start = scale.place(one.interval.start)
    return ToolSpan(
        name=one.call.use.name,
        about=one.call.gist,
        status=one.call.status,
        start=start,
        end=start + one.interval.end - one.interval.start,
        at=one.call.use.timestamp,
        entry=one.entry,
    )


class _Scale:
    """Moments to places on the timeline: pauses are cut, what is busy keeps its length."""

    def __init__(self, intervals: list[_Interval]) -> None:
        self._busy = _joined(intervals)
        """Intervals without long pauses in them, in order."""
        self._places: list[int] = []
        """Where each of them begins."""
        self.length = 0
        for one in self._busy:
            self._places.append(self.length + _LONGEST_PAUSE if self._places else 0)
            self.length = self._places[-1] + one.end - one.start

    def place(self, moment: int) -> int:
        number = bisect_right(self._busy, moment, key=lambda one: one.start) - 1
        return self._places[number] + moment - self._busy[number].start


def _joined(intervals: list[_Interval]) -> list[_Interval]:
    busy: list[_Interval] = []
    for one in sorted(intervals):
        if busy and one.start <= busy[-1].end + _LONGEST_PAUSE:
            busy[-1] = _Interval(busy[-1].start, max(busy[-1].end, one.end))
        else:
            busy.append(one)
    return busy
