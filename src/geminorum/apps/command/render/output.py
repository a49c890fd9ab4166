"""Where output goes: a console for people, lines of JSON for programs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from geminorum.apps.command.render.printable_output import stream_behind
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import msgspec
from geminorum.views.plain_text import printable, printable_line

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160
"""A pipe has no width; tables should not be squeezed for it."""


class Showing(NamedTuple):
    """How a run is to be shown."""

    json: bool = False
    quiet: bool = False
    offline: bool = False

    @property
    def redraws(self) -> bool:
        """Is it for a person at a terminal?"""
        return is_terminal() and not (self.json or self.quiet)


def console(*, stderr: bool = False) -> Console:
    """The console of this process: coloured on a terminal, plain in a pipe, with NO_COLOR and on
    a dumb terminal."""
    # The only place where rich begins to be loaded: who prints no more than lines does without.
    from geminorum.apps.command.render.console import console_on

    stream = stream_behind(sys.stderr if stderr else sys.stdout)
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return console_on(stream, width)


def is_interactive() -> bool:
    """Is there a person at both ends, and a terminal that can redraw?"""
    return sys.stdin.isatty() and is_terminal()


def is_terminal() -> bool:
    """Is the output a terminal that can redraw?"""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def write_bytes(data: bytes) -> None:
    """Writes bytes as they are, to a pipe or a file only: a terminal would obey them."""
    stream = stream_behind(sys.stdout)
    if stream.isatty():
        text = "stdout is a terminal: name a file, or send it to a pipe with `|` or `>`"
        raise InvalidOptions(text)
    stream.buffer.write(data)


def print_json_line(data: Any) -> None:
    """One value, or one event, as a line of JSON: UTF-8 whatever the code page."""
    print_line(msgspec.json.encode(data, enc_hook=str))


def print_line(line: bytes) -> None:
    """Writes a line of JSON at once, because a reader may wait for it.

    Hidden characters are escaped in it, which to a reader of JSON are the same characters.
    """
    if not line.isascii() or b"\x7f" in line:
        line = printable(line.decode()).encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def write_data(text: str) -> None:
    """Writes data: exact in a pipe or a file, printable on a terminal."""
    stream = sys.stdout if sys.stdout.isatty() else stream_behind(sys.stdout)
    stream.write(text)


def confirmed(question: str, *, err: bool = False) -> bool:
    """Asks the user a question of one line; True for a yes."""
    import typer

    return typer.confirm(printable_line(question), err=err)
