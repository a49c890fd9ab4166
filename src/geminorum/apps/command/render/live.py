"""What people and programs see of a run: a view takes events as they come, and the result."""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from geminorum import Error, Event, PermissionRequest, Text, TextDelta, ToolResult, ToolUse
from geminorum.apps.command.failures import command_hint
from geminorum.apps.command.render.facts import facts_of, gist, written
from geminorum.apps.command.render.output import Showing, print_line
from geminorum.apps.command.render.style import arrow
from geminorum.errors import MissingResult, StoreError
from geminorum.events import encode
from geminorum.views.plain_text import printable_line

if TYPE_CHECKING:
    from decimal import Decimal

    from geminorum import Result
    from geminorum.apps.command.run.undo import Copies


class View(Protocol):
    """Shows one turn. What was on its way when the block is left is shown before."""

    @property
    def counts(self) -> bool:
        """Does it show, while the turn goes on, what was spent?"""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def show(self, event: Event) -> None: ...
    def show_spent(self, tokens: int, usd: Decimal | None) -> None: ...
    def show_stopping(self) -> None:
        """Shows that the agent tidies up after a Ctrl-C."""
        ...

    def finish(self, result: Result) -> None: ...


def view_for(
    transport: str,
    how: Showing,
    copies: Copies | None = None,
    *,
    brief: bool = False,
    advice: str = "Ctrl-C stops",
    asks_elsewhere: bool = False,
) -> View:
    """The view that fits what was asked for and where the output goes.

    `advice` is in the status line of a terminal. `asks_elsewhere`: questions wait in the inbox.
    """
    if how.json:
        return JsonView()
    if how.quiet:
        return QuietView()
    if not how.redraws:
        # The API saves no session that could be resumed.
        brief = brief or how.offline or transport == "api"
        return PlainView(brief=brief, asks_elsewhere=asks_elsewhere)
    from geminorum.apps.command.render.live_terminal import TerminalView

    return TerminalView(
        transport,
        offline=how.offline,
        copies=copies,
        brief=brief,
        advice=advice,
        asks_elsewhere=asks_elsewhere,
    )


class JsonView:
    """Our events as lines of JSON, for programs."""

    counts = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def show(self, event: Event) -> None:
        print_line(encode(event))

    def show_spent(self, tokens: int, usd: Decimal | None) -> None:
        """Nothing: the `done` tells it."""

    def show_stopping(self) -> None:
        """Nothing: the `done` comes."""

    def finish(self, result: Result) -> None:
        """Nothing: the `done` was the last line."""


class QuietView(JsonView):
    """The text and nothing else, as it is written."""

    def __init__(self) -> None:
        self._streamed = False
        self._open_line = False
        self._held = ""

    def __exit__(self, *_: object) -> None:
        if self._open_line or self._held:
            self._write("\n")
        sys.stdout.flush()

    def show(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._streamed = True
            self._write(event.text)
        elif isinstance(event, Text):
            # A transport that tells no pieces tells the whole.
            self._write(("" if self._streamed else event.text) + "\n" * self._needs_end(event.text))
            self._streamed = False
        elif isinstance(event, Error) and is_warning(event) and event.code == StoreError.code:
            _show_warning(event)  # What is not saved may be lost for good, and the exit code is 0.

    def _needs_end(self, text: str) -> bool:
        return not text.endswith("\n")

    def _write(self, text: str) -> None:
        ready, self._held = _in_whole_letters(self._held + text)
        if ready:
            sys.stdout.write(ready)
            sys.stdout.flush()
            self._open_line = not ready.endswith("\n")


class PlainView(QuietView):
    """For a pipe: the text on stdout, what happens beside it on stderr, without colour."""

    def __init__(self, brief: bool = False, asks_elsewhere: bool = False) -> None:
        super().__init__()
        self._brief, self._asks_elsewhere = brief, asks_elsewhere
        self._calls: dict[str | None, ToolUse] = {}

    def show(self, event: Event) -> None:
        super().show(event)
        match event:
            case ToolUse():
                self._calls[event.id] = event
            case ToolResult():
                self._show_result(event)
            case PermissionRequest() if self._asks_elsewhere:
                _write_aside(waits(event))
            case Error() if is_warning(event) and event.code != StoreError.code:
                _show_warning(event)
            case _:
                pass

    def finish(self, result: Result) -> None:
        for path in written(result.files):
            _write_aside(f"wrote {path}")
        _write_aside(" · ".join([result.status, *facts_of(result)]))
        if result.session_id and not self._brief:
            _write_aside(f"session {result.session_id}")

    def _show_result(self, result: ToolResult) -> None:
        use = self._calls.pop(result.id, None) or ToolUse(result.name or "tool", result.id)
        _write_aside(f"[{printable_line(use.name)} {gist(use.input)[:100]}] {result.status}")


def waits(request: PermissionRequest) -> str:
    """Where to answer a request that waits in the inbox."""
    call = f"{printable_line(request.name)} {gist(request.input)[:100]}".strip()
    return f"? {call} waits for an answer: geminorum inbox list"


def _show_warning(error: Error) -> None:
    _write_aside(f"! {error.message}")
    if hint := command_hint(error.hint):
        _write_aside(f"  {arrow(sys.stderr)} {hint}")


def is_warning(error: Error) -> bool:
    """Should it be shown when it arrives? The error that ends the run is shown once, at its end."""
    return error.recoverable and error.code != MissingResult.code


_UNFINISHED = re.compile(r"[\r\u0600-\u18ff\u200b-\u200d\u2190-\u2bff\ufe0f\U0001f000-\U000e007f]*")
_MOST_HELD = 100


def _in_whole_letters(text: str) -> tuple[str, str]:
    """The text up to where the next piece may still join on, and the rest: half an emoji is not
    printable."""
    match = _UNFINISHED.match(text[: -_MOST_HELD - 1 : -1])
    end = len(text) - (match.end() if match else 0)
    return text[:end], text[end:]


def _write_aside(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
