"""What `geminorum run` does, once what was typed has been read."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum import Options
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flag_table import Program, Via
from geminorum.apps.command.show import Showing
from geminorum.apps.command.typed_options import misuse, text_in

if TYPE_CHECKING:
    from geminorum.apps.command.live import View
    from geminorum.apps.command.undo import Copies

_FOR_EXAMPLE = 'write geminorum run "What does this folder do?"'


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
) -> Exit:
    """Send one prompt and show what the agent does."""
    text = _prompt(prompt, file)
    if json and quiet:
        raise misuse("leave one of them out", "--json --quiet")
    how = Showing(json=json, quiet=quiet, offline=offline)
    return _run(text, options, via, Program(cli, start_timeout, stall_timeout), how)


def _prompt(prompt: str | None, file: Path | None) -> str:
    """The prompt, from wherever it is to come."""
    if file is not None and prompt is not None:
        raise misuse("it replaces PROMPT; leave one of them out", "--file")
    if file is not None:
        text = text_in(file, "--file")
    else:
        text = _stdin() if prompt in (None, "-") else str(prompt)
    if not text.strip():
        raise misuse(f"the prompt is empty; {_FOR_EXAMPLE}")
    return text


def _stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise misuse(f"there is no prompt; {_FOR_EXAMPLE}")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _run(text: str, options: Options, via: Via, program: Program, how: Showing) -> Exit:
    import asyncio

    from geminorum.apps.command.choose_transport import door_for
    from geminorum.apps.command.turn import watched

    copies: Copies | None = None
    with ExitStack() as stack:
        if how.offline:
            options = stack.enter_context(_offline(options, via, how))
        if how.redraws and via is Via.CLI:
            copies = stack.enter_context(_new_copies())
        door = door_for(via, program=program, settings=copies.settings() if copies else None)
        look = partial(_view, via, how, copies)
        return asyncio.run(watched(text, options, door, look, opens_at_once=via is Via.CLI))


def _offline(options: Options, via: Via, how: Showing) -> AbstractContextManager[Options]:
    from geminorum.apps.command.offline import simulated, tell_so

    tell_so(how)
    return simulated(options, via)


def _new_copies() -> Copies:
    from geminorum.apps.command.undo import Copies

    return Copies()


def _view(via: Via, how: Showing, copies: Copies | None) -> View:
    from geminorum.apps.command.live import view_for

    return view_for(via, how, copies)
