"""What people write for a moment, to a datetime; and milliseconds to what people read."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from geminorum.errors import InvalidOptions

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_ADVICE = "write a date (2026-11-01), a time ago (90m, 24h, 7d, 2w), today or yesterday"


def moment_of(text: str | None, now: datetime | None = None) -> datetime | None:
    """The moment that is meant, in this machine's zone; None for None."""
    if text is None:
        return None
    now = now or datetime.now().astimezone()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if text in named:
        return named[text]
    try:
        if ago := re.fullmatch(r"(\d{1,9})([mhdw])", text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise InvalidOptions(f"{text!r} is not a point in time", hint=_ADVICE) from None


def age_of(text: str) -> timedelta:
    """An age: 90m, 24h, 30d, 2w."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if not found:
        raise InvalidOptions(f"{text!r} is not an age", hint="write 90m, 24h, 30d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def when(milliseconds: int, now: datetime | None = None) -> str:
    """A moment in the past, as short as can be: the time today, else the day."""
    if not milliseconds:
        return "unknown"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return "unknown"
    now = now or datetime.now().astimezone()
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%Y-%m-%d}"


def size_of(size: int) -> str:
    """Bytes in a unit that leaves few digits."""
    number = float(size)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
