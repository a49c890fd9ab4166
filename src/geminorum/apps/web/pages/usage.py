"""Usage: tokens and dollars by day, model, project and session."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.rendering import render
from geminorum.apps.web.services import services_of
from geminorum.apps.web.usage.figures import MAX_ROWS, lines_of, points_of
from geminorum.apps.web.usage.query import GROUPS, PERIODS, UsageQuery
from geminorum.sessions import SessionInfo
from geminorum.usage import Report


async def show_usage(request: Request) -> Response:
    query, today = UsageQuery.read(request.query_params), date.today()
    since, until = query.days(today)
    reports = services_of(request).ledger.reports
    by_day, chosen = await asyncio.to_thread(reports, ["day", query.by], since=since, until=until)
    last = until - timedelta(days=1) if until else today
    return render(
        request,
        "usage/show.html",
        422 if query.problems else 200,
        query=query,
        report=chosen,
        lines=lines_of(chosen),
        hidden=max(0, len(chosen.rows) - MAX_ROWS),
        points=points_of(by_day, since, last),
        sessions=await asyncio.to_thread(_sessions, request, chosen),
        groups=GROUPS,
        periods=PERIODS,
    )


def _sessions(request: Request, report: Report) -> dict[str, SessionInfo]:
    """What the rows are about, if they are sessions."""
    if report.by != "session":
        return {}
    return services_of(request).catalogue.named({line.row.key for line in lines_of(report)})


routes = [Route("/usage", show_usage, name="usage")]
