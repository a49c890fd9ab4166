"""The prompts of a file, each with one result, however often the batch is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminorum import Options
from geminorum.apps.command.batch.input import Task, tasks_in
from geminorum.apps.command.batch.journal import Journal, TaskOutcome
from geminorum.apps.command.batch.progress import Meter, greeting, summary, tell
from geminorum.apps.command.batch.runner import Batch, Limits
from geminorum.apps.command.batch.senders import Elsewhere, FleetSender, LocalSender, Sender
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.flags.transport import transport_for
from geminorum.apps.command.render.output import print_json_line

if TYPE_CHECKING:
    from geminorum.inbox import Inbox


def send_all(
    file: Path,
    options: Options,
    limits: Limits,
    via: Via,
    program: Program,
    *,
    elsewhere: Elsewhere | None,
    column: str | None,
    output: Path | None,
    restart: bool,
    retry_failed: bool,
    json: bool,
    decide: Inbox | None = None,
) -> Exit:
    """Send the prompts that have no result yet; how it ended."""
    tasks = tasks_in(file, column)
    journal = Journal(output or file.with_name(f"{file.stem}.results.jsonl"), file)
    with journal.open(tasks, restart=restart):
        if retry_failed:
            journal.drop_failures()
        if elsewhere is None:
            local = LocalSender(transport_for(via, program=program, decide=decide))
            return _run(tasks, journal, options, local, limits, json=json)
        there = FleetSender(elsewhere, journal.batch, via.value, attempts=limits.retries + 1)
        # A worker sends again what may pass: here, it is one attempt.
        once = msgspec.structs.replace(limits, retries=0)
        return _run(tasks, journal, options, there, once, json=json)


def _run(
    tasks: list[Task],
    journal: Journal,
    options: Options,
    sender: Sender,
    limits: Limits,
    *,
    json: bool,
) -> Exit:
    mine = {task.id for task in tasks}
    for name in journal.outcomes.keys() - mine:
        del journal.outcomes[name]  # Of prompts that were taken out of the file since.
    meter = Meter(journal, len(tasks))

    def on_outcome(outcome: TaskOutcome) -> None:
        meter.add(outcome, work)
        if json:
            print_json_line(outcome)

    work = Batch(tasks, journal, options, sender, limits, on_outcome)
    tell(greeting(meter))
    try:
        with meter.show():
            asyncio.run(work.run())
    finally:
        tell(summary(meter, work, journal))
    return _exit_of(meter, stopped=work.brake is not None)


def _exit_of(meter: Meter, *, stopped: bool) -> Exit:
    if stopped:
        return Exit.LIMIT
    return Exit.FAILED if meter.failed else Exit.OK
