"""`geminorum inbox`: what agents ask permission for, to be read and answered."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

import geminorum
from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import CliPath, declared, takes_options
from geminorum.apps.command.flags.moments import age_of
from geminorum.apps.command.flags.table import RUN_FLAGS, Program, Via
from geminorum.apps.command.render.output import Showing, print_json_line
from geminorum.apps.command.render.tables import put
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import asyncio, lazy_module

if TYPE_CHECKING:
    from geminorum import inbox as inboxes
    from geminorum.apps.command.inbox import resuming, views
    from geminorum.inbox import Question
else:
    # They load drivers and tables, which a help page does without.
    inboxes = lazy_module("geminorum.inbox")
    resuming = lazy_module("geminorum.apps.command.inbox.resuming")
    views = lazy_module("geminorum.apps.command.inbox.views")

Decision: TypeAlias = "geminorum.Allow | geminorum.AllowAlways | geminorum.Deny"
app = new_app("List, show and answer the questions of agents.")

Store = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="The inbox: a file or a PostgreSQL. Default: GEMINORUM_INBOX, GEMINORUM_DB, or a "
        "file of yours.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a question, or its beginning.")]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID", help="The ids of questions, or their beginnings.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="If its run is gone, resume the session and show what it does."),
]


@app.command("list")
def list_(
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Include those that can no longer be answered.")
    ] = False,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only questions of this session.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most this many.")
    ] = 50,
    json: Json = False,
    db: Store = None,
) -> None:
    """List the questions that wait for an answer, oldest first."""
    inbox = inboxes.Inbox(db)
    found = asyncio.run(inbox.questions(include_closed=all_, session_id=session, limit=limit + 1))
    if json:
        for question in found[:limit]:
            print_json_line(question)
    elif found:
        more = f"more; add --limit {10 * limit}" if len(found) > limit else None
        put(views.listing(found[:limit], more))
    else:
        sys.stderr.write("no questions\n" if all_ else "no questions; --all lists past ones\n")


@app.command()
def show(question: Id, json: Json = False, db: Store = None) -> None:
    """Show a question whole: the command or the change, where it was asked, and its answer."""
    found = asyncio.run(inboxes.Inbox(db).question(question))
    if json:
        return print_json_line(found)
    sys.stdout.writelines(f"{line}\n" for line in views.details(found))
    return None


@app.command()
def allow(
    question: Ids,
    always: Annotated[
        bool,
        typer.Option("--always", help="Also allow every other call of this tool in the same run."),
    ] = False,
    resume: Resume = False,
    json: Json = False,
    db: Store = None,
) -> Exit:
    """Allow what the agent asks for. The first answer to a question counts."""
    decision = geminorum.AllowAlways() if always else geminorum.Allow()
    return _answer(question, decision, db, resume=resume, json=json)


@app.command()
def deny(
    question: Ids,
    reason: Annotated[
        str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; the agent is told.")
    ] = "",
    resume: Resume = False,
    json: Json = False,
    db: Store = None,
) -> Exit:
    """Deny what the agent asks for. The first answer to a question counts."""
    return _answer(question, geminorum.Deny(reason), db, resume=resume, json=json)


def _answer(
    ids: list[str], decision: Decision, db: str | None, *, resume: bool, json: bool
) -> Exit:
    if resume and len(ids) > 1:
        raise typer.BadParameter("it takes one question at a time", param_hint="--resume")
    inbox = inboxes.Inbox(db)
    answered = asyncio.run(_answer_all(inbox, ids, decision))
    for question in answered:
        if not (resume and json):
            _report(question, json=json, resumes=resume)
    if resume and answered[0].is_resumable:
        showing = Showing(json=json)
        return resuming.resume(inbox, answered[0], Options(), None, Program(), showing)
    return Exit.OK


async def _answer_all(inbox: inboxes.Inbox, ids: list[str], decision: Decision) -> list[Question]:
    found = [await inbox.question(id) for id in ids]  # All, before the first is answered.
    return [await inbox.answer(question.id, decision) for question in found]


def _report(question: Question, *, json: bool, resumes: bool) -> None:
    if json:
        return print_json_line(question)
    sys.stdout.write(f"{views.answered(question)}\n")
    if question.is_resumable and not resumes:
        text = f"its run is gone; `geminorum inbox resume {question.short_id}` goes on with it"
        sys.stderr.write(f"{text}\n")
    return None


@app.command("resume")
@partial(takes_options, unseen=("resume", "session_id"))  # The question has them.
def resume_(
    question: Id,
    via: Annotated[Via | None, declared(RUN_FLAGS["via"])] = None,
    json: Annotated[bool, declared(RUN_FLAGS["json"])] = False,
    quiet: Annotated[bool, declared(RUN_FLAGS["quiet"])] = False,
    cli: CliPath = None,
    db: Store = None,
    *,
    options: Options,
) -> Exit:
    """Resume the session of an answered question whose run is gone.

    The answer counts once, for the same call; whatever else the agent wants is a new question.
    """
    if options.resume or options.session_id:
        hint = "leave --resume and --session-id out"
        raise InvalidOptions("the question names the session", hint=hint)
    if json and quiet:
        raise typer.BadParameter("leave one of them out", param_hint="--json --quiet")
    inbox = inboxes.Inbox(db)
    found = asyncio.run(inbox.question(question))
    return resuming.resume(inbox, found, options, via, Program(cli), Showing(json, quiet))


@app.command()
def prune(
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Questions asked longer ago: 24h, 30d."),
    ] = "30d",
    db: Store = None,
) -> None:
    """Remove old questions that can no longer be answered."""
    count = asyncio.run(inboxes.Inbox(db).prune(age_of(older_than)))
    sys.stdout.write(f"removed {count:,} question{'' if count == 1 else 's'}\n")
