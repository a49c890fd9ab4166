"""The one way out: what a command writes to stdout and stderr cannot take over a terminal.

`make_output_printable` puts a `PrintableStream` in front of both, so nothing that is written there,
an error, a warning or a traceback included, has to be made printable by whoever writes it. Three
things go past it, each made printable in its own place: what rich draws (`show_console`), lines of
JSON (`show.print_line`), and data that somebody asked for (`show.write_data`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from geminorum.views.plain_text import printable

_ESCAPE = f"\ue000{os.urandom(8).hex()}"
"""Stands for the beginning of a colour until it is written. Nobody else can know it, so no text of
a stranger is taken for a colour of ours."""


class PrintableStream:
    """A text stream behind which no control and no invisible character gets through."""

    def __init__(self, stream: TextIO) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        self.behind.write(printable(text).replace(_ESCAPE, "\x1b["))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def make_output_printable() -> None:
    """From here on stdout and stderr write no control and no invisible character."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def stream_behind(stream: TextIO) -> TextIO:
    """The stream itself, for what was made printable already or is to stay as it is."""
    return cast("TextIO", getattr(stream, "behind", stream))


def colour(code: str) -> str:
    """Begins a colour in a text that goes to a `PrintableStream`."""
    return f"{_ESCAPE}{code}m"


def _guarded(stream: TextIO) -> TextIO:
    return cast("TextIO", PrintableStream(stream_behind(stream)))
