"""Saved sessions to what people read: a listing, the words around a find, a line for an event."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text as Styled

from geminorum.apps.command.flags.moments import size_of, when
from geminorum.apps.command.render.facts import printable
from geminorum.apps.command.render.tables import Column, Sheet, flat
from geminorum.events import Error, Event, Text, Thinking, ToolResult, ToolUse, UserMessage
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.render import events as show
    from geminorum.apps.command.render import markdown
    from geminorum.sessions import SessionInfo
else:
    # Only a whole conversation needs them, and Markdown with its colours takes long to load.
    show = lazy_module("geminorum.apps.command.render.events")
    markdown = lazy_module("geminorum.apps.command.render.markdown")

SHORT_ID = 8
_AROUND = 40
_MOST_FINDS = 3


def listing(found: Sequence[SessionInfo], *, more: str | None, everywhere: bool) -> Sheet:
    """A table of sessions; with whole ids in a pipe, where a program may need them."""
    is_screen = sys.stdout.isatty()
    folder = [Column("folder", style="dim", spare=2, elastic=True)] if everywhere else []
    columns = [
        Column("id", style="cyan"),
        Column("when"),
        *folder,
        Column("size", right=True, style="dim", spare=3),
        Column("title", elastic=True),
    ]
    rows = [_row(info, is_screen, bool(folder)) for info in found]
    return Sheet(columns, rows, notes=[more] if more else [])


def _row(info: SessionInfo, is_screen: bool, with_folder: bool) -> list[str]:
    folder = [info.cwd.name if info.cwd and is_screen else str(info.cwd or "")]
    title = f"({info.problem})" if info.problem else titled(info) or "(no messages)"
    name = _name(info, is_screen)
    return [name, when(info.updated), *(folder if with_folder else []), size_of(info.size), title]


def _name(info: SessionInfo, is_screen: bool) -> str:
    """What to type: a screen has no room for more than the beginning of an id."""
    if not info.id:
        return info.path.name if is_screen else str(info.path)
    return info.id[:SHORT_ID] if is_screen else info.id


def titled(info: SessionInfo) -> str:
    """The title, and in front of it, where it is not cut off, that this is a fork."""
    mark = f"(fork of {info.forked_from[:SHORT_ID]}) " if info.forked_from else ""
    return f"{mark}{info.title}"


def heading(info: SessionInfo) -> Styled:
    name = (_name(info, sys.stdout.isatty()), "cyan")
    return Styled.assemble(
        name, (f"  {when(info.updated)}  ", "dim"), (_flat(titled(info)), "bold")
    )


def snippets(events: Iterable[Event], text: str, width: int | None = None) -> Iterator[Styled]:
    """The first finds, each with the words around it, as many as `width` has room for."""
    said = (event for event in events if isinstance(event, Text | UserMessage))
    wanted = re.compile(re.escape(text), re.IGNORECASE)
    finds = ((event, find) for event in said if (find := wanted.search(event.text)))
    for _, (event, find) in zip(range(_MOST_FINDS), finds, strict=False):
        yield _snippet("you" if isinstance(event, UserMessage) else "gemini", find, width)


def _snippet(who: str, find: re.Match[str], width: int | None) -> Styled:
    label, found = f"  {who}: ", _flat(find[0])
    # A sign on each side stands for what is left out; what one side does not need, the other has.
    room = 2 * _AROUND if width is None else width - cell_len(label) - cell_len(found) - 2
    before = _flat(find.string[: find.start()][-room:]) if room > 0 else ""
    after = _flat(find.string[find.end() :][: max(room, 0)])
    left = _fitting(before[::-1], room - min(cell_len(after), room // 2))[::-1]
    right = _fitting(after, room - cell_len(left))
    more = ("…" * (len(left) < find.start()), "…" * (find.end() + len(right) < len(find.string)))
    return Styled.assemble((label, "dim"), more[0], left, (found, "bold underline"), right, more[1])


def _fitting(text: str, room: int) -> str:
    """As much of the beginning as `room` columns hold; some letters take two."""
    taken = itertools.accumulate(map(cell_len, text))
    return text[: sum(1 for columns in taken if columns <= room)]


def page(events: Iterable[Event]) -> Iterator[RenderableType]:
    """A whole conversation for a terminal; a call is shown where its result comes."""
    uses: dict[str | None, ToolUse] = {}
    for event in events:
        match event:
            case UserMessage():
                yield ""
                yield markdown.Indented(Styled(printable(event.text), "bold cyan"), first="> ")
            case Text():
                yield show.said(event.text)
            case Thinking():
                yield show.thought(event.text)
            case ToolUse():
                uses[event.id] = event
            case ToolResult():
                yield from _call(uses.pop(event.id, ToolUse(event.name or "tool")), event)
            case Error():
                yield show.warning(event)
    yield from (show.call_running(use) for use in uses.values())


def _call(use: ToolUse, result: ToolResult) -> Iterator[RenderableType]:
    yield show.call_ended(use, result)
    if (output := show.output_of(result)) is not None:
        yield output


class Summary(NamedTuple):
    """One event as text, for `sessions tail`."""

    label: str
    colour: str
    text: str
    style: str = ""

    @property
    def line(self) -> str:
        return f"{self.label:<8}{self.text}"

    def drawn(self) -> RenderableType:
        """The same on a terminal: what wraps goes on below its beginning."""
        label = Styled(f"{self.label:<8}", self.colour)
        return markdown.Indented(Styled(self.text, self.style), " " * 8, first=label)


def summarize(event: Event) -> Summary | None:
    """An event in a few words; None for what says nothing new."""
    match event:
        case UserMessage():
            return Summary("you", "cyan", _safe(event.text))
        case Text():
            return Summary("gemini", "green", _safe(event.text))
        case Thinking():
            return Summary("thought", "dim", _flat(event.text), "dim")
        case ToolUse():
            return Summary("tool", "yellow", f"{_flat(event.name)} {brief(event.input)}")
        case ToolResult():
            output = cut(_flat(str(event.output or "")), 100)
            return Summary("", "", f"{event.status}  {output}".rstrip(), "dim")
        case Error():
            return Summary("error", "red", _safe(event.message))
        case _:
            return None


def brief(input: dict[str, Any]) -> str:
    """A call's arguments in one short line."""
    words = (f"{_flat(key)}={cut(_flat(str(value)), 60)}" for key, value in input.items())
    return cut(" ".join(words), 140)


def _flat(text: str) -> str:
    # The ends stay: a find may begin or end at a space.
    return _safe(text.replace("\r", " ").replace("\n", " "))


def _safe(text: str) -> str:
    """Without what would make a terminal do things: models and files may say anything."""
    return printable(text)


def label_of(one: SessionInfo | Path) -> str:
    """A session in a question: short enough that nobody loses sight of what is asked."""
    if isinstance(one, Path):
        return str(one)
    return f"{one.id or one.path}  {cut(flat(one.title), 60)}"


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
