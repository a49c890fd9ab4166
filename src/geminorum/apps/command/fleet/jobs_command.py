"""`geminorum jobs`: what was submitted to the fleet, to be found, followed, stopped and fetched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import declared
from geminorum.apps.command.flags.table import RUN_FLAGS
from geminorum.apps.command.fleet.flags import Db, JobId, Json, JsonLines
from geminorum.apps.command.render.output import Showing, print_json_line
from geminorum.apps.command.render.tables import put
from geminorum.apps.command.workspace.applying import (
    Check,
    ConflictsTo,
    ControlFiles,
    Show,
    Skip,
    apply_patch,
    show_patch,
)
from geminorum.errors import FleetError
from geminorum.runtime.lazy import asyncio, lazy_module, msgspec

if TYPE_CHECKING:
    from geminorum import Result
    from geminorum import fleet as fleets
    from geminorum.apps.command.fleet import following, views
    from geminorum.fleet import JobDetails, JobInfo
    from geminorum.workspace import Patch
else:
    fleets = lazy_module("geminorum.fleet")
    following = lazy_module("geminorum.apps.command.fleet.following")
    views = lazy_module("geminorum.apps.command.fleet.views")

app = new_app("List, show, follow, cancel and retry jobs; apply their changes.")


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    state: Annotated[
        Literal["queued", "running", "done"] | None, typer.Option(help="Only jobs in this state.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most this many.")
    ] = 50,
    json: JsonLines = False,
    db: Db = None,
) -> None:
    """List jobs, newest first."""

    async def find() -> list[JobInfo]:
        async with fleets.Fleet(db) as fleet:
            return await fleet.jobs(tenant=tenant, state=state, limit=limit + 1)

    jobs = asyncio.run(find())
    if json:
        for job in jobs[:limit]:
            print_json_line(job)
    elif jobs:
        more = f"more; add --limit {10 * limit}" if len(jobs) > limit else None
        put(views.listing(jobs[:limit], more))
    else:
        sys.stderr.write('no jobs; geminorum submit "Hello" makes one\n')


@app.command()
def show(job: JobId, json: Json = False, db: Db = None) -> None:
    """Show a job: its options, its attempts, and how it ended."""

    async def find() -> tuple[JobDetails, Result | None]:
        async with fleets.Fleet(db) as fleet:
            chosen = await fleet.find_job(job)
            details = await chosen.details()
            return details, await chosen.wait() if details.info.state == "done" else None

    details, result = asyncio.run(find())
    if json:
        return print_json_line(_fields(details, result))
    for name, value in views.facts_of(details, result):
        sys.stdout.write(f"{name:11}{value}\n")
    return None


def _fields(details: JobDetails, result: Result | None) -> dict[str, object]:
    """One flat object: the job's facts, and its result."""
    fields = msgspec.to_builtins(details)
    return {**fields.pop("info"), **fields, "result": result}


@app.command()
def watch(
    job: JobId,
    json: Annotated[bool, declared(RUN_FLAGS["json"])] = False,
    quiet: Annotated[bool, declared(RUN_FLAGS["quiet"])] = False,
    db: Db = None,
) -> Exit:
    """Follow a job from its first event on, also one that is over; Ctrl-C stops following.

    The exit code is that of `run`.
    """
    if json and quiet:
        raise typer.BadParameter("leave one of them out", param_hint="--json --quiet")
    return following.watch_job(job, db, Showing(json=json, quiet=quiet))


@app.command()
def cancel(
    job: Annotated[
        list[str], typer.Argument(metavar="ID", help="The ids of jobs, or beginnings of ids.")
    ],
    db: Db = None,
) -> None:
    """Stop jobs, wherever they are. What they said so far is kept."""

    async def cancel_all() -> list[str]:
        async with fleets.Fleet(db) as fleet:
            chosen = [await fleet.find_job(one) for one in job]  # All, before the first is stopped.
            return [await _cancel(one) for one in chosen]

    sys.stdout.writelines(f"{line}\n" for line in asyncio.run(cancel_all()))


async def _cancel(job: fleets.Job[object]) -> str:
    before = await job.info()
    if before.state == "done":
        return f"{job.id} is over already: {before.status}"
    await job.cancel()
    is_over = (await job.info()).state == "done"
    return f"{'cancelled' if is_over else 'stopping'} {job.id}"


@app.command()
def retry(job: JobId, json: Json = False, db: Db = None) -> None:
    """Submit a job that failed or was cancelled once more, and print the id of the new job.

    The new job begins anew, with the same prompt, options and workspace.
    """

    async def submit_again() -> tuple[str, str]:
        async with fleets.Fleet(db) as fleet:
            old = await fleet.find_job(job)
            return old.id, (await old.retry()).id

    old, new = asyncio.run(submit_again())
    if json:
        return print_json_line({"id": new, "retry_of": old})
    sys.stdout.write(f"{new}\n")
    return None


@app.command()
def apply(
    job: JobId,
    folder: Annotated[Path, typer.Argument(help="Default: the current folder.")] = Path(),
    check: Check = False,
    show: Show = False,
    skip: Skip = None,
    conflicts_to: ConflictsTo = None,
    control_files: ControlFiles = False,
    json: Json = False,
    db: Db = None,
) -> None:
    """Apply what a job changed in its workspace to a folder: all of it, or nothing."""
    patch = asyncio.run(_patch_of(job, db))
    if show:
        return show_patch(patch, folder)
    return apply_patch(
        patch,
        folder,
        check=check,
        skip=skip or (),
        conflicts_to=conflicts_to,
        control_files=control_files,
        json=json,
    )


async def _patch_of(beginning: str, db: str | None) -> Patch:
    async with fleets.Fleet(db) as fleet:
        job = await fleet.find_job(beginning)
        if (patch := await job.patch()) is not None:
            return patch
        info = await job.info()
    if info.state != "done":
        hint = f"wait for it with `geminorum jobs watch {job.id}`"
        raise FleetError(f"job {job.id} is not over: it is {info.state}", hint=hint)
    hint = "a job that is to bring changes home needs `submit --workspace FOLDER`"
    raise FleetError(f"job {job.id} has no changes to apply", hint=hint)
