"""Which usage somebody wants to see: how it is grouped, and of which days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import get_args
from urllib.parse import urlencode

from geminorum.apps.web.sessions.query import day_in
from geminorum.usage import By

GROUPS: tuple[By, ...] = ("day", "model", "project", "session")
PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days", "all": "All"}
_USUAL = "30"


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Either a period that ends today, or two days, both included."""

    by: By = "day"
    period: str = _USUAL
    since: str = ""
    until: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> UsageQuery:
        by, period = given.get("by", ""), given.get("days", "")
        return cls(
            by=by if by in get_args(By) else "day",  # type: ignore[arg-type]
            period=period if period in PERIODS else _USUAL,
            since=given.get("since", "").strip(),
            until=given.get("until", "").strip(),
        )

    @property
    def has_dates(self) -> bool:
        return bool(self.since or self.until)

    @property
    def problems(self) -> dict[str, str]:
        """What cannot be used, by field."""
        given = {"since": self.since, "until": self.until}
        wrong = {
            name: f"{text!r} is not a date; write it as 2026-11-30"
            for name, text in given.items()
            if text and day_in(text) is None
        }
        first, last = day_in(self.since), day_in(self.until)
        if first and last and first > last:
            wrong["until"] = "this is before the first day; swap the two"
        return wrong

    def days(self, today: date) -> tuple[date | None, date | None]:
        """The first day, and the day after the last; None: no bound."""
        if self.problems or not self.has_dates:
            return self._first_of_period(today), None
        last = day_in(self.until)
        has_next = last is not None and last < date.max
        return day_in(self.since), last + timedelta(days=1) if last and has_next else None

    def _first_of_period(self, today: date) -> date | None:
        return None if self.period == "all" else today - timedelta(days=int(self.period) - 1)

    def grouped(self, by: By) -> str:
        """The query of the address with the same days in other groups."""
        return replace(self, by=by).encoded()

    def of_period(self, period: str) -> str:
        return replace(self, period=period, since="", until="").encoded()

    def encoded(self) -> str:
        dates = (
            {"since": self.since, "until": self.until} if self.has_dates else {"days": self.period}
        )
        return urlencode({"by": self.by, **{name: text for name, text in dates.items() if text}})
