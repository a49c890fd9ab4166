"""`geminorum batch FILE`, declared to Typer: `sending.send_all` does it."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import CliPath, Remind, UseInbox, takes_options
from geminorum.apps.command.flags.table import Program, Via
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.batch import runner, senders, sending
    from geminorum.apps.command.flags import transport
else:
    runner = lazy_module("geminorum.apps.command.batch.runner")
    senders = lazy_module("geminorum.apps.command.batch.senders")
    sending = lazy_module("geminorum.apps.command.batch.sending")
    transport = lazy_module("geminorum.apps.command.flags.transport")

app = new_app()


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="The batch", **more)


def _finite(number: float | None) -> float | None:
    """Infinity is above any least value, and no number that can be counted with."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not an amount; write a number, or omit it")
    return number


File = Annotated[
    Path,
    typer.Argument(
        help="JSONL with a string or an object with `prompt` (and `id`) per line; or CSV or TSV."
    ),
]
Column = Annotated[str | None, _option(help="The CSV column with the prompts. Default: prompt.")]
Output = Annotated[
    Path | None,
    _option(
        "--output",
        "-o",
        help="The results file. Default: NAME.results.jsonl for NAME.jsonl or NAME.csv.",
    ),
]
Hands = Annotated[
    int,
    _option("--concurrency", "-j", min=1, metavar="N", help="How many prompts to run at a time."),
]
Rate = Annotated[
    float | None,
    _option(
        min=0.001, metavar="N", help="Start at most this many prompts per minute.", callback=_finite
    ),
]
Budget = Annotated[
    float | None,
    _option(
        min=0,
        metavar="USD",
        help="Stop after this many dollars for all prompts together.",
        callback=_finite,
    ),
]
Retries = Annotated[
    int, _option(min=0, metavar="N", help="How often to retry after a temporary failure.")
]
RetryFailed = Annotated[bool, _option("--retry-failed", help="Send failed prompts again.")]
Restart = Annotated[bool, _option("--restart", help="Discard earlier results.")]
Json = Annotated[bool, _option("--json", help="Also print each result as JSON.")]
InFleet = Annotated[
    bool, _option("--fleet", help="Let the workers of a fleet run the prompts, as jobs.")
]
DatabaseUrl = Annotated[
    str | None,
    _option("--db", metavar="URL", help="The fleet's PostgreSQL. Default: GEMINORUM_DB."),
]
Tenant = Annotated[str, _option(metavar="NAME", help="Whose jobs they are, with --fleet.")]
WorkspaceSource = Annotated[
    str | None,
    _option(
        "--workspace",
        metavar="SOURCE",
        help="A folder that travels to the workers, or a git address, with --fleet.",
    ),
]
ViaFlag = Annotated[Via, _option(help="The transport.")]


@app.command()
@partial(takes_options, unseen=("resume", "session_id"))  # Always refused: `_refuse_one_session`.
def batch(
    file: File,
    column: Column = None,
    output: Output = None,
    concurrency: Hands = 4,
    rate: Rate = None,
    budget: Budget = None,
    retries: Retries = 2,
    retry_failed: RetryFailed = False,
    restart: Restart = False,
    json: Json = False,
    via: ViaFlag = Via.CLI,
    cli: CliPath = None,
    fleet: InFleet = False,
    db: DatabaseUrl = None,
    tenant: Tenant = "default",
    workspace: WorkspaceSource = None,
    inbox: UseInbox = False,
    remind: Remind = None,
    *,
    options: Options,
) -> Exit:
    """Send many prompts from a file. Run the same command again to continue where it stopped."""
    _refuse_one_session(options)
    _refuse_of_this_machine(cli, inbox) if fleet else _refuse_of_a_fleet(db, workspace)
    limits = runner.Limits(concurrency=concurrency, rate=rate, budget_usd=budget, retries=retries)
    return sending.send_all(
        file,
        options,
        limits,
        via,
        Program(cli),
        elsewhere=senders.Elsewhere(url=db, tenant=tenant, workspace=workspace) if fleet else None,
        column=column,
        output=output,
        restart=restart,
        retry_failed=retry_failed,
        json=json,
        decide=transport.inbox_for(inbox=inbox, remind=remind),
    )


def _refuse_one_session(options: Options) -> None:
    if options.resume or options.session_id:
        hint = "leave --resume and --session-id out"
        raise InvalidOptions("every prompt of a batch has a session of its own", hint=hint)


def _refuse_of_a_fleet(db: str | None, workspace: str | None) -> None:
    if db or workspace:
        flag = "--db" if db else "--workspace"
        raise InvalidOptions(f"{flag} means something with --fleet only", hint="add --fleet")


def _refuse_of_this_machine(cli: Path | None, inbox: bool) -> None:
    if cli:
        hint = "leave --cli out, and set it where `geminorum worker` is started"
        raise InvalidOptions("--cli names a program of this machine", hint=hint)
    if inbox:
        hint = "leave --inbox out, and start the workers with `geminorum worker --inbox`"
        raise InvalidOptions("the workers of a fleet ask, not the batch", hint=hint)
