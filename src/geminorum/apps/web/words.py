"""Numbers and moments in the words of the pages."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePath

from geminorum.views.plain_text import printable
from geminorum.views.transcript import duration, money

UNKNOWN = "\N{EN DASH}"


def tokens(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def usd(amount: float | Decimal | None) -> str:
    """US dollars, with more digits the less it is."""
    return UNKNOWN if amount is None else money(Decimal(str(amount)))


def seconds(milliseconds: int) -> str:
    """A duration as clocks show it: 0:07, 12:05, 1:02:33."""
    minutes, rest = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def whole_number(text: str) -> int | None:
    """The number in an address; None for what is none, or more than a database holds."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def cut(text: str, longest: int = 40_000) -> str:
    """The beginning of a long text, and how much is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest:,} more characters"


def base_name(path: str) -> str:
    return PurePath(path).name or path


def size(count: int) -> str:
    """Bytes: 840 B, 12.3 kB, 104 MB."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"


def took(seconds: float) -> str:
    """How long something took: 40 ms, 3.2 s, 2 min 5 s."""
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    return duration(seconds) or "0 s"


def short_number(count: int) -> str:
    """A number where there is little room: 950, 12.3k, 4.56M."""
    for unit, scale in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * scale or (unit != "k" and count >= scale):
            return f"{count / scale:.3g}{unit}"
    return f"{count:,}"


def counted(number: int, noun: str) -> str:
    """1 session, 10,000 sessions."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def traceback_of(error: BaseException) -> str:
    """For a log, which a terminal may show: what a model or a file says in it cannot act there."""
    return printable("".join(traceback.format_exception(error)).rstrip())
