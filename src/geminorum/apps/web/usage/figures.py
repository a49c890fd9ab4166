"""A report to what the page shows: rows with their shares, and the points of a chart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

from geminorum.usage import Report, Row

MAX_ROWS = 200
_MAX_DAYS = 3660
"""A date in a file may be wrong by centuries: no chart has a point for each of their days."""


class Line(NamedTuple):
    """A row of the table."""

    row: Row
    share: float
    """Of the largest row, from 0 to 1."""


class Points(NamedTuple):
    """A chart, column by column."""

    days: list[str]
    usd: list[float]
    tokens: list[int]


def lines_of(report: Report) -> list[Line]:
    """The rows that cost most; days in their order, the latest first."""
    rows = list(report.rows)
    if report.by == "day":
        rows.sort(key=lambda row: row.key, reverse=True)
    else:
        rows.sort(key=_weight, reverse=True)
    most = max(map(_weight, rows), default=(Decimal(0), 0))
    return [Line(row, _share(_weight(row), most)) for row in rows[:MAX_ROWS]]


def _weight(row: Row) -> tuple[Decimal, int]:
    return row.cost or Decimal(0), row.tokens.total


def _share(weight: tuple[Decimal, int], most: tuple[Decimal, int]) -> float:
    """By cost; by tokens where nothing has a price."""
    part, whole = (weight[0], most[0]) if most[0] else (Decimal(weight[1]), Decimal(most[1]))
    return float(part / whole) if whole > 0 else 0.0


def points_of(report: Report, first: date | None, last: date) -> Points:
    """Every day of the span, also those without usage."""
    rows = {row.key: row for row in report.rows}
    known = sorted(day for day in map(_day, rows) if day is not None)
    start = first or (known[0] if known else last)
    end = max([last, *known[-1:]])
    days = [day.isoformat() for day in _days(max(start, end - timedelta(days=_MAX_DAYS)), end)]
    return Points(
        days,
        [float(rows[day].cost or 0) if day in rows else 0.0 for day in days],
        [rows[day].tokens.total if day in rows else 0 for day in days],
    )


def _day(key: str) -> date | None:
    try:
        return date.fromisoformat(key)
    except ValueError:
        return None  # "unknown"


def _days(first: date, last: date) -> Iterator[date]:
    for number in range((last - first).days + 1):
        yield first + timedelta(days=number)
