"""The stream of a page: what changes on it, as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from geminorum.apps.web.live.rows_view import RowsView
from geminorum.apps.web.live.run_view import RunView
from geminorum.apps.web.live.stream import LiveView, follow
from geminorum.apps.web.rendering import draw
from geminorum.apps.web.runs.info import RunInfo, now_ms
from geminorum.apps.web.runs.pieces import Piece
from geminorum.apps.web.services import Services, services_of


async def stream_changes(request: Request) -> Response:
    """`?run=ID&after=SEQ` follows one run, `?runs=SINCE` the list of them."""
    services = services_of(request)
    services.require_free_stream()
    return StreamingResponse(_changes(request, services), media_type="text/event-stream")


async def _changes(request: Request, services: Services) -> AsyncIterator[bytes]:
    with ExitStack() as stack:
        stack.enter_context(services.open_stream())
        async for piece in follow(_views(request, services, stack), services.runs.news):
            yield piece


def _views(request: Request, services: Services, stack: ExitStack) -> list[LiveView]:
    given, runs = request.query_params, services.runs

    def draw_piece(piece: Piece) -> str:
        return draw(request, "runs/_piece.html", piece=piece)

    def draw_row(run: RunInfo) -> str:
        return draw(request, "runs/_row.html", run=run, now=now_ms())

    views: list[LiveView] = []
    if id := given.get("run"):
        watched = stack.enter_context(services.watching.watch(id))
        after = _number(request.headers.get("last-event-id") or given.get("after", ""))
        views.append(RunView(runs, id, watched, after, draw_piece))
    if since := given.get("runs"):
        views.append(RowsView(runs, _number(since), draw_row))
    return views


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0


routes = [Route("/live", stream_changes, name="live")]
