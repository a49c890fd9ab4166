"""An answered question to the run that goes on with its answer."""

from __future__ import annotations

import platform
from pathlib import Path

from geminorum.errors import InboxError, QuestionClosed
from geminorum.hints import advice
from geminorum.inbox.question import Question
from geminorum.options import Options
from geminorum.views.plain_text import printable_line

_MAX_SHOWN = 200


def options_for(question: Question, options: Options) -> Options:
    """The options with the session and folder of the question; raises if it cannot be resumed."""
    _require_resumable(question)
    if options.cwd is None:
        if question.cwd is None or not Path(question.cwd).is_dir():
            where = f"{question.cwd!r} of {question.host or 'another machine'}"
            hint = advice("resume it there, or name the folder: {Options.cwd=…}")
            raise InboxError(f"the session's folder {where} is not here", hint=hint)
        options = options.changed(cwd=question.cwd)
    return options.changed(resume=question.session_id, session_id=None)


def _require_resumable(question: Question) -> None:
    name = f"question {question.short_id}"
    if question.answer is None:
        text = f"{name} is {question.state}, not answered"
        raise QuestionClosed(text, question=question, hint="answer it first")
    if question.used_at is not None:
        text = f"the answer to {name} was used by its run"
        raise QuestionClosed(text, question=question, hint="an answer counts once")
    if question.session_id is None or question.transport == "api":
        text = f"{name} belongs to no session that can be resumed"
        raise InboxError(text, hint="run the prompt again")
    if not question.is_left:
        host = "" if question.host == platform.node() else f" on {question.host}"
        text = f"process {question.pid}{host} waits for {name}, and takes the answer itself"
        raise InboxError(text, hint="there is nothing to resume")


def prompt_for(question: Question) -> str:
    """Tells the agent what was answered."""
    answer = question.answer
    assert answer is not None
    call = f"Your call of {printable_line(question.tool)[:_MAX_SHOWN]} was waiting for permission."
    if answer.decision == "deny":
        reason = f": {answer.reason}" if answer.reason else ""
        return f"{call} It was denied{reason}. Go on without it."
    return f"{call} It is allowed now: make the same call again with the same arguments, and go on."
