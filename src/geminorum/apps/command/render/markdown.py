"""Markdown as a terminal shows it best: rich's, in colours that every background bears.

Rich's own code stands on black, which on a light terminal is a hole; its headings are centred, its
links hide where they lead, and its tables cut cells off.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.token import (  # type: ignore[import-untyped]
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    Token,
)
from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text as Line

from geminorum.views.plain_text import printable

# The terminal's own colours, and none that is lost on black or on white: no blue, no yellow.
_CODE = ANSISyntaxTheme(
    {
        Token: Style(),
        Comment: Style(dim=True, italic=True),
        Keyword: Style(color="magenta"),
        Operator.Word: Style(color="magenta"),
        Name.Builtin: Style(color="cyan"),
        Name.Function: Style(color="cyan"),
        Name.Class: Style(color="cyan"),
        Name.Tag: Style(color="magenta"),
        Name.Attribute: Style(color="cyan"),
        String: Style(color="green"),
        Number: Style(color="cyan"),
        Token.Generic.Deleted: Style(color="red"),
        Token.Generic.Inserted: Style(color="green"),
        Token.Generic.Heading: Style(bold=True),
    }
)


class Indented:
    """Lines with a margin, which they keep where the terminal's edge breaks them.

    Not rich's Padding, which fills lines with spaces that get copied along.
    """

    def __init__(self, text: Line, margin: str = "  ", *, first: Line | str | None = None) -> None:
        self._text, self._margin = text, margin
        self._first = margin if first is None else first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - len(self._margin), 1)
        margin: Line | str = self._first
        for line in self._text.wrap(console, room, overflow="fold"):
            line.rstrip()
            yield Line.assemble(margin, line)
            margin = self._margin


class _Heading(markdown.Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _CodeBlock(markdown.CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        syntax = Syntax("", self.lexer_name, theme=_CODE, word_wrap=True)
        code = syntax.highlight(str(self.text).rstrip())
        code.rstrip()
        yield Indented(code)


class _Table(markdown.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            table.show_edge = False
            for column in table.columns:
                column.overflow = "fold"
            yield table


class Markdown(markdown.Markdown):
    """A text in Markdown."""

    elements: ClassVar[dict[str, Any]] = {
        **markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
        for token in self.parsed:
            for one in (token, *(token.children or ())):
                _make_plain(one)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn: Any = super().__rich_console__(console, options)
        for line in Segment.split_lines(drawn):
            yield from _trimmed(line)
            yield Segment.line()


def _make_plain(token: Any) -> None:
    if token.type == "image":
        # Rich draws it over the beginning of its line, and does not say where it lies.
        token.type, token.content = "text", f"{token.content} ({token.attrGet('src')})"
    # Once more, now that `&#x202e;` and `%E2%80%AE` are letters.
    token.content = printable(token.content)


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Without the spaces up to the edge: they get copied, and break when a window shrinks."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []
