"""What `geminorum run` does, once what was typed has been read."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum import Options
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.options import misuse, text_in
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.flags.transport import inbox_for, transport_for
from geminorum.apps.command.render.output import Showing
from geminorum.apps.command.run.turn import watch_turn
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.render import live
    from geminorum.apps.command.run import offline as simulation
    from geminorum.apps.command.run import undo
    from geminorum.inbox import Inbox
else:
    # A view is made while the agent starts, and most runs need none of the others.
    live = lazy_module("geminorum.apps.command.render.live")
    simulation = lazy_module("geminorum.apps.command.run.offline")
    undo = lazy_module("geminorum.apps.command.run.undo")

_FOR_EXAMPLE = 'write geminorum {} "What does this folder do?"'


def run_once(
    *,
    options: Options,
    prompt: str | None,
    file: Path | None,
    via: Via,
    json: bool,
    quiet: bool,
    offline: bool,
    cli: Path | None,
    start_timeout: float | None,
    stall_timeout: float | None,
    inbox: bool,
    patience: float | None,
    remind: str | None,
) -> Exit:
    """Send one prompt and show what the agent does."""
    text = prompt_from(prompt, file)
    if json and quiet:
        raise misuse("leave one of them out", "--json --quiet")
    how = Showing(json=json, quiet=quiet, offline=offline)
    asked = inbox_for(inbox=inbox, patience=patience, remind=remind)
    return _run(text, options, via, Program(cli, start_timeout, stall_timeout), how, asked)


def prompt_from(prompt: str | None, file: Path | None, command: str = "run") -> str:
    """The prompt, from an argument, a file or stdin."""
    if file is not None and prompt is not None:
        raise misuse("it replaces PROMPT; leave one of them out", "--file")
    if file is not None:
        text = text_in(file, "--file")
    else:
        text = _stdin(command) if prompt in (None, "-") else str(prompt)
    if not text.strip():
        raise misuse(f"the prompt is empty; {_FOR_EXAMPLE.format(command)}")
    return text


def _stdin(command: str) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise misuse(f"there is no prompt; {_FOR_EXAMPLE.format(command)}")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _run(
    text: str, options: Options, via: Via, program: Program, how: Showing, inbox: Inbox | None
) -> Exit:
    copies: undo.Copies | None = None
    with ExitStack() as stack:
        if how.offline:
            simulation.tell_so(how)
            options = stack.enter_context(simulation.simulate_model(options, via))
        if how.redraws and via is Via.CLI:
            copies = stack.enter_context(undo.Copies())
        transport = transport_for(
            via, program=program, decide=inbox, settings=copies.settings() if copies else None
        )
        look = partial(_view, via, how, copies, inbox is not None)
        return asyncio.run(watch_turn(text, options, transport, look, opens_at_once=via is Via.CLI))


def _view(via: Via, how: Showing, copies: undo.Copies | None, asks_elsewhere: bool) -> live.View:
    return live.view_for(via, how, copies, asks_elsewhere=asks_elsewhere)
