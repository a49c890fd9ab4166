"""`geminorum chat`, declared to Typer: `conversation.hold` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import CliPath, StallTimeout, StartTimeout, takes_options
from geminorum.apps.command.flags.table import Program, Via
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.chat import conversation
else:
    conversation = lazy_module("geminorum.apps.command.chat.conversation")

app = new_app()


@app.command()
@takes_options
def chat(
    via: Annotated[
        Via, typer.Option("--via", help="One CLI process per turn, a warm CLI, or the API.")
    ] = Via.ACP,
    pick: Annotated[
        bool,
        typer.Option(
            "--pick", "-p", help="Choose a past session to continue, of this folder or of --store."
        ),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="A simulated model answers; no account needed.")
    ] = False,
    cli: CliPath = None,
    start_timeout: StartTimeout = None,
    stall_timeout: StallTimeout = None,
    *,
    options: Options,
) -> Exit:
    """Chat with the agent. Type /help in the chat to list its commands.

    Ctrl-C stops a turn; Ctrl-D, or Ctrl-C twice, ends the chat. From a pipe, each line is a prompt.
    """
    program = Program(cli, start_timeout, stall_timeout)
    return conversation.hold(options, via, program, pick=pick, offline=offline)
