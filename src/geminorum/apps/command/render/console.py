"""Rich's console, for texts of strangers: no markup, no links, no control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text as Line
from rich.theme import Theme

from geminorum.apps.command.render.style import STYLES
from geminorum.views.plain_text import printable


def console_on(stream: TextIO, width: int | None) -> Console:
    """A console in our style; no width: that of the terminal."""
    return PrintableConsole(
        file=stream,
        highlight=False,
        emoji=False,
        markup=False,
        width=width,
        theme=Theme(STYLES),
    )


class PrintableConsole(Console):
    """Writes escapes of its own and no others.

    Texts should be printable before they are laid out, for an escape takes more room than what it
    stands for. Whatever was forgotten, or comes out of Markdown (`&#x202e;`), is caught here.
    """

    def render_str(self, text: str, **how: Any) -> Line:
        return super().render_str(printable(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        return map(_harmless, super().render(renderable, options))


def _harmless(segment: Segment) -> Segment:
    if segment.control:
        return segment  # Rich's own: it moves the cursor for a bar or a spinner.
    text, style = segment.text, segment.style
    if style is not None and style.link:
        style = style.update_link(None)  # A link need not lead where its text says.
    return Segment(text if _is_plain(text) else printable(text), style)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
