"""Runs: what runs now, what ran before, and a form that starts one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.rendering import redirect, render


async def open_first_page(request: Request) -> Response:
    return redirect(request, "runs")


async def list_runs(request: Request) -> Response:
    return render(request, "runs/list.html")


routes = [Route("/", open_first_page, name="home"), Route("/runs", list_runs, name="runs")]
