"""Inbox: what agents ask, and what people answer."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.questions.answering import answer, decision_of, resume
from geminorum.apps.web.rendering import is_fragment, redirect, render, return_to
from geminorum.apps.web.services import services_of, settings_of
from geminorum.errors import QuestionClosed, UnknownQuestion
from geminorum.inbox import Question

_CLOSED_ROWS = 50


async def list_questions(request: Request) -> Response:
    known = services_of(request).questions
    latest = await known.inbox.questions(include_closed=True, limit=_CLOSED_ROWS)
    # Somebody has to do something about those, too: nobody has taken the answer.
    unused = [question for question in latest if question.is_resumable]
    closed = [one for one in latest if not one.is_answerable and not one.is_resumable]
    revision = max((one.revision for one in latest), default=0)
    return render(
        request,
        "inbox/list.html",
        questions=[*await known.inbox.questions(), *unused],
        closed=closed,
        revision=revision,
        problem=known.problem,
    )


async def show_question(request: Request) -> Response:
    return render(request, "inbox/show.html", question=await find_question(request))


async def answer_question(request: Request) -> Response:
    form, services = await request.form(), services_of(request)
    decision = decision_of(str(form.get("decision", "")), str(form.get("reason", "")))
    try:
        question, run = await answer(
            services, request.path_params["id"], decision, answerer(request)
        )
    except QuestionClosed:
        # Somebody else was first: what they said stands on the page.
        return _show(request, await find_question(request), 409)
    except UnknownQuestion as error:
        raise HTTPException(404, error.message) from error
    if run is not None:
        return _lead_to(request, run.id)
    return _show(request, question) if is_fragment(request) else return_to(request, "inbox")


async def go_on(request: Request) -> Response:
    """Starts a run that takes an answer which nobody waited for any more."""
    question = await find_question(request)
    try:
        run = await resume(services_of(request), question)
    except QuestionClosed:
        return _show(request, question, 409)
    return _lead_to(request, run.id)


def answerer(request: Request) -> str | None:
    """Who answers, if a proxy says so; None: the user who runs the page."""
    header = settings_of(request).proxy_header
    return request.headers.get(header) if header else None


def _show(request: Request, question: Question, status: int = 200) -> Response:
    template = "inbox/_question.html" if is_fragment(request) else "inbox/show.html"
    return render(request, template, status, question=question, is_late=status == 409)


def _lead_to(request: Request, run: str) -> Response:
    answered = redirect(request, "runs.show", id=run)
    if is_fragment(request):
        # htmx would draw the page into the card.
        return Response(status_code=204, headers={"hx-redirect": answered.headers["location"]})
    return answered


async def find_question(request: Request) -> Question:
    """The question that the path names; there may be none."""
    id = request.path_params["id"]
    try:
        return await services_of(request).questions.inbox.question(id)
    except UnknownQuestion as error:
        raise HTTPException(404, error.message) from error


routes = [
    Route("/inbox", list_questions, name="inbox"),
    Route("/inbox/{id}", show_question, name="inbox.show"),
    Route("/inbox/{id}/answer", answer_question, methods=["POST"], name="inbox.answer"),
    Route("/inbox/{id}/resume", go_on, methods=["POST"], name="inbox.resume"),
]
