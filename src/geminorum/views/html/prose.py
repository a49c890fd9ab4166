"""What a model wrote, to HTML that can do nothing but be read."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from geminorum.runtime.lazy import markdown_it
from geminorum.views.plain_text import printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

# A browser would drop or change these. Their pictures say that they were there.
_VISIBLE = {number: 0x2400 + number for number in range(32) if chr(number) not in "\t\n"}
_VISIBLE |= {0x7F: 0x2421, **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)}
_LINKS = re.compile(r"(https?://|mailto:)", re.I)
_BRACKET = re.compile(r"[\\\[]")
_MAX_BRACKETS = 1_000
"""Of one paragraph."""
_HEADINGS_ABOVE = 3
"""The page's title, the turn, the answer."""


def visible(text: str) -> str:
    """The text with plain line ends, a picture for each control character, and an escape for each
    letter that hides or turns the order of others round."""
    return printable(text.replace("\r\n", "\n").replace("\r", "\n").translate(_VISIBLE))


def escaped(text: str) -> str:
    """The text as it stands, as HTML."""
    return html.escape(visible(text))


def rendered(text: str) -> str:
    """Markdown as HTML: no markup of the text's own, nothing to load, links only to the web."""
    return str(_markdown().render(visible(text)))


@cache
def _markdown() -> MarkdownIt:
    reader = markdown_it.MarkdownIt("commonmark", {"html": False}).enable(
        ["table", "strikethrough"]
    )
    # What is refused here stays text, its address with it.
    reader.validateLink = lambda url: bool(_LINKS.match(url))  # type: ignore[method-assign]
    reader.core.ruler.before("inline", "plain_brackets", _plain_brackets)
    reader.core.ruler.push("deeper_headings", _deeper_headings)
    reader.core.ruler.push("plain_alignment", _plain_alignment)
    reader.add_render_rule("image", _image)
    reader.add_render_rule("link_open", _link)
    return reader


def _plain_brackets(state: StateCore) -> None:
    """Brackets without end are text: for each one, the reader looks at all that follow."""
    for token in state.tokens:
        if token.type == "inline" and token.content.count("[") > _MAX_BRACKETS:
            token.content = _BRACKET.sub(r"\\\g<0>", token.content)


def _deeper_headings(state: StateCore) -> None:
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _HEADINGS_ABOVE)}"


def _plain_alignment(state: StateCore) -> None:
    """Cells of tables say where their text stands by an attribute: pages that allow no style in
    their markup show it, too."""
    for token in state.tokens:
        if isinstance(style := token.attrs.pop("style", None), str):
            token.attrSet("align", style.removeprefix("text-align:"))


def _image(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """Shows an image as a link: loading it would reveal that the page is read."""
    address = html.escape(str(tokens[at].attrGet("src") or ""))
    name = html.escape(tokens[at].content) or address
    return f'<a class="image" rel="noreferrer nofollow" href="{address}">{name}</a>'


def _link(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    address = html.escape(str(tokens[at].attrGet("href") or ""))
    return f'<a rel="noreferrer nofollow" href="{address}">'
