"""Runs: what runs now, what ran before, and a form that starts one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.questions.asking import is_asked_by
from geminorum.apps.web.rendering import is_fragment, redirect, render
from geminorum.apps.web.runs.form import APPROVALS, EFFORTS, VIAS, FormErrors, request_of
from geminorum.apps.web.runs.info import RunInfo, now_ms
from geminorum.apps.web.services import services_of, settings_of
from geminorum.apps.web.words import whole_number

_ROWS = 100
_FILLED_BY_LINKS = ("prompt", "folder", "resume")
"""Fields that are seen at once. Any web site can make a link: what an agent may do, and what it is
told besides, is for whoever sits here to choose."""


async def open_first_page(request: Request) -> Response:
    return redirect(request, "runs")


async def list_runs(request: Request) -> Response:
    return await _list(request)


async def start_run(request: Request) -> Response:
    form = await request.form()
    try:
        wanted = request_of(form, settings_of(request))
    except FormErrors as error:
        return await _list(request, 422, typed=form, errors=error.errors)
    info = await services_of(request).runs.start(wanted)
    return redirect(request, "runs.show", id=info.id)


async def show_run(request: Request) -> Response:
    services, info = services_of(request), await find_run(request)
    with services.watching.watch(info.id) as watched:
        await watched.catch_up()
        asked = [one for one in services.questions.open if is_asked_by(one, info)]
        shown: dict[str, Any] = {"run": info, "pieces": watched.pieces, "questions": asked}
        return render(request, "runs/show.html", **shown, now=now_ms())


async def stop_run(request: Request) -> Response:
    info = await find_run(request)
    is_ours = await services_of(request).runs.stop(info.id)
    if info.is_live and not is_ours:
        raise HTTPException(409, "another `geminorum web` has started it; stop it there")
    return _answered(request, "runs.show", id=info.id)


async def remove_run(request: Request) -> Response:
    info = await find_run(request)
    if not await services_of(request).runs.remove(info.id):
        raise HTTPException(409, "it goes on; stop it first")
    return _answered(request, "runs")


def _answered(request: Request, name: str, **parameters: Any) -> Response:
    """A script has nothing to draw: what changed comes by the stream."""
    if is_fragment(request):
        return Response(status_code=204)
    return redirect(request, name, **parameters)


async def find_run(request: Request) -> RunInfo:
    """The run that the path names; there may be none."""
    id = request.path_params["id"]
    info = await services_of(request).runs.find(id)
    if info is None:
        raise HTTPException(404, f"there is no run {id!r}; it may have been removed")
    return info


async def _list(
    request: Request,
    status: int = 200,
    typed: Mapping[str, Any] | None = None,
    errors: Mapping[str, str] | None = None,
) -> Response:
    given, now = request.query_params, now_ms()
    before = given.get("before", "")
    runs = services_of(request).runs
    found = await runs.list(whole_number(before), _ROWS + 1)
    context = {
        "runs": found[:_ROWS],
        "older": found[_ROWS - 1].started if len(found) > _ROWS else None,
        "is_first": not before,
        "now": now,
        # A link may fill the form in, for example to go on with a session.
        "typed": defaultdict(str, typed or {name: given.get(name) for name in _FILLED_BY_LINKS}),
        "errors": errors or {},
        "problem": runs.problem,
    }
    return render(request, "runs/list.html", status, **context, **_choices(request))


def _choices(request: Request) -> dict[str, Any]:
    """What the form offers."""
    settings = settings_of(request)
    return {
        "approvals": APPROVALS,
        "efforts": EFFORTS,
        "vias": {name: VIAS.get(name, name) for name in settings.transports},
        "folder": settings.folder,
        "usual": settings.options,
    }


routes = [
    Route("/", open_first_page, name="home"),
    Route("/runs", list_runs, name="runs"),
    Route("/runs", start_run, methods=["POST"], name="runs.start"),
    Route("/runs/{id}", show_run, name="runs.show"),
    Route("/runs/{id}/stop", stop_run, methods=["POST"], name="runs.stop"),
    Route("/runs/{id}/remove", remove_run, methods=["POST"], name="runs.remove"),
]
