"""One entry of a conversation to its piece of the page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from geminorum.cost import PriceBook, request_usd
from geminorum.events import ModelRequest, Text, Thinking, UserMessage
from geminorum.views.diffs import SHOWN_BY_DIFF, counts, diff_of, head_and_body
from geminorum.views.html.prose import escaped, rendered
from geminorum.views.transcript import (
    Aside,
    Entry,
    TranscriptAnswer,
    TranscriptCall,
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


def entry_html(entry: Entry, number: int, prices: PriceBook | None) -> str:
    """A message with an anchor of its own, `m1` for the first."""
    match entry:
        case UserMessage():
            head = _head("h2", "User", number, entry.timestamp)
            text = f'<div class="said" dir="auto">{escaped(entry.text)}</div>'
            return f'<article class="user" id="m{number}">{head}{text}</article>'
        case TranscriptAnswer():
            head = _head("h3", "Gemini", number, entry.at)
            body = "".join(_group(kind, list(group)) for kind, group in _grouped(entry))
            margin = _margin(entry.request, prices) if entry.request else ""
            return (
                f'<article class="answer" id="m{number}">{head}'
                f'<div class="body">{body}</div>{margin}</article>'
            )
        case Aside():
            return _aside(entry, number)


def _head(level: str, who: str, number: int, at: int) -> str:
    when = moment(at)
    time = f"<time>{when}</time>" if when else ""
    return f'<header><{level}><a href="#m{number}">{who}</a></{level}>{time}</header>'


def _grouped(answer: TranscriptAnswer) -> groupby[type, Thinking | Text | TranscriptCall]:
    return groupby(answer.parts, key=type)


def _group(kind: type, parts: Sequence[Thinking | Text | TranscriptCall]) -> str:
    thoughts = [part for part in parts if isinstance(part, Thinking)]
    if thoughts:
        return _thoughts(thoughts)
    return "".join(
        _call(part)
        if isinstance(part, TranscriptCall)
        else f'<div class="prose" dir="auto">{rendered(part.text)}</div>'
        for part in parts
    )


def _thoughts(thoughts: list[Thinking]) -> str:
    name = "Thought" if len(thoughts) == 1 else f"{len(thoughts)} thoughts"
    texts = "".join(
        f'<div class="prose" dir="auto">{rendered(thought.text)}</div>' for thought in thoughts
    )
    gist = escaped(one_line(thoughts[0].text))
    return (
        f'<details class="thought"><summary><span class="name">{name}</span> '
        f'<span class="gist">{gist}</span></summary>{texts}</details>'
    )


def _call(call: TranscriptCall) -> str:
    diff = diff_of(call)
    hidden = SHOWN_BY_DIFF if diff else frozenset[str]()
    boxes = [_short(call, hidden)]
    boxes += [
        _box(*pair, "argument") for pair in call.long_arguments.items() if pair[0] not in hidden
    ]
    if diff:
        boxes.append(f"<h4>change</h4>{_diff(diff)}")
    names = ("result", "told to the model")
    boxes += [_box(name, text, "output") for name, text in zip(names, call.outputs, strict=False)]
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


def _box(name: str, text: str, kind: str) -> str:
    # A box that scrolls must be reachable by key. The line break: a browser drops the first.
    box = f'<pre class="{kind}" tabindex="0" dir="auto">\n{escaped(text)}</pre>'
    return f"<h4>{escaped(name)}</h4>{box}"


def _diff(diff: str) -> str:
    head, body = head_and_body(diff)
    files = "".join(_diff_line(line, "file") for line in head)
    lines = "".join(_diff_line(line, _MARKS.get(line[:1], "same")) for line in body)
    return f'<pre class="diff" tabindex="0">{files}{lines}</pre>'


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


def _aside(aside: Aside, number: int) -> str:
    name = escaped(_NAMES.get(aside.kind, aside.kind))
    if aside.kind in ("error", "warning", "permission"):
        text = f'<div class="said" dir="auto">{escaped(aside.text)}</div>'
        return (
            f'<section class="aside {aside.kind}" id="m{number}"><p class="name">{name}</p>'
            f"{text}</section>"
        )
    box = f'<pre class="output" tabindex="0" dir="auto">\n{escaped(aside.text)}</pre>'
    return (
        f'<section class="aside" id="m{number}"><details><summary><span class="name">{name}'
        f"</span></summary>{box}</details></section>"
    )
