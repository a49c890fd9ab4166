"""A Markdown transcript from events, readable as a file and as a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from geminorum.cost import PriceBook, request_usd
from geminorum.events import Event, ModelRequest, Text, Thinking, UserMessage
from geminorum.runtime.lazy import markdown_it
from geminorum.views.diffs import SHOWN_BY_DIFF, diff_of
from geminorum.views.disarming import disarmed, fenced
from geminorum.views.transcript import (
    Aside,
    Entry,
    TranscriptAnswer,
    TranscriptCall,
    as_text,
    money,
    transcript_of,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_SPECIAL = re.compile(r"([\\`*_\[\]>#|!~])")
_AFTERWARDS = "# afterwards"


def document(
    events: Iterable[Event], *, title: str | None = None, prices: PriceBook | None = None
) -> str:
    """Returns the conversation with tools and thoughts folded. All content is inert on a page."""
    transcript = transcript_of(events, title)
    facts = transcript.facts(prices).items()
    head = [
        f"# {_escaped(transcript.title)}",
        "\n".join(f"- **{name}:** {_escaped(value)}" for name, value in facts),
    ]
    body = [piece for entry in _headed(transcript.entries) for piece in _entry(entry, prices)]
    return "\n\n".join(filter(None, [*head, *body])) + "\n"


def _headed(entries: Iterable[Entry]) -> Iterator[Entry | str]:
    """The entries, each speaker named once: an answer may go on after a tool came back."""
    speaker = ""
    for entry in entries:
        name = {UserMessage: "## User", TranscriptAnswer: "## Gemini"}.get(type(entry), "")
        if name != speaker or name == "## User":
            yield name
        speaker = name
        yield entry


def _entry(entry: Entry | str, prices: PriceBook | None) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case UserMessage():
            yield disarmed(entry.text, quoted)
        case TranscriptAnswer():
            yield from map(_part, entry.parts)
            if entry.request:
                yield _consumed(entry.request, prices)
        case Aside(kind="error" | "warning" | "permission"):
            yield f"**{entry.kind.capitalize()}**\n\n{disarmed(entry.text, quoted)}"
        case Aside():
            yield _folded(f"<code>{_html(entry.kind)}</code>", fenced(entry.text))


def quoted(text: str) -> str:
    """A quotation: whatever the text leaves open ends with it."""
    return "\n".join(f"> {line}".rstrip() for line in re.split(r"\r\n|\r|\n", text.strip("\r\n")))


def _part(part: Thinking | Text | TranscriptCall) -> str:
    match part:
        case Thinking():
            return _folded("Thought", disarmed(part.text, quoted))
        case Text():
            return disarmed(part.text, _closed)
        case TranscriptCall():
            return _call(part)


def _call(call: TranscriptCall) -> str:
    diff = diff_of(call)
    hidden = SHOWN_BY_DIFF if diff else frozenset[str]()
    arguments = {name: value for name, value in call.use.input.items() if name not in hidden}
    pieces = [fenced(as_text(arguments), "json")] if arguments else []
    if diff:
        pieces.append(fenced(diff, "diff"))
    pieces += map(fenced, call.outputs)
    ending = "" if call.status == "success" else f" <b>{_html(call.status)}</b>"
    name = f"<code>{_html(call.use.name)}</code> {_html(call.gist)}{ending}"
    return _folded(name, "\n\n".join(pieces))


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _consumed(request: ModelRequest, prices: PriceBook | None) -> str:
    usd = request_usd(request, prices)
    counts = {
        "in": request.input + request.tool,
        "cached": request.cached,
        "out": request.output,
        "thoughts": request.thoughts,
    }
    told = [f"{count:,} {name}" for name, count in counts.items() if count]
    price = [] if usd is None else [money(usd)]
    return f"<sub>{' · '.join([_escaped(request.model), *told, *price])}</sub>"


def _closed(text: str) -> str:
    """The text, and after it what ends a code block that it leaves open.

    A model that is cut off in the middle of a block would swallow what comes after.
    """
    longest = max(map(len, re.findall("`+|~+", text)), default=3)
    for ending in ("", "`" * longest, "~" * longest):
        closed = f"{text}\n{ending}" if ending else text
        if _lets_go(closed):
            return closed
    return fenced(text)


def _lets_go(text: str) -> bool:
    """Is a heading that follows the text a heading?"""
    tokens = _markdown().parse(f"{text}\n\n{_AFTERWARDS}")
    return len(tokens) > 2 and tokens[-3].type == "heading_open" and tokens[-3].level == 0


@cache
def _markdown() -> MarkdownIt:
    # Blocks are what matters; words within them are not looked at.
    return markdown_it.MarkdownIt("commonmark").disable("inline")


def _escaped(text: str) -> str:
    # An entity, because not every reader takes a backslash before `<` for an escape.
    words = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", words)


def _html(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=False)
