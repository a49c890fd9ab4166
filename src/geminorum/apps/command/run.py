"""`geminorum run PROMPT`: one prompt, watched."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags import (
    CliPath,
    Program,
    StallTimeout,
    StartTimeout,
    Via,
    takes_options,
    text_in,
)
from geminorum.apps.command.show import Showing

app = new_app()
_FOR_EXAMPLE = 'write geminorum run "What does this folder do?"'


@app.command()
@takes_options
def run(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; read from stdin if it is missing or -.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the prompt from this file.")
    ] = None,
    via: Annotated[
        Via, typer.Option("--via", help="The transport: the CLI, a warm CLI, or the API.")
    ] = Via.CLI,
    json: Annotated[
        bool, typer.Option("--json", help="Print events as JSON, one per line.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the text.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="A simulated model answers; no account needed.")
    ] = False,
    cli: CliPath = None,
    start_timeout: StartTimeout = None,
    stall_timeout: StallTimeout = None,
    *,
    options: Options,
) -> Exit:
    """Send one prompt and show what the agent does.

    Ctrl-C stops the agent and shows the output so far; a second Ctrl-C kills the agent.
    """
    text = _prompt(prompt, file)
    if json and quiet:
        raise typer.BadParameter("leave one of them out", param_hint="--json --quiet")
    how = Showing(json=json, quiet=quiet, offline=offline)
    return _run(text, options, via, Program(cli, start_timeout, stall_timeout), how)


def _prompt(prompt: str | None, file: Path | None) -> str:
    """The prompt, from wherever it is to come."""
    if file is not None and prompt is not None:
        raise typer.BadParameter("it replaces PROMPT; leave one of them out", param_hint="--file")
    if file is not None:
        text = text_in(file, "--file")
    else:
        text = _stdin() if prompt in (None, "-") else str(prompt)
    if not text.strip():
        raise typer.BadParameter(f"the prompt is empty; {_FOR_EXAMPLE}")
    return text


def _stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise typer.BadParameter(f"there is no prompt; {_FOR_EXAMPLE}")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _run(text: str, options: Options, via: Via, program: Program, how: Showing) -> Exit:
    import asyncio

    from geminorum.apps.command.choose_transport import door_for
    from geminorum.apps.command.live import view_for
    from geminorum.apps.command.offline import simulated, tell_so
    from geminorum.apps.command.turn import watched
    from geminorum.apps.command.undo import Copies

    with ExitStack() as stack:
        if how.offline:
            tell_so(how)
            options = stack.enter_context(simulated(options, via))
        copies = stack.enter_context(Copies()) if how.redraws and via is Via.CLI else None
        door = door_for(via, program=program, settings=copies.settings() if copies else None)
        return asyncio.run(watched(text, options, door, view_for(via, how, copies)))
