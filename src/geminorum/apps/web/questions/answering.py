"""Somebody's answer to a question, and the run that goes on with it where nobody waits any more."""

from __future__ import annotations

from geminorum import Allow, AllowAlways, Deny
from geminorum.apps.web.runs.info import RunInfo, new_id, now_ms
from geminorum.apps.web.services import Services
from geminorum.errors import InvalidOptions
from geminorum.inbox import Question

MAX_REASON_CHARACTERS = 4_000


def decision_of(decision: str, reason: str) -> Allow | AllowAlways | Deny:
    """What was chosen; raises InvalidOptions for anything else."""
    match decision:
        case "allow":
            return Allow()
        case "allow_always":
            return AllowAlways()
        case "deny":
            return Deny(reason.strip()[:MAX_REASON_CHARACTERS])
    raise InvalidOptions(f"{decision!r} is no answer", hint="allow, allow_always or deny")


async def answer(
    services: Services, id: str, decision: Allow | AllowAlways | Deny, by: str | None
) -> tuple[Question, RunInfo | None]:
    """Answers a question; where its run has ended, starts another that goes on with its session."""
    question = await services.questions.inbox.answer(id, decision, by=by)
    services.questions.put(question)
    return question, await resume(services, question) if question.is_resumable else None


async def resume(services: Services, question: Question) -> RunInfo:
    """Goes on with the session of an answered question; returns the run that does, once."""
    for started in services.runs.board.live:
        if question.is_resumable and started.resumes == question.session_id:
            return started
    known = services.settings.transports
    via = next(name for name in (question.transport or "", *known) if name in known)
    options = services.settings.options.changed(cwd=None)
    live = services.questions.inbox.resume(question, options=options, via=known[via])
    info = RunInfo(
        id=new_id(),
        prompt=f"Go on: {question.tool} was answered",
        folder=question.cwd or "",
        via=via,
        started=now_ms(),
        resumes=question.session_id,
    )
    return await services.runs.start_prepared(live, info)
