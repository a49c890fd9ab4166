"""Questions of agents: list, show, answer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from geminorum.apps.web.api.endpoint import Endpoint
from geminorum.apps.web.pages.inbox import answerer, find_question
from geminorum.apps.web.questions.answering import (
    MAX_REASON_CHARACTERS,
    answer,
    decision_of,
    resume,
)
from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.services import services_of
from geminorum.errors import QuestionClosed
from geminorum.events import Permission
from geminorum.inbox import Question


class QuestionsQuery(msgspec.Struct):
    closed: bool = False
    """Also those that are closed; then the latest come first, otherwise the oldest."""
    session: Annotated[str, Meta(min_length=1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class QuestionList(msgspec.Struct):
    questions: list[Question]


class NewAnswer(msgspec.Struct, forbid_unknown_fields=True):
    decision: Permission
    reason: Annotated[str, Meta(max_length=MAX_REASON_CHARACTERS)] = ""
    """Why not; the agent is told."""


class Answered(msgspec.Struct):
    question: Question
    run: RunInfo | None
    """The run that goes on with the answer, if the one that asked had ended."""


async def list_questions(request: Request, query: QuestionsQuery) -> QuestionList:
    chosen: dict[str, Any] = {"session_id": query.session, "limit": query.limit}
    inbox = services_of(request).questions.inbox
    return QuestionList(await inbox.questions(include_closed=query.closed, **chosen))


async def show_question(request: Request) -> Question:
    return await find_question(request)


async def answer_question(request: Request, given: NewAnswer) -> Answered:
    question = await find_question(request)
    decision = decision_of(given.decision, given.reason)
    try:
        return Answered(
            *await answer(services_of(request), question.id, decision, answerer(request))
        )
    except QuestionClosed as error:
        raise HTTPException(409, error.message) from error


async def resume_question(request: Request) -> RunInfo:
    question = await find_question(request)
    try:
        return await resume(services_of(request), question)
    except QuestionClosed as error:
        raise HTTPException(409, error.message) from error


endpoints = [
    Endpoint(
        "GET",
        "/inbox",
        list_questions,
        "List questions of agents",
        query=QuestionsQuery,
        returns=QuestionList,
    ),
    Endpoint(
        "GET", "/inbox/{id}", show_question, "Show a question", returns=Question, failures=(422,)
    ),
    Endpoint(
        "POST",
        "/inbox/{id}/answer",
        answer_question,
        "Answer a question; the first answer counts",
        body=NewAnswer,
        returns=Answered,
        failures=(409,),
    ),
    Endpoint(
        "POST",
        "/inbox/{id}/resume",
        resume_question,
        "Go on with an answer that no run has taken",
        returns=RunInfo,
        status=201,
        failures=(400, 409, 422),
    ),
]
