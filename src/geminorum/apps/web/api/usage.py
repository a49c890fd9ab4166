"""Usage: tokens and dollars by day, model, project or session."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal

import msgspec
from starlette.requests import Request

from geminorum import Tokens, usage
from geminorum.apps.web.api.endpoint import Endpoint
from geminorum.apps.web.services import settings_of


class UsageQuery(msgspec.Struct):
    by: usage.By = "day"
    since: date | None = None
    """The first day."""
    until: date | None = None
    """The day after the last."""
    folder: str | None = None
    """Only sessions of this folder."""
    tz: str | None = None
    """Where a day begins: "Europe/Berlin". Default: this machine's zone."""


class UsageRow(msgspec.Struct):
    key: str
    """The day, model, folder or session."""
    requests: int
    tokens: Tokens
    usd: Decimal | None
    """A string, to avoid rounding; None: nothing in it has a price."""
    exact: bool
    """Everything in it has a price."""


class UsageReport(msgspec.Struct):
    by: str
    timezone: str
    rows: list[UsageRow]
    """In the order of their first request."""
    total: UsageRow
    exact: bool
    problems: list[str]
    """Files that were not counted, and why."""


async def report_usage(request: Request, query: UsageQuery) -> UsageReport:
    home = settings_of(request).options.home
    found = await asyncio.to_thread(
        usage.report,
        home=home,
        cwd=query.folder,
        since=query.since,
        until=query.until,
        by=query.by,
        tz=query.tz,
    )
    return UsageReport(
        found.by,
        found.timezone,
        [_row(row) for row in found.rows],
        _row(found.total),
        found.exact,
        [f"{problem.path}: {problem.reason}" for problem in found.problems],
    )


def _row(row: usage.Row) -> UsageRow:
    return UsageRow(row.key, row.requests, row.tokens, row.cost, row.exact)


endpoints = [
    Endpoint("GET", "/usage", report_usage, "Report usage", query=UsageQuery, returns=UsageReport)
]
