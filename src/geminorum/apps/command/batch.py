"""`geminorum batch FILE`: many prompts, each with one result, however often it is killed."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flag_table import Program, Via
from geminorum.apps.command.flags import CliPath, takes_options
from geminorum.errors import InvalidOptions

if TYPE_CHECKING:
    from geminorum.apps.command.batch_input import Task
    from geminorum.apps.command.batch_journal import Journal, Outcome
    from geminorum.apps.command.batch_runner import Limits
    from geminorum.apps.command.batch_show import Meter

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
Door = Annotated[Via, _option(help="The transport.")]


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
    via: Door = Via.CLI,
    cli: CliPath = None,
    *,
    options: Options,
) -> Exit:
    """Send many prompts from a file. Run the same command again to continue where it stopped."""
    from geminorum.apps.command.batch_input import tasks_in
    from geminorum.apps.command.batch_journal import Journal
    from geminorum.apps.command.batch_runner import Limits
    from geminorum.apps.command.choose_transport import door_for

    _refuse_one_session(options)
    tasks = tasks_in(file, column)
    limits = Limits(concurrency=concurrency, rate=rate, budget_usd=budget, retries=retries)
    door = door_for(via, program=Program(cli))
    journal = Journal(output or file.with_name(f"{file.stem}.results.jsonl"), file)
    with journal.opened(tasks, restart=restart):
        if retry_failed:
            journal.drop_failures()
        return _run(tasks, journal, options, door, limits, json=json)


def _run(
    tasks: list[Task],
    journal: Journal,
    options: Options,
    door: Any,
    limits: Limits,
    *,
    json: bool,
) -> Exit:
    from geminorum.apps.command.batch_runner import Batch
    from geminorum.apps.command.batch_show import Meter, greeting, summary, tell

    mine = {task.id for task in tasks}
    for name in journal.outcomes.keys() - mine:
        del journal.outcomes[name]  # Of prompts that were taken out of the file since.
    meter = Meter(journal, len(tasks))

    def told(outcome: Outcome) -> None:
        meter.add(outcome, work)
        if json:
            _print(outcome)

    work = Batch(tasks, journal, options, door, limits, told)
    tell(greeting(meter))
    try:
        with meter.shown():
            asyncio.run(work.run())
    finally:
        tell(summary(meter, work, journal))
    return _exit_of(meter, stopped=work.brake is not None)


def _exit_of(meter: Meter, *, stopped: bool) -> Exit:
    if stopped:
        return Exit.LIMIT
    return Exit.FAILED if meter.failed else Exit.OK


def _print(outcome: Outcome) -> None:
    from geminorum.apps.command.show import print_json_line

    print_json_line(outcome)


def _refuse_one_session(options: Options) -> None:
    if options.resume or options.session_id:
        hint = "leave --resume and --session-id out"
        raise InvalidOptions("every prompt of a batch has a session of its own", hint=hint)
