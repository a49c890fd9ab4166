"""Fleet: workers, queue, limits and tenants; jobs, and what becomes of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.fleet.job_view import view_of
from geminorum.apps.web.fleet.limit_bars import bars_of
from geminorum.apps.web.fleet.link import NO_FLEET
from geminorum.apps.web.rendering import is_fragment, redirect, render
from geminorum.apps.web.services import services_of
from geminorum.errors import InvalidOptions, UnknownJob

if TYPE_CHECKING:
    from geminorum.fleet import Job

_JOBS = 100
_STATES = ("queued", "running", "done")
_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


async def show_fleet(request: Request) -> Response:
    link = services_of(request).fleet
    if not link.is_there:
        return render(request, "fleet/none.html", 404, message=NO_FLEET)
    fleet = await link.open()
    chosen = _filters(request)
    jobs = await fleet.jobs(limit=_JOBS + 1, **chosen)
    template = "fleet/_status.html" if is_fragment(request) else "fleet/show.html"
    return render(
        request,
        template,
        status=await fleet.status(),
        bars=bars_of(await fleet.limits()),
        jobs=jobs[:_JOBS],
        has_more=len(jobs) > _JOBS,
        chosen=chosen,
        states=_STATES,
    )


async def show_job(request: Request) -> Response:
    cursor = _CURSOR.fullmatch(request.query_params.get("after", ""))
    after = (int(cursor[1]), int(cursor[2])) if cursor else (0, 0)
    view = await view_of(await _find(request), after)
    template = "fleet/_job.html" if is_fragment(request) else "fleet/job.html"
    return render(request, template, view=view, job=view.details.info)


async def cancel_job(request: Request) -> Response:
    job = await _find(request)
    await job.cancel()
    return redirect(request, "fleet.job", id=job.id)


async def retry_job(request: Request) -> Response:
    new = await (await _find(request)).retry()
    return redirect(request, "fleet.job", id=new.id)


async def _find(request: Request) -> Job[Any]:
    fleet = await services_of(request).fleet.open()
    try:
        return await fleet.job(request.path_params["id"])
    except (UnknownJob, InvalidOptions) as error:
        raise HTTPException(404, error.message) from error


def _filters(request: Request) -> dict[str, Any]:
    state = request.query_params.get("state", "")
    tenant = request.query_params.get("tenant", "")[:100]
    return {"state": state if state in _STATES else None, "tenant": tenant or None}


routes = [
    Route("/fleet", show_fleet, name="fleet"),
    Route("/fleet/jobs/{id}", show_job, name="fleet.job"),
    Route("/fleet/jobs/{id}/cancel", cancel_job, methods=["POST"], name="fleet.cancel"),
    Route("/fleet/jobs/{id}/retry", retry_job, methods=["POST"], name="fleet.retry"),
]
