"""The filters of the list of sessions, from the address and back to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from urllib.parse import urlencode

_MAX_PAGE = 1_000_000
_MAX_TEXT = 200


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """What somebody looks for. Empty fields do not filter."""

    text: str = ""
    project: str = ""
    since: str = ""
    until: str = ""
    number: int = 1
    """Of the page."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> SessionQuery:
        number = given.get("page", "")
        return cls(
            text=given.get("q", "").strip()[:_MAX_TEXT],
            project=given.get("project", ""),
            since=given.get("since", "").strip(),
            until=given.get("until", "").strip(),
            number=min(int(number[:9]), _MAX_PAGE) if number.isascii() and number.isdigit() else 1,
        )

    @property
    def has_filters(self) -> bool:
        return bool(self.text or self.project or self.since or self.until)

    @property
    def problems(self) -> dict[str, str]:
        """What cannot be used, by field."""
        wrong = {name: text for name, text in self._dates() if text and day_in(text) is None}
        return {
            name: f"{text!r} is not a date; write it as 2026-11-30" for name, text in wrong.items()
        }

    @property
    def first_moment(self) -> datetime | None:
        """When the first day begins, in this machine's time zone."""
        day = day_in(self.since)
        return None if day is None else datetime.combine(day, time()).astimezone()

    @property
    def last_moment(self) -> datetime | None:
        """When the last day ends."""
        day = day_in(self.until)
        if day is None or day == date.max:
            return None
        return datetime.combine(day + timedelta(days=1), time()).astimezone()

    def on_page(self, number: int) -> str:
        """The query of the address that shows another page of the same list."""
        return replace(self, number=number).encoded()

    def encoded(self) -> str:
        pairs = {"q": self.text, "project": self.project, **dict(self._dates())}
        pairs["page"] = str(self.number) if self.number > 1 else ""
        return urlencode({name: value for name, value in pairs.items() if value})

    def _dates(self) -> tuple[tuple[str, str], ...]:
        return (("since", self.since), ("until", self.until))


def day_in(text: str) -> date | None:
    """The date that was typed; None for what is none."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None
