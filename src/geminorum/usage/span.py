"""Dates and time zones to milliseconds since 1970, and back to days."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from geminorum.errors import InvalidOptions

UNKNOWN = "unknown"
"""The day of a request whose file does not say when it was made."""

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Span(NamedTuple):
    """From a moment on, and before another; None: no bound."""

    since: int | None
    until: int | None

    @classmethod
    def between(cls, since: date | None, until: date | None, zone: tzinfo | None) -> Span:
        span = cls(_milliseconds(since, zone), _milliseconds(until, zone))
        if span.since is not None and span.until is not None and span.since > span.until:
            raise InvalidOptions(f"since={since} is later than until={until}", hint="swap the two")
        return span

    def __contains__(self, moment: object) -> bool:
        return (
            isinstance(moment, int)
            and (self.since is None or self.since <= moment)
            and (self.until is None or moment < self.until)
        )


def zone_of(tz: str | tzinfo | None) -> tzinfo | None:
    """None is this machine's own zone, as everywhere in `datetime`."""
    if not isinstance(tz, str):
        return tz
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidOptions(
            f"there is no time zone {tz!r}",
            hint='write it as in "Europe/Berlin"; where no zone at all is known, '
            "`pip install tzdata`",
        ) from error


def day_of(moment: int, zone: tzinfo | None) -> str:
    """The date on which a moment falls there."""
    if not moment:
        return UNKNOWN
    try:
        return local_time(moment, zone).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return UNKNOWN  # At either end of the calendar, a zone may lead beyond it.


def local_time(moment: int, zone: tzinfo | None) -> datetime:
    return (_START + moment * _MILLISECOND).astimezone(zone)


def _milliseconds(given: date | None, zone: tzinfo | None) -> int | None:
    if given is None:
        return None
    if not isinstance(given, date):
        raise InvalidOptions(f"{given!r} is not a date", hint="pass a date or a datetime")
    try:
        moment = _moment(given, zone)
        # Rounded up: a request in the millisecond of the bound was made before it.
        return -((_START - moment) // _MILLISECOND)
    except (OverflowError, ValueError, OSError) as error:
        # At either end of the calendar, a zone may lead beyond it.
        raise InvalidOptions(f"{given} is out of range", hint="pass another date") from error


def _moment(given: date, zone: tzinfo | None) -> datetime:
    moment = given if isinstance(given, datetime) else datetime.combine(given, time())
    if moment.tzinfo is not None:
        return moment
    # Not `replace(tzinfo=None)`: a local time needs `astimezone` to find its offset.
    return moment.replace(tzinfo=zone) if zone else moment.astimezone()
