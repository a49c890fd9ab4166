"""`geminorum run PROMPT`, declared to Typer: `run_once` does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import (
    CliPath,
    Patience,
    Remind,
    StallTimeout,
    StartTimeout,
    UseInbox,
    declared,
    takes_options,
)
from geminorum.apps.command.flags.table import RUN_FLAGS, Via
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.run import once
else:
    once = lazy_module("geminorum.apps.command.run.once")

app = new_app()


@app.command()
@takes_options
def run(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; read from stdin if it is missing or -.")
    ] = None,
    file: Annotated[Path | None, declared(RUN_FLAGS["file"])] = None,
    via: Annotated[Via, declared(RUN_FLAGS["via"])] = Via.CLI,
    json: Annotated[bool, declared(RUN_FLAGS["json"])] = False,
    quiet: Annotated[bool, declared(RUN_FLAGS["quiet"])] = False,
    offline: Annotated[bool, declared(RUN_FLAGS["offline"])] = False,
    cli: CliPath = None,
    start_timeout: StartTimeout = None,
    stall_timeout: StallTimeout = None,
    inbox: UseInbox = False,
    patience: Patience = None,
    remind: Remind = None,
    *,
    options: Options,
) -> Exit:
    """Send one prompt and show what the agent does.

    Ctrl-C stops the agent and shows the output so far; a second Ctrl-C kills the agent.
    """
    return once.run_once(
        options=options,
        prompt=prompt,
        file=file,
        via=via,
        json=json,
        quiet=quiet,
        offline=offline,
        cli=cli,
        start_timeout=start_timeout,
        stall_timeout=stall_timeout,
        inbox=inbox,
        patience=patience,
        remind=remind,
    )
