"""Questions to what people read: a table, and one question whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from geminorum.apps.command.flags.moments import when
from geminorum.apps.command.render.facts import gist, printable
from geminorum.apps.command.render.tables import Column, Sheet
from geminorum.views.plain_text import printable_line, without_padding

if TYPE_CHECKING:
    from geminorum.inbox import Question

_COLOURS = {
    **dict.fromkeys(("open", "waiting"), "yellow"),
    **dict.fromkeys(("allow", "allow_always"), "green"),
    **dict.fromkeys(("deny", "expired"), "red"),
}
_DONE = {"allow": "allowed", "allow_always": "always allowed", "deny": "denied"}
_MAX_GIST = 200


def listing(questions: Sequence[Question], more: str | None) -> Sheet:
    """A table of questions."""
    columns = [
        Column("id", style="cyan"),
        Column("state", colours=_COLOURS),
        Column("asked"),
        Column("tool"),
        Column("folder", style="dim", spare=2),
        Column("host", style="dim", spare=3),
        Column("what", elastic=True),
    ]
    return Sheet(columns, [_row(one) for one in questions], notes=[more] if more else [])


def _row(question: Question) -> list[str]:
    return [
        *(_id(question), _state(question), when(question.asked_at), question.tool),
        *(question.cwd or "-", question.host or "-", _gist(question)),
    ]


def answered(question: Question) -> str:
    """One line about an answer that counts."""
    done = _DONE[question.answer.decision] if question.answer else question.state
    what = f"{printable_line(question.tool)} {_gist(question)}".strip()
    return f"{done} {_id(question)} {what}"


def details(question: Question) -> Iterator[str]:
    """All of a question: a yes must not cover text that is cut off."""
    for name, value in _facts(question):
        yield f"{name:10}{printable_line(value)}"
    yield ""
    if question.command is not None:
        yield from _indented(f"$ {question.command}")
    if question.diff is not None:
        yield from _indented(question.diff or "(nothing changes)")
    for name, value in question.further_input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield from _indented(f"{name}: {text}")


def _facts(question: Question) -> Iterator[tuple[str, str]]:
    yield "question", question.id
    yield "state", question.state
    yield "tool", question.tool
    if question.reason:
        yield "it says", question.reason
    yield "asked", _moment(question.asked_at)
    if question.deadline is not None:
        yield "deadline", _moment(question.deadline)
    yield "agent", f"{question.agent} in process {question.pid} on {question.host}"
    if question.session_id:
        yield "session", question.session_id
    if question.cwd:
        yield "folder", question.cwd
    yield "always", f"would allow {question.scope}"
    yield from _answer(question)


def _answer(question: Question) -> Iterator[tuple[str, str]]:
    if (answer := question.answer) is None:
        return
    reason = f": {answer.reason}" if answer.reason else ""
    yield "answer", f"{_DONE[answer.decision]} by {answer.by}, {_moment(answer.at)}{reason}"
    used = question.used_at
    yield "used", "not yet" if used is None else _moment(used)


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in without_padding(printable(text)).split("\n"))


def _state(question: Question) -> str:
    return question.answer.decision if question.answer else question.state


def _gist(question: Question) -> str:
    return (gist(question.input) or printable_line(question.reason or ""))[:_MAX_GIST]


def _id(question: Question) -> str:
    """What to type: whole in a pipe, where a program may need it."""
    return question.short_id if sys.stdout.isatty() else question.id


def _moment(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
