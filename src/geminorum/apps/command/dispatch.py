"""Arguments in, an exit code out: what happens around every command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from geminorum.apps.command.failures import (
    forgive_narrow_encodings,
    ignore_ctrl_c,
    leave_properly_on_signals,
    replace_closed_streams,
    run_guarded,
    show_warnings_plainly,
)
from geminorum.apps.command.leaving import leave
from geminorum.apps.command.render.printable_output import make_output_printable


def call(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    replace_closed_streams()
    forgive_narrow_encodings()
    make_output_printable()
    leave_properly_on_signals()
    show_warnings_plainly()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["run"]:
        return run_guarded(lambda: _run_prompt(arguments), "geminorum run")
    return run_guarded(lambda: _by_typer(arguments))


def call_and_leave() -> int:
    """… and end the process with it."""
    try:
        code = call()
    finally:
        ignore_ctrl_c()
    leave(code)
    return code


def _run_prompt(arguments: list[str]) -> Any:
    from geminorum.apps.command.flags.quick_run import run_values

    if (given := run_values(arguments[1:])) is None:
        return _by_typer(arguments)
    from geminorum.apps.command.flags.options import with_options
    from geminorum.apps.command.run.once import run_once

    return run_once(**with_options(given))


def _by_typer(arguments: list[str]) -> Any:
    from geminorum.apps.command.app import command_line

    return command_line(arguments)
