"""`geminorum fleet`: the database behind the workers, for those who operate it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.flags.moments import age_of
from geminorum.apps.command.fleet import limits_command
from geminorum.apps.command.fleet.flags import Db, Json
from geminorum.apps.command.render.output import print_json_line
from geminorum.apps.command.render.tables import put
from geminorum.runtime.lazy import asyncio, lazy_module

if TYPE_CHECKING:
    from datetime import timedelta

    from geminorum import fleet as fleets
    from geminorum.apps.command.fleet import views
    from geminorum.fleet import FleetStatus, Initialised, Pruned
else:
    # Both load what a help page does without: drivers and tables.
    fleets = lazy_module("geminorum.fleet")
    views = lazy_module("geminorum.apps.command.fleet.views")

app = new_app("Create, watch, limit and prune the fleet.")
app.add_typer(limits_command.app, name="limits")


@app.command()
def init(db: Db = None, json: Json = False) -> None:
    """Create the fleet's tables, or bring them up to date. Run it again at any time."""
    made = asyncio.run(fleets.initialise(db))
    if json:
        return print_json_line(made)
    sys.stdout.write(f"{_told(made)}\n")
    return None


def _told(made: Initialised) -> str:
    if not made.has_changed:
        return f"the tables are up to date (version {made.version}) in {made.database}"
    if made.before:
        return f"updated the tables from version {made.before} to {made.version} in {made.database}"
    return f"created the tables (version {made.version}) in {made.database}"


@app.command()
def status(db: Db = None, json: Json = False) -> None:
    """Show workers, queues, running jobs, limits that jobs wait for, and spending by tenant."""
    found = asyncio.run(_status(db))
    if json:
        return print_json_line(found)
    for number, sheet in enumerate(views.status_sheets(found)):
        sys.stdout.write("\n" if number else "")
        sys.stdout.flush()
        put(sheet)
    if not any(not worker.is_lost for worker in found.workers):
        sys.stderr.write("no worker runs; start one with `geminorum worker`\n")
    return None


async def _status(db: str | None) -> FleetStatus:
    async with fleets.Fleet(db) as fleet:
        return await fleet.status()


@app.command()
def prune(
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Jobs that ended longer ago: 24h, 30d."),
    ] = "30d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    db: Db = None,
    json: Json = False,
) -> None:
    """Remove old jobs that are done, with their events, packs and patches, and lost workers."""
    removed = asyncio.run(_prune(db, age_of(older_than), dry_run))
    if json:
        facts = {"jobs": removed.jobs, "workers": removed.workers}
        return print_json_line({"removed": not dry_run, **facts})
    verb = "would remove" if dry_run else "removed"
    jobs = f"{removed.jobs:,} job{'' if removed.jobs == 1 else 's'}"
    workers = f"{removed.workers:,} lost worker{'' if removed.workers == 1 else 's'}"
    sys.stdout.write(f"{verb} {jobs} and {workers}\n")
    return None


async def _prune(db: str | None, age: timedelta, dry_run: bool) -> Pruned:
    async with fleets.Fleet(db) as fleet:
        return await fleet.prune(age, dry_run=dry_run)
