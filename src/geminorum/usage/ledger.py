"""Reports on the saved sessions of a home: at once, or again and again from memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date, tzinfo
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from geminorum.cost import PriceBook
from geminorum.errors import InvalidOptions
from geminorum.sessions.places import home_of
from geminorum.usage.billing import Bill, bill_of
from geminorum.usage.gathering import Entry, gather
from geminorum.usage.span import Span, day_of, zone_of
from geminorum.usage.tally import Priced, Report, priced, tallied

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
    book = Ledger(home)
    return book.report(cwd=cwd, since=since, until=until, by=by, tz=tz, prices=prices)


class Ledger:
    """Reports on one home, for a program that makes them again and again.

    A file is read once, until it changes. Several threads may use one ledger at a time.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._home = home_of(home)
        # Without a lock: two threads may read a file at a time, and come to the same bill.
        self._bills: dict[Path, tuple[tuple[int, int], Bill]] = {}

    def report(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        since: date | None = None,
        until: date | None = None,
        by: By = "day",
        tz: str | tzinfo | None = None,
        prices: PriceBook | None = None,
    ) -> Report:
        """The report that `geminorum.usage.report` makes. Blocks while files are read."""
        made = self.reports([by], cwd=cwd, since=since, until=until, tz=tz, prices=prices)
        return made[0]

    def reports(
        self,
        bys: Iterable[By],
        *,
        cwd: str | os.PathLike[str] | None = None,
        since: date | None = None,
        until: date | None = None,
        tz: str | tzinfo | None = None,
        prices: PriceBook | None = None,
    ) -> list[Report]:
        """Several reports on the same requests, read once."""
        kinds, zone = [_checked(by) for by in bys], zone_of(tz)
        span = Span.between(since, until, zone)
        found = gather(self._home, cwd, self._bill)
        chosen = [entry for entry in found.entries if entry.request.timestamp in span]
        chosen.sort(key=lambda entry: entry.request.timestamp)
        pairs = [(entry, priced(entry.request, prices)) for entry in chosen]
        return [tallied(by, _grouped(pairs, by, zone), span, zone, found.problems) for by in kinds]

    def _bill(self, path: Path) -> Bill:
        status = path.stat()
        stamp = status.st_mtime_ns, status.st_size
        known = self._bills.get(path)
        if known is None or known[0] != stamp:
            known = self._bills[path] = stamp, bill_of(path)
        return known[1]


def _checked(by: By) -> By:
    if by not in get_args(By):
        raise InvalidOptions(f"by={by!r}", hint=f"choose one of {', '.join(get_args(By))}")
    return by


def _grouped(
    pairs: list[tuple[Entry, Priced]], by: By, zone: tzinfo | None
) -> dict[str, list[Priced]]:
    groups: dict[str, list[Priced]] = {}
    for entry, pair in pairs:
        groups.setdefault(_key(entry, by, zone), []).append(pair)
    return groups


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
