"""`geminorum submit PROMPT`, declared to Typer: `following.submit_job` does it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import declared, takes_options
from geminorum.apps.command.flags.table import RUN_FLAGS, Via
from geminorum.apps.command.fleet.flags import Db
from geminorum.apps.command.render.output import Showing
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.fleet import following
    from geminorum.apps.command.run import once
else:
    following = lazy_module("geminorum.apps.command.fleet.following")
    once = lazy_module("geminorum.apps.command.run.once")

app = new_app()


Prompt = Annotated[
    str | None, typer.Argument(help="The prompt; read from stdin if it is missing or -.")
]
Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="FOLDER|git+URL",
        help="A folder that travels to the worker, or a repository that the worker fetches.",
    ),
]
Tenant = Annotated[str, typer.Option(help="Whose job it is.")]
Priority = Annotated[int, typer.Option(metavar="N", help="Higher comes first, within a tenant.")]
Key = Annotated[
    str | None, typer.Option(help="An idempotency key: a tenant has one job with this key.")
]
Attempts = Annotated[
    int, typer.Option(metavar="N", help="How often to try if a worker is lost or a failure passes.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Show what the agent does, as `run` does.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the job as JSON; with --follow, its events.")
]


@app.command()
@partial(takes_options, unseen=("store",), travels=True)  # A job's session is in the fleet's store.
def submit(
    prompt: Prompt = None,
    file: Annotated[Path | None, declared(RUN_FLAGS["file"])] = None,
    workspace: Workspace = None,
    via: Annotated[Via, declared(RUN_FLAGS["via"])] = Via.CLI,
    tenant: Tenant = "default",
    priority: Priority = 0,
    key: Key = None,
    max_attempts: Attempts = 3,
    follow: Follow = False,
    json: Json = False,
    quiet: Annotated[bool, declared(RUN_FLAGS["quiet"])] = False,
    db: Db = None,
    *,
    options: Options,
) -> Exit:
    """Queue a prompt for any worker of the fleet, and print the id of the job.

    With --follow, Ctrl-C stops following; the job goes on.
    """
    if json and quiet:
        raise typer.BadParameter("leave one of them out", param_hint="--json --quiet")
    request = {
        "prompt": once.prompt_from(prompt, file, "submit"),
        "options": options,
        "via": via.value,
        "tenant": tenant,
        "workspace": workspace,
        "priority": priority,
        "idempotency_key": key,
        "max_attempts": max_attempts,
    }
    return following.submit_job(request, db, Showing(json=json, quiet=quiet), follow=follow)
