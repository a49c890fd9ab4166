"""Somebody's answer to a question, and the run that goes on with it where nobody waits any more."""

from __future__ import annotations

from msgspec import to_builtins

from geminorum import Allow, AllowAlways, Deny
from geminorum.apps.web.questions.asking import is_asked_by
from geminorum.apps.web.runs.info import RunInfo, RunLimits, new_id, now_ms
from geminorum.apps.web.services import Services
from geminorum.errors import InvalidOptions
from geminorum.inbox import Question

MAX_REASON_CHARACTERS = 4_000
_RUNS_LOOKED_AT = 500


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
    # Of two who press the button at once, the second finds the run that the first has started.
    async with services.resuming:
        for started in services.runs.board.live:
            if question.is_resumable and started.resumes == question.session_id:
                return started
        # It may have been used since it was read.
        question = await services.questions.inbox.question(question.id)
        return await _start(services, question)


async def _start(services: Services, question: Question) -> RunInfo:
    known = services.settings.transports
    via = next(name for name in (question.transport or "", *known) if name in known)
    asker = await _asker_of(services, question)
    # The page's own may allow what was to be asked about, and an answer is about one call.
    approval = (asker.approval if asker else None) or "default"
    limits = asker.limits if asker else RunLimits()
    kept = {"cwd": None, "approval": approval, **to_builtins(limits)}
    options = services.settings.options.changed(**kept)
    live = services.questions.inbox.resume(question, options=options, via=known[via])
    info = RunInfo(
        id=new_id(),
        prompt=f"Go on: {question.tool} was answered",
        folder=question.cwd or "",
        via=via,
        approval=approval,
        limits=limits,
        started=now_ms(),
        resumes=question.session_id,
    )
    return await services.runs.start_prepared(live, info)


async def _asker_of(services: Services, question: Question) -> RunInfo | None:
    """The run which asked, if it is one of the page."""
    runs = await services.runs.list(limit=_RUNS_LOOKED_AT)
    return next((run for run in runs if is_asked_by(question, run)), None)
