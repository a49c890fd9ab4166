"""Untrusted Markdown in; Markdown that shows the same and contains nothing active out.

No HTML, no image that would be fetched, no link but to the web; code to the letter. The parser
has the last word: what it still finds acting is shown as code.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from geminorum.runtime.lazy import markdown_it

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_NEWLINES = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_FENCES, _ACTS = ("fence", "code_block"), ("html_block", "html_inline", "image")
_PIECES = re.compile(r"\\[\s\S]|`+|<(?=[A-Za-z/!?])|!(?=\[)|\][(:]")
# Bounded, so that a thousand links in a row take no longer than they are.
_ADDRESS = re.compile(r"\s{0,100}<?([^\s<>]{0,200})")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)
_TO_THE_WEB = re.compile(r"(?:https?|mailto):", re.I)
_UNSEEN = re.compile(r"[\x00-\x20\x7f-\xa0\u200b-\u200f\ufeff]")


def disarmed(text: str, shaped: Callable[[str], str] = str) -> str:
    """The text in its shape, a quotation for example; as a block of code where nothing else
    keeps it from acting."""
    safe = shaped(_escaped(_without_leading_indent(text)))
    return safe if _is_harmless(safe) else shaped(fenced(text))


def fenced(text: str, language: str = "") -> str:
    """A code block that nothing in the text can end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _without_leading_indent(text: str) -> str:
    """Indented code at the beginning would be a part of a list that stands before it."""
    first = next(iter(_blocks().parse(text)), None)
    if first is None or first.type != "code_block" or first.map is None:
        return text
    rest = "".join(_NEWLINES.split(text)[first.map[1] :])
    return f"{fenced(first.content)}\n\n{rest}" if rest.strip() else fenced(first.content)


def _escaped(text: str) -> str:
    lines = _NEWLINES.split(text)
    return "".join(
        "".join(lines[start:end]) if is_code else _inert("".join(lines[start:end]))
        for start, end, is_code in _stretches(_blocks().parse(text), len(lines))
    )


def _stretches(tokens: Iterable[Token], count: int) -> Iterator[tuple[int, int, bool]]:
    """The lines that belong together: a block of code, or words in which a span of code can be."""
    at = 0
    for token in tokens:
        if token.map is None or token.type not in (*_FENCES, "inline"):
            continue
        start, end = max(at, token.map[0]), min(token.map[1], count)
        yield from ((line, line + 1, False) for line in range(at, start))
        if end > start:
            yield start, end, token.type in _FENCES
        at = max(at, end)
    yield from ((line, line + 1, False) for line in range(at, count))


def _inert(text: str) -> str:
    """Words outside of code blocks, with all that could act in them escaped."""
    closings, out, at = _Backticks(text), list[str](), 0
    while (found := _PIECES.search(text, at)) is not None:
        end = found.end()
        out.append(text[at : found.start()])
        if found[0].startswith("`"):
            end = closings.after(end, len(found[0])) or end
            out.append(text[found.start() : end])
        else:
            out.append(_piece(found[0], text, end))
        at = end
    return "".join([*out, text[at:]])


def _piece(piece: str, text: str, end: int) -> str:
    match piece:
        # The entity and not a backslash, which some readers do not take before this one.
        case "<" | "\\<":
            return "&lt;"
        case "!":
            return "\\!"
        case "](" | "]:" if not _leads_to_the_web(_ADDRESS.match(text, end)):
            return f"]\\{piece[1]}"
    return piece


class _Backticks:
    """Where each run of backticks ends that could close a span of code."""

    def __init__(self, text: str) -> None:
        self._ends: dict[int, list[int]] = defaultdict(list)
        for run in re.finditer("`+", text):
            self._ends[len(run[0])].append(run.end())

    def after(self, position: int, length: int) -> int | None:
        ends = self._ends[length]
        place = bisect_right(ends, position)
        return ends[place] if place < len(ends) else None


def _leads_to_the_web(address: re.Match[str] | None) -> bool:
    from markdown_it.common.utils import unescapeAll

    return address is None or _is_web(unescapeAll(address[1]))


def _is_web(address: str) -> bool:
    """Or into the folder that the page lies in."""
    seen = _UNSEEN.sub("", address)
    return not _SCHEME.match(seen) or bool(_TO_THE_WEB.match(seen))


def _is_harmless(text: str) -> bool:
    return all(_nothing_acts(reader, text) for reader in _readers())


def _nothing_acts(reader: MarkdownIt, text: str) -> bool:
    known: dict[str, dict[str, dict[str, str]]] = {}
    tokens = reader.parse(text, known)
    inner = (child for token in tokens for child in token.children or ())
    addresses = [one["href"] for one in known.get("references", {}).values()]
    for token in (*tokens, *inner):
        if token.type in _ACTS:
            return False
        if token.type == "link_open":
            addresses.append(str(token.attrs["href"]))
    return all(map(_is_web, addresses))


@cache
def _blocks() -> MarkdownIt:
    # Without HTML: as it will be read when all of it is escaped.
    return markdown_it.MarkdownIt("commonmark", {"html": False}).disable("inline")


@cache
def _readers() -> tuple[MarkdownIt, ...]:
    """Readers that let everything through, with tables and without: a cell ends a span of code."""
    plain = markdown_it.MarkdownIt("commonmark", {"html": True})
    tables = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for reader in (plain, tables):
        reader.validateLink = lambda url: True  # type: ignore[method-assign]
    return plain, tables
