"""A standalone HTML page from events: no scripts, nothing to load."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from geminorum.cost import PriceBook
from geminorum.events import Event, UserMessage
from geminorum.views.html.bill import bill
from geminorum.views.html.entries import Limits, diff_html, entry_html
from geminorum.views.html.prose import escaped
from geminorum.views.transcript import Entry, Transcript, one_line, transcript_of

__all__ = ["Limits", "diff_html", "entry_html", "page"]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LONG = 4
"""From so many prompts on, there is a table of contents."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="geminorum">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#conversation">Skip to the conversation</a>
<header class="top">
<p class="kind">Gemini session</p>
<h1 dir="auto">{title}</h1>
<dl class="facts">{facts}</dl>
</header>
{contents}<main id="conversation" tabindex="-1">
{entries}
</main>
<footer>
{bill}<p>Exported by geminorum. This page loads nothing and runs nothing.</p>
</footer>
</body>
</html>
"""


def page(
    events: Iterable[Event], *, title: str | None = None, prices: PriceBook | None = None
) -> str:
    """Returns the conversation as a page to read, keep, send and print."""
    transcript = transcript_of(events, title)
    return _PAGE.format(
        policy=POLICY,
        style=files(__name__).joinpath("page.css").read_text(encoding="utf-8"),
        title=escaped(transcript.title),
        facts=_facts(transcript.facts(prices)),
        contents=_contents(transcript.entries),
        entries=_entries(transcript, prices),
        bill=bill(transcript, prices),
    )


def _facts(facts: dict[str, str]) -> str:
    return "".join(
        f'<div class="{name.lower()}"><dt>{name}</dt><dd>{escaped(value)}</dd></div>'
        for name, value in facts.items()
    )


def _contents(entries: list[Entry]) -> str:
    asked = [(n, one) for n, one in enumerate(entries, 1) if isinstance(one, UserMessage)]
    if len(asked) < _LONG:
        return ""
    rows = "".join(
        f'<li><a href="#m{number}" dir="auto">{escaped(one_line(entry.text))}</a></li>'
        for number, entry in asked
    )
    return (
        '<nav class="contents" aria-labelledby="contents">'
        f'<h2 id="contents">Contents</h2><ol>{rows}</ol></nav>\n'
    )


def _entries(transcript: Transcript, prices: PriceBook | None) -> str:
    rows = [entry_html(entry, n, prices) for n, entry in enumerate(transcript.entries, 1)]
    return "\n".join(rows) or '<p class="nothing">Nobody said anything.</p>'
