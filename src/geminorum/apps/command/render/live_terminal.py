"""A run on a terminal: finished parts are printed, the rest is redrawn below them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment, Segments
from rich.spinner import Spinner
from rich.text import Text as Line

from geminorum import (
    Error,
    Event,
    Init,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
)
from geminorum.apps.command.render import events as shown
from geminorum.apps.command.render.keys import Settings, echo_off, forget_typed, put_back
from geminorum.apps.command.render.live import is_warning, waits
from geminorum.apps.command.render.output import console

if TYPE_CHECKING:
    from decimal import Decimal

    from geminorum import Result
    from geminorum.apps.command.run.undo import Copies

_WRITING = ("write_file", "replace", "edit")
_REDRAWN = 20_000
"""Letters of an unfinished answer that are laid out again at each redraw."""


class TerminalView:
    """One turn. `paused()` makes room for a question."""

    counts = True

    def __init__(
        self,
        transport: str,
        *,
        offline: bool = False,
        copies: Copies | None = None,
        brief: bool = False,
        advice: str = "Ctrl-C stops",
        asks_elsewhere: bool = False,
    ) -> None:
        self._transport, self._offline, self._copies = transport, offline, copies
        self._asks_elsewhere = asks_elsewhere
        self._brief = brief
        """Without heading and session: a chat has told them."""
        self._console = console()
        self._keyboard: Settings = None
        self._spinner = Spinner("dots", style="cyan")
        self._cwd = "."
        self._said: list[str] = []
        self._calls: dict[str | None, ToolUse] = {}
        self._asked: set[str | None] = set()
        self._count = 0
        self._tokens = 0
        self._usd: Decimal | None = None
        self._advice = advice
        self._began = time.monotonic()

    def _new_live(self) -> Live:
        return Live(
            self,
            console=self._console,
            transient=True,
            refresh_per_second=10,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def _start(self) -> None:
        self._live = self._new_live()
        self._keyboard = echo_off()
        self._live.start()

    def _stop(self) -> None:
        try:
            self._live.stop()
        finally:
            put_back(self._keyboard)

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        # Cleared first: the last redraw would leave the unfinished text on the screen twice.
        rest = "".join(self._said)
        self._said.clear()
        self._stop()
        if rest.strip():
            self._print(shown.said(rest))

    @contextmanager
    def pause(self, call_id: str | None) -> Iterator[Console]:
        """Frees the terminal for a question about a call, which is not shown in full again."""
        self._asked.add(call_id)
        self._stop()
        forget_typed()
        try:
            yield self._console
        finally:
            self._start()

    def show(self, event: Event) -> None:
        match event:
            case Init():
                self._show_heading(event)
            case TextDelta():
                self._said.append(event.text)
            case Text():
                self._said.clear()
                self._print(shown.said(event.text))
            case Thinking():
                self._print(shown.thought(event.text))
            case ToolUse():
                self._calls[event.id] = event
                self._count += 1
            case ToolResult():
                self._show_result(event)
            case PermissionRequest() if self._asks_elsewhere:
                self._print(Line(waits(event), "yellow"))
            case Error() if is_warning(event):
                self._print(shown.warning(event))
            case _:
                pass

    def show_spent(self, tokens: int, usd: Decimal | None) -> None:
        """Shows tokens and money so far in the status line."""
        self._tokens, self._usd = tokens, usd

    def show_stopping(self) -> None:
        self._advice = "stopping; Ctrl-C kills"

    def finish(self, result: Result) -> None:
        # The API saves no session that could be resumed.
        brief = self._brief or self._offline or self._transport == "api"
        self._console.print(shown.summary(result, brief=brief))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Drawn by a thread of rich's, while events go on to come.
        calls = list(self._calls.values())
        room = max(3, console.size.height - len(calls) - 3)
        yield from self._unfinished(console, options, room)
        for use in calls:
            yield self._spinning(console, shown.call_running(use))
        seconds = time.monotonic() - self._began
        line = shown.status_line(seconds, self._count, self._tokens, self._usd, self._advice)
        yield line if calls else self._spinning(console, line)

    def _spinning(self, console: Console, line: Line) -> Line:
        frame = self._spinner.render(console.get_time())
        assert isinstance(frame, Line)
        return Line.assemble(frame, " ", line, no_wrap=True, overflow="ellipsis")

    def _unfinished(
        self, console: Console, options: ConsoleOptions, room: int
    ) -> Iterator[RenderableType]:
        """The end of what is being said, as much of it as fits."""
        text = "".join(self._said)[-_REDRAWN:]
        if not text.strip():
            return
        lines = console.render_lines(shown.said(text), options, pad=False)[-room:]
        yield Segments([part for line in lines for part in [*line, Segment.line()]])

    def _show_heading(self, init: Init) -> None:
        self._cwd = init.cwd or "."
        if not self._brief:
            self._print(shown.heading(init, self._transport, self._offline))

    def _show_result(self, result: ToolResult) -> None:
        use = self._calls.pop(result.id, None) or ToolUse(result.name or "tool", result.id)
        parts = [shown.call_ended(use, result), self._body(use, result)]
        self._print(Group(*(part for part in parts if part is not None)))

    def _body(self, use: ToolUse, result: ToolResult) -> RenderableType | None:
        if use.name in _WRITING and result.status == "success":
            return None if use.id in self._asked else self._diff(use)
        return shown.output_of(result)

    def _diff(self, use: ToolUse) -> RenderableType | None:
        change = shown.asked_change(use.input)
        path = use.input.get("file_path")
        kept = self._copies.before(Path(self._cwd, str(path))) if self._copies else None
        if kept is not None and use.name == "write_file" and change:
            change = (kept.bytes or b"").decode(errors="replace"), change[1]
        return shown.diff(*change) if change else None

    def _print(self, what: RenderableType) -> None:
        self._console.print(what)
