"""A shell command to the commands in it, each of which a policy has a word on.

By the grammar that the CLI itself reads commands with.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_COMMANDS = {"command", "declaration_command", "unset_command", "test_command"}
_REDIRECTIONS = {
    *("redirected_statement", "file_redirect", "heredoc_redirect", "herestring_redirect"),
}
_WRAPPER = re.compile(r"\s*(?:\S+/)?(?:sh|bash|zsh)\s+-c\s+", re.I)
LONGEST_COMMAND = 128 * 1024
"""Linux starts no program with a longer argument, so that no shell ever runs such a command."""
_PIECE = re.compile(r"[\w./-]+|[^ \t\r\n]")
_MOST_PIECES = 4000
"""Words and signs. The time that the grammar takes for what is no shell command, and for deep or
long chains, grows with the square of their number."""
_MAX_HEREDOCS = 50
"""The time that the grammar takes grows with the square of their number."""
_DEEPEST = 16


class ShellLine(NamedTuple):
    commands: tuple[str, ...]
    """Also those inside `$(…)`, backticks, loops and `bash -c '…'`."""
    redirects: bool
    """Does any of it read from a file or write to one?"""


def shell_line(text: str, depth: int = 0) -> ShellLine | None:
    """None for a line that cannot be read; the caller must not take it for harmless."""
    if depth > _DEEPEST or not is_readable(text):
        return None
    source = text.encode(errors="replace")
    root = _parser().parse(source).root_node
    nodes = [] if root.has_error else list(_below(root))
    outer = [_text(node, source) for node in nodes if node.type in _COMMANDS]
    inner = [shell_line(part, depth + 1) for part in map(_unwrapped, outer) if part is not None]
    if not outer or any(line is None for line in inner):
        return None
    lines = [line for line in inner if line is not None]
    redirects = any(node.type in _REDIRECTIONS for node in nodes)
    wrapped = [part for part in map(_unwrapped, outer) if part is not None]
    commands = (*outer, *wrapped, *(command for line in lines for command in line.commands))
    return ShellLine(commands, redirects or any(line.redirects for line in lines))


def is_readable(text: str) -> bool:
    """Is it short enough to be read in reasonable time? A model writes it, and may mean harm."""
    # No shell is given a NUL, and the grammar takes minutes for many.
    if len(text) > LONGEST_COMMAND or "\0" in text or text.count("<<") > _MAX_HEREDOCS:
        return False
    return sum(1 for _ in _PIECE.finditer(text)) <= _MOST_PIECES


@cache
def _parser() -> Parser:
    # Only what judges commands needs the grammar, and it is large.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _below(root: Node) -> Iterator[Node]:
    ahead = [root]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += reversed(node.children)


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode(errors="replace").strip()


def _unwrapped(command: str) -> str | None:
    """The line that a shell runs by `-c`; None for any other command."""
    found = _WRAPPER.match(command)
    if found is None:
        return None
    told = command[found.end() :].strip()
    if told[:1] == "'" == told[-1:] and len(told) > 1:
        return told[1:-1]
    try:
        words = shlex.split(told)
    except ValueError:
        return told
    return words[0] if told[:1] == '"' and len(words) == 1 else told
