"""The page that `geminorum --help` shows, from the table of commands alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Protocol

from geminorum.apps.command.show_style import styled

_OPTIONS = {
    "--help": "also after a command: geminorum run --help",
    "--version": "of geminorum, of the Gemini CLI and of Python",
    "--install-completion": "let the Tab key complete commands and options",
    "--show-completion": "the same, to copy it yourself",
}


class Described(Protocol):
    @property
    def help(self) -> str: ...
    @property
    def section(self) -> str: ...


def help_page(commands: Mapping[str, Described], width: int) -> str:
    """The whole page, for a terminal of that width."""
    lines = [f"{styled('geminorum', 'bold')} drives Gemini as an agent.", ""]
    lines += [f"{styled('Usage', 'bold')}  geminorum COMMAND …", ""]
    for section in dict.fromkeys(row.section for row in commands.values()):
        rows = {name: row.help for name, row in commands.items() if row.section == section}
        lines += [styled(section, "bold"), *_table(rows, width), ""]
    lines += [styled("Options", "bold"), *_table(_OPTIONS, width), ""]
    lines += [styled("Try it without an account", "bold")]
    lines += ["  " + styled('geminorum run --offline "Hello"', "cyan")]
    return "\n".join(lines) + "\n"


def _table(rows: Mapping[str, str], width: int) -> Iterator[str]:
    column = max(map(len, rows)) + 4
    beside = width - column >= 24
    for name, help in rows.items():
        indent = column if beside else 4
        first, *rest = textwrap.wrap(help, max(width - indent, 16))
        label = "  " + styled(name, "cyan")
        if beside:
            yield label + " " * (column - 2 - len(name)) + first
        else:
            yield from (label, " " * indent + first)
        yield from (" " * indent + line for line in rest)
