"""Numbers and moments in the words of the pages."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePath

from geminorum.views.transcript import money

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


def instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def cut(text: str, longest: int = 40_000) -> str:
    """The beginning of a long text, and how much is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest:,} more characters"


def base_name(path: str) -> str:
    return PurePath(path).name or path
