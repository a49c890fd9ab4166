"""A little colour without a library: for the pages and messages that must come at once."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from geminorum.apps.command.render.printable_output import PrintableStream, colour

_CODES = {"bold": "1", "dim": "2", "red": "1;31", "cyan": "36", "green": "32", "yellow": "33"}

STYLES = {
    "markdown.code": "cyan",
    "markdown.code_block": "none",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold italic",
    "markdown.h4": "italic",
    "markdown.block_quote": "italic",
    "markdown.link": "underline",
    "markdown.link_url": "cyan",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.kbd": "bold",
    "bar.complete": "cyan",
    "bar.finished": "green",
    "bar.pulse": "cyan",
    "bar.back": "grey54",
    "progress.download": "none",
    "progress.elapsed": "dim",
    "progress.remaining": "dim",
}
"""What rich is to use instead of its own: these can be read on black and on white."""


def has_colour(stream: TextIO) -> bool:
    """May colours be written there? NO_COLOR and a dumb terminal say no, as does a pipe."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    # Only there does a colour become an escape; rich puts another stream before it for a bar.
    return isinstance(stream, PrintableStream) and stream.isatty()


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text, in colour where the stream shows any."""
    if not has_colour(stream or sys.stdout):
        return text
    return f"{colour(_CODES[style])}{text}{colour('0')}"


def arrow(stream: TextIO) -> str:
    """What points at the next step; in plain letters where the code page has no arrow."""
    try:
        "→…".encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "->"
    return "→"
