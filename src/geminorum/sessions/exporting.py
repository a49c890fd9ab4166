"""Exports a conversation as text in one of five formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from geminorum.cost import PriceBook
from geminorum.errors import InvalidOptions
from geminorum.events import Event, encode
from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.reading import Session

if TYPE_CHECKING:
    from geminorum.views import html, markdown, messages, sharegpt
else:
    html = lazy_module("geminorum.views.html")
    markdown = lazy_module("geminorum.views.markdown")
    messages = lazy_module("geminorum.views.messages")
    sharegpt = lazy_module("geminorum.views.sharegpt")


Format: TypeAlias = Literal["markdown", "html", "jsonl", "claude", "sharegpt"]
Source: TypeAlias = Session | Iterable[Event]


def export(
    source: Source,
    format: Format = "markdown",
    *,
    title: str | None = None,
    prices: PriceBook | None = None,
) -> str:
    """Exports a saved session or the events of a run.

    "markdown" and "html" are for people and take a `title` (default: the first prompt) and `prices`
    (default: list prices). "jsonl" writes geminorum's events and "claude" Claude-format messages,
    one per line; "sharegpt" writes the whole conversation on one line.
    """
    name = title or (source.title if isinstance(source, Session) else None)
    if format == "markdown":
        return markdown.document(_events(source), title=name, prices=prices)
    if format == "html":
        return html.page(_events(source), title=name, prices=prices)
    if format not in _DATA:
        raise InvalidOptions(
            f"there is no format {format!r}", hint=f"one of {', '.join(get_args(Format))}"
        )
    return _DATA[format](source)


def _events(source: Source) -> Iterable[Event]:
    return source.events() if isinstance(source, Session) else source


def _jsonl(source: Source) -> str:
    return "".join(f"{encode(event).decode()}\n" for event in _events(source))


def _claude(source: Source) -> str:
    return "".join(
        f"{msgspec.json.encode(message).decode()}\n" for message in messages.claude(source)
    )


def _sharegpt(source: Source) -> str:
    return msgspec.json.encode(sharegpt.conversation(_events(source))).decode() + "\n"


_DATA: dict[str, Callable[[Source], str]] = {
    "jsonl": _jsonl,
    "claude": _claude,
    "sharegpt": _sharegpt,
}
