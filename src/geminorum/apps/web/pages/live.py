"""The stream of a page: what changes on it, as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from geminorum.apps.web.live.questions_view import QuestionsView
from geminorum.apps.web.live.rows_view import RowsView
from geminorum.apps.web.live.run_view import RunView
from geminorum.apps.web.live.stream import LiveView, follow
from geminorum.apps.web.questions.asking import is_asked_by
from geminorum.apps.web.rendering import draw
from geminorum.apps.web.runs.info import now_ms
from geminorum.apps.web.services import Services, services_of
from geminorum.apps.web.words import whole_number
from geminorum.inbox import Question


async def stream_changes(request: Request) -> Response:
    """`?run=ID&after=SEQ` follows one run, `?runs=SINCE` the list of them."""
    services = services_of(request)
    services.require_free_stream()
    return StreamingResponse(_changes(request, services), media_type="text/event-stream")


async def _changes(request: Request, services: Services) -> AsyncIterator[bytes]:
    with ExitStack() as stack:
        stack.enter_context(services.open_stream())
        async for piece in follow(_views(request, services, stack), services.runs.changes):
            yield piece


def _views(request: Request, services: Services, stack: ExitStack) -> list[LiveView]:
    given = request.query_params
    views: list[LiveView] = [_questions(request, services)]
    if id := given.get("run"):
        watched = stack.enter_context(services.watching.watch(id))
        last = request.headers.get("last-event-id") or given.get("after", "")
        after = whole_number(last) or 0
        views.append(RunView(services.runs, id, watched, after, _drawing(request, "piece")))
    if since := given.get("runs"):
        views.append(RowsView(services.runs, whole_number(since) or 0, _drawing(request, "run")))
    return views


def _questions(request: Request, services: Services) -> LiveView:
    """The number of questions on every page, and the questions that belong to this one."""
    given = request.query_params

    def is_shown(question: Question) -> bool:
        if id := given.get("run"):
            info = services.runs.board.get(id)
            return info is not None and is_asked_by(question, info)
        return "inbox" in given and given.get("question") in (None, question.id)

    since = whole_number(given.get("inbox", "")) or 0
    return QuestionsView(services.questions, is_shown, since, _drawing(request, "question"))


_TEMPLATES = {
    "piece": "runs/_piece.html",
    "run": "runs/_row.html",
    "question": "inbox/_question.html",
}


def _drawing(request: Request, name: str) -> Callable[[object], str]:
    """Draws what the template of that name shows."""
    given = {"is_whole": "question" in request.query_params}  # On a page of its own.
    return lambda shown: draw(request, _TEMPLATES[name], now=now_ms(), **given, **{name: shown})


routes = [Route("/live", stream_changes, name="live")]
