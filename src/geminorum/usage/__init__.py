"""Usage reports from saved sessions: tokens and cost, each request counted once.

```python
report(by="day", since=date(2026, 11, 1), tz="Europe/Berlin").table()
```
"""

from __future__ import annotations

import os
from datetime import date, tzinfo
from typing import Literal, TypeAlias, get_args

from geminorum.cost import PriceBook
from geminorum.errors import InvalidOptions
from geminorum.events import ModelRequest
from geminorum.sessions.places import home_of
from geminorum.usage.gathering import Entry, gather
from geminorum.usage.span import Span, day_of, zone_of
from geminorum.usage.tally import Problem, Report, Row, tallied

__all__ = ["By", "Problem", "Report", "Row", "report"]

By: TypeAlias = Literal["day", "project", "session", "model"]


def report(
    *,
    home: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    since: date | None = None,
    until: date | None = None,
    by: By = "day",
    tz: str | tzinfo | None = None,
    prices: PriceBook | None = None,
) -> Report:
    """Reports usage from `since` until before `until`, both dates or datetimes.

    A request that is in several files (a fork, a resumed session) counts once, for the session that
    started first; a subagent's requests count for the session that started it. `tz` sets where a
    day begins: a name, a tzinfo, or None for local time. With `cwd`, only that folder's sessions
    count. Without `prices`, each request is priced at the list price of its day.
    """
    if by not in get_args(By):
        raise InvalidOptions(f"by={by!r}", hint=f"choose one of {', '.join(get_args(By))}")
    zone = zone_of(tz)
    span = Span.between(since, until, zone)
    found = gather(home_of(home), cwd)
    groups: dict[str, list[ModelRequest]] = {}
    for entry in sorted(found.entries, key=lambda one: one.request.timestamp):
        if entry.request.timestamp in span:
            groups.setdefault(_key(entry, by, zone), []).append(entry.request)
    return tallied(by, groups, prices, span, zone, found.problems)


def _key(entry: Entry, by: By, zone: tzinfo | None) -> str:
    match by:
        case "day":
            return day_of(entry.request.timestamp, zone)
        case "project":
            return entry.project
        case "session":
            return entry.session_id
        case "model":
            return entry.request.model
