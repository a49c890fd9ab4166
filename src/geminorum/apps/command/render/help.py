"""The pages that `--help` shows: our own and not rich's, whose boxes cut names off at 80 columns,
and which would import every command to ask for its first line."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from geminorum.apps.command.render.style import styled

_OPTIONS = {
    "--help": "also after a command: geminorum run --help",
    "--version": "versions of geminorum, the Gemini CLI and Python",
    "--install-completion": "set up Tab completion for this shell",
    "--show-completion": "print the completion script, to install it yourself",
}
_KINDS = {"str": "TEXT", "int": "N", "float": "N", "path": "PATH", "file": "FILE", "Path": "PATH"}


class Described(Protocol):
    @property
    def help(self) -> str: ...
    @property
    def section(self) -> str: ...


def page_width() -> int:
    """Of the terminal, within what can be read."""
    # The library's own formatter never goes below 50, and a narrow window would wrap it once more.
    return max(30, min(shutil.get_terminal_size().columns, 96))


def front_page(commands: Mapping[str, Described], width: int) -> str:
    """The page of `geminorum --help`, for a terminal of that width."""
    lines = [f"{styled('geminorum', 'bold')} drives Gemini as an agent.", ""]
    lines += [f"{styled('Usage', 'bold')}  geminorum COMMAND …", ""]
    longest = max(map(len, commands))
    for section in dict.fromkeys(row.section for row in commands.values()):
        rows = {name: row.help for name, row in commands.items() if row.section == section}
        lines += [styled(section, "bold"), *_table(rows, width, longest), ""]
    lines += [styled("Options", "bold"), *_table(_OPTIONS, width, _longest(_OPTIONS, width)), ""]
    lines += [styled("Try it without an account", "bold")]
    lines += ["  " + styled('geminorum run --offline "Hello"', "cyan")]
    return "\n".join(lines) + "\n"


def command_page(command: Any, ctx: Any, width: int) -> str:
    """The page of one command, or of a group of them."""
    # Around the name of an argument, also before its dots: `{session}...`.
    pieces = (re.sub("[{}]", "", piece).upper() for piece in command.collect_usage_pieces(ctx))
    usage = " ".join([ctx.command_path, *pieces])
    first, *rest = textwrap.wrap(usage, width - 7)
    lines = [f"{styled('Usage', 'bold')}  {first}", *(" " * 7 + line for line in rest), ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [*textwrap.wrap(paragraph, width), ""]
    sections = _sections(command, ctx)
    longest = _longest((name for rows in sections.values() for name in rows), width)
    for title, rows in sections.items():
        lines += [styled(title, "bold"), *_table(rows, width, longest), ""]
    return "\n".join(lines)


def _sections(command: Any, ctx: Any) -> dict[str, dict[str, str]]:
    """Title to rows: the commands of a group, arguments, options by their panels."""
    found: dict[str, dict[str, str]] = {}
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        found.setdefault("Commands", {})[name] = command.get_command(ctx, name).get_short_help_str(
            200
        )
    for param in command.get_params(ctx):
        if record := param.get_help_record(ctx):
            is_argument = param.param_type_name == "argument"
            plain = "Arguments" if is_argument else "Options"
            title = getattr(param, "rich_help_panel", None) or plain
            label = param.name.upper() if is_argument else _label(record[0])
            found.setdefault(title, {})[label] = _help(record[1])
    return found


def _help(text: str) -> str:
    """With the default as a sentence, and not in brackets that break in the middle."""
    plain = re.sub(r"\s+\[(?:required|x>=[0-9.]+)\]$|; x>=[0-9.]+(?=\])", "", text)
    return re.sub(r"\s+\[default: (.*?)\.?\]$", r" Default: \1.", plain)


def _label(names: str) -> str:
    """The names of an option, with what it takes in plain words."""
    named = re.sub(r"<(?:list\[)?(\w+)\]?>", lambda found: _KINDS.get(found[1], found[0]), names)
    return named.removesuffix(" <bool>")


def _longest(names: Iterable[str], width: int) -> int:
    """The room for names: so that most stand beside their text, and the text has the most."""
    return max((len(name) for name in names if len(name) <= width // 3), default=2)


def _table(rows: Mapping[str, str], width: int, longest: int) -> Iterator[str]:
    column = longest + 4
    for name, help in rows.items():
        label = "  " + styled(name, "cyan")
        beside = len(name) + 4 <= column and width - column >= 24
        indent = column if width - column >= 24 else 6
        first, *rest = textwrap.wrap(help, max(width - indent, 16)) or [""]
        if beside:
            yield (label + " " * (indent - 2 - len(name)) + first).rstrip()
        else:
            yield from (label, " " * indent + first)
        yield from (" " * indent + line for line in rest)
