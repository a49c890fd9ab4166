"""One entry of a conversation to its piece of the page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from geminorum.cost import PriceBook, request_usd
from geminorum.events import ModelRequest, Text, Thinking, UserMessage
from geminorum.views.diffs import SHOWN_BY_DIFF, counts, diff_of, head_and_body
from geminorum.views.html.prose import escaped, rendered
from geminorum.views.transcript import (
    Aside,
    Entry,
    TranscriptAnswer,
    TranscriptCall,
    machine_time,
    moment,
    money,
    one_line,
)

_CONTEXT = "session_context"
_NAMES = {
    _CONTEXT: "What the CLI told the model first",
    "error": "Error",
    "warning": "Warning",
    "permission": "Permission",
}
_MARKS = {"+": "came", "-": "went", "@": "where"}


class Limits(NamedTuple):
    """How much of an entry is shown. What is left out is counted; None: all of it."""

    characters: int | None = None
    """Of each text."""
    parts: int | None = None
    """Thoughts, texts and calls of one answer."""


WHOLE = Limits()


def entry_html(
    entry: Entry, number: int, prices: PriceBook | None = None, limits: Limits = WHOLE
) -> str:
    """A message with an anchor of its own, `m1` for the first."""
    match entry:
        case UserMessage():
            head = _head("h2", "User", number, entry.timestamp)
            text = f'<div class="said" dir="auto">{_cut(entry.text, limits)}</div>'
            return f'<article class="user" id="m{number}">{head}{text}</article>'
        case TranscriptAnswer():
            head = _head("h3", "Gemini", number, entry.at)
            margin = _margin(entry.request, prices) if entry.request else ""
            return (
                f'<article class="answer" id="m{number}">{head}'
                f'<div class="body">{_body(entry, limits)}</div>{margin}</article>'
            )
        case Aside():
            return _aside(entry, number, limits)


def _head(level: str, who: str, number: int, at: int) -> str:
    when = moment(at)
    time = f'<time datetime="{machine_time(at)}">{when}</time>' if when else ""
    return f'<header><{level}><a href="#m{number}">{who}</a></{level}>{time}</header>'


def _body(answer: TranscriptAnswer, limits: Limits) -> str:
    shown = answer.parts[: limits.parts]
    groups = [_group(list(group), limits) for _, group in groupby(shown, key=type)]
    more = len(answer.parts) - len(shown)
    return "".join(groups) + (_left_out(f"{more:,} more parts of this answer") if more else "")


def _group(parts: Sequence[Thinking | Text | TranscriptCall], limits: Limits) -> str:
    thoughts = [part for part in parts if isinstance(part, Thinking)]
    if thoughts:
        return _thoughts(thoughts, limits)
    return "".join(
        _call(part, limits) if isinstance(part, TranscriptCall) else _prose(part.text, limits)
        for part in parts
    )


def _prose(text: str, limits: Limits) -> str:
    shown, note = _shortened(text, limits)
    return f'<div class="prose" dir="auto">{rendered(shown)}</div>{note}'


def _cut(text: str, limits: Limits) -> str:
    shown, note = _shortened(text, limits)
    return escaped(shown) + note


def _shortened(text: str, limits: Limits) -> tuple[str, str]:
    """The beginning, and a note on the rest."""
    if limits.characters is None or len(text) <= limits.characters:
        return text, ""
    more = len(text) - limits.characters
    return text[: limits.characters], _left_out(f"{more:,} more characters")


def _left_out(what: str) -> str:
    return f'<span class="left-out">… {what} are left out here; an export has them.</span>'


def _thoughts(thoughts: list[Thinking], limits: Limits) -> str:
    name = "Thought" if len(thoughts) == 1 else f"{len(thoughts)} thoughts"
    texts = "".join(_prose(thought.text, limits) for thought in thoughts)
    gist = escaped(one_line(thoughts[0].text))
    return (
        f'<details class="thought"><summary><span class="name">{name}</span> '
        f'<span class="gist">{gist}</span></summary>{texts}</details>'
    )


def _call(call: TranscriptCall, limits: Limits) -> str:
    diff = diff_of(call)
    hidden = SHOWN_BY_DIFF if diff else frozenset[str]()
    boxes = [_short(call, hidden)]
    boxes += [
        _box(*pair, "argument", limits)
        for pair in call.long_arguments.items()
        if pair[0] not in hidden
    ]
    if diff:
        boxes.append(f"<h4>change</h4>{diff_html(diff, limits)}")
    names = ("result", "told to the model")
    boxes += [
        _box(name, text, "output", limits) for name, text in zip(names, call.outputs, strict=False)
    ]
    return (
        f'<details class="call {call.status}"><summary>{_summary(call, diff)}</summary>'
        f"{''.join(boxes)}</details>"
    )


def _short(call: TranscriptCall, hidden: frozenset[str]) -> str:
    rows = "".join(
        f'<div><dt>{escaped(name)}</dt><dd dir="auto">{escaped(text)}</dd></div>'
        for name, text in call.short_arguments.items()
        if name not in hidden
    )
    return f'<dl class="short">{rows}</dl>' if rows else ""


def _summary(call: TranscriptCall, diff: str | None) -> str:
    pieces = [
        f'<span class="name">{escaped(call.use.name)}</span>',
        f'<span class="gist">{escaped(call.gist)}</span>',
    ]
    if diff:
        came, went = counts(diff)
        pieces += [f'<span class="came">+{came}</span>'] if came else []
        pieces += [f'<span class="went">\N{MINUS SIGN}{went}</span>'] if went else []
    if call.status != "success":
        pieces.append(f'<span class="status">{call.status}</span>')
    return " ".join(pieces)


def _box(name: str, text: str, kind: str, limits: Limits) -> str:
    # A box that scrolls must be reachable by key. The line break: a browser drops the first.
    box = f'<pre class="{kind}" tabindex="0" dir="auto">\n{_cut(text, limits)}</pre>'
    return f"<h4>{escaped(name)}</h4>{box}"


def diff_html(diff: str, limits: Limits = WHOLE) -> str:
    """A unified diff with a colour for each kind of line."""
    shown, note = _shortened(diff, limits)
    head, body = head_and_body(shown)
    files = "".join(_diff_line(line, "file") for line in head)
    lines = "".join(_diff_line(line, _MARKS.get(line[:1], "same")) for line in body)
    return f'<pre class="diff" tabindex="0">{files}{lines}{note}</pre>'


def _diff_line(line: str, kind: str) -> str:
    return f'<span class="{kind}">{escaped(line)}\n</span>'


def _margin(request: ModelRequest, prices: PriceBook | None) -> str:
    usd = request_usd(request, prices)
    lines = [
        escaped(request.model),
        _pair(request.input + request.tool, "in", request.cached, "cached"),
        _pair(request.output, "out", request.thoughts, "thoughts"),
        "" if usd is None else f"<b>{money(usd)}</b>",
    ]
    rows = "".join(f"<p>{line}</p>" for line in lines if line)
    return f'<aside class="margin" aria-label="Tokens and cost">{rows}</aside>'


def _pair(count: int, name: str, part: int, part_name: str) -> str:
    rest = f", {part:,} {part_name}" if part else ""
    return f"{count:,} {name}{rest}"


def _aside(aside: Aside, number: int, limits: Limits) -> str:
    name = escaped(_NAMES.get(aside.kind, aside.kind))
    if aside.kind in ("error", "warning", "permission"):
        text = f'<div class="said" dir="auto">{_cut(aside.text, limits)}</div>'
        return (
            f'<section class="aside {aside.kind}" id="m{number}"><p class="name">{name}</p>'
            f"{text}</section>"
        )
    box = f'<pre class="output" tabindex="0" dir="auto">\n{_cut(aside.text, limits)}</pre>'
    return (
        f'<section class="aside" id="m{number}"><details><summary><span class="name">{name}'
        f"</span></summary>{box}</details></section>"
    )
