"""Submits a job and follows one: events to a view, the result to an exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from geminorum.apps.command.exits import Exit
from geminorum.apps.command.fleet.views import short_id
from geminorum.apps.command.render.live import view_for
from geminorum.apps.command.render.output import Showing, print_json_line
from geminorum.apps.command.run.turn import report_end
from geminorum.fleet import Fleet, JobRequest

if TYPE_CHECKING:
    from geminorum.fleet import Job

_ADVICE = "Ctrl-C leaves the job running"


def submit_job(request: dict[str, Any], db: str | None, how: Showing, *, follow: bool) -> Exit:
    """Queues a job and says its id; shows it until its end, or until Ctrl-C, if that is wanted."""

    async def submit(on_job: Callable[[str], None]) -> Exit:
        async with Fleet(db) as fleet:
            (job,) = await fleet.submit_many([JobRequest(**request)])
            if not follow:
                return _tell_submitted(job, request, how)
            on_job(job.id)
            if not how.quiet:
                sys.stderr.write(f"job {job.id}\n")
            return await _show(job, request["via"], how)

    return _run_and_let_go(submit)


def watch_job(beginning: str, db: str | None, how: Showing) -> Exit:
    """Shows a job from its first event to its end, or until Ctrl-C."""

    async def watch(on_job: Callable[[str], None]) -> Exit:
        async with Fleet(db) as fleet:
            job = await fleet.find_job(beginning)
            on_job(job.id)
            return await _show(job, (await job.info()).via, how)

    return _run_and_let_go(watch)


def _tell_submitted(job: Job[Any], request: dict[str, Any], how: Showing) -> Exit:
    if how.json:
        names = ("tenant", "via", "priority", "idempotency_key")
        print_json_line({"id": job.id, **{name: request[name] for name in names}})
    else:
        sys.stdout.write(f"{job.id}\n")
    return Exit.OK


async def _show(job: Job[Any], via: str, how: Showing) -> Exit:
    with view_for(via, how, advice=_ADVICE) as view:
        async for event in job.events():
            view.show(event)
    code = report_end(await job.wait(), view)
    if not (how.json or how.quiet) and (await job.details()).has_patch:
        sys.stderr.write(f"its changes: geminorum jobs apply {short_id(job.id)}\n")
    return code


def _run_and_let_go(follow: Callable[[Callable[[str], None]], Coroutine[Any, Any, Exit]]) -> Exit:
    """Runs what follows a job; Ctrl-C ends that, and not the job."""
    known: list[str] = []
    try:
        return asyncio.run(follow(known.append))
    except KeyboardInterrupt:
        if not known:
            raise
        again = f"geminorum jobs watch {known[0]}"
        sys.stderr.write(f"the job goes on; follow it: {again}\n")
        sys.stderr.write(f"or stop it: geminorum jobs cancel {known[0]}\n")
        return Exit.CANCELLED
