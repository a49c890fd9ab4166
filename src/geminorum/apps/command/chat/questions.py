"""Shows the change or the command that the agent wants, and asks the user."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text as Line

from geminorum import Allow, Deny, PermissionRequest
from geminorum.apps.command.render import events as shown
from geminorum.apps.command.render.facts import printable
from geminorum.apps.command.render.markdown import Indented
from geminorum.views.plain_text import printable_line, without_padding

if TYPE_CHECKING:
    from geminorum.apps.command.chat.lines import Lines
    from geminorum.apps.command.run.undo import Copies

WRITING = ("write_file", "replace", "edit")
_ROWS_OF_AN_ANSWER = 3
_MAX_SHOWN_BYTES = 16 * 1024 * 1024
_ASK = "y / n / a(lways) / what to do instead:\n> "


class Questions:
    """The `decide` of a chat. Every yes to a write takes a copy first, so that it can be undone."""

    def __init__(self, lines: Lines, copies: Copies, cwd: Path, approval: str | None) -> None:
        self._lines, self._copies, self._cwd = lines, copies, cwd
        self._approval = approval
        self._always: set[str] = set()
        self.pause: Callable[[str | None], AbstractContextManager[Console]] | None = None
        """Makes room on the terminal for a question about a call, while a turn is shown."""
        self.cancel: Callable[[], Awaitable[None]] | None = None
        """Stops the turn."""
        self.agent_is_told = False
        """Does the transport pass the reason of a no on to the agent?"""
        self._instead: str | None = None

    def take_typed(self) -> str | None:
        """Returns, once, the text typed in place of a yes or a no: it is the next prompt."""
        said, self._instead = self._instead, None
        return said

    async def decide(self, request: PermissionRequest) -> Allow | Deny:
        answer = await self._answer(request)
        if isinstance(answer, Allow) and request.name in WRITING:
            self._keep(request)
        return answer

    async def _answer(self, request: PermissionRequest) -> Allow | Deny:
        if self._is_allowed(request.name):
            return Allow()
        if not self._lines.interactive or self.pause is None:
            return Deny("there is nobody at the terminal to ask")
        with self.pause(request.id) as console:
            console.print(question(request, self._cwd))
            return await self._ask(request)

    def _is_allowed(self, tool: str) -> bool:
        edits = self._approval == "auto_edit" and tool in WRITING
        return tool in self._always or edits or self._approval == "yolo"

    async def _ask(self, request: PermissionRequest) -> Allow | Deny:
        try:
            typed = (await self._lines.answer(_ASK)).strip()
        except (EOFError, KeyboardInterrupt):
            if self.cancel is not None:
                await self.cancel()
            return Deny("the user stopped the turn")
        match typed.lower():
            case "y" | "yes":
                return Allow()
            case "a" | "always":
                # Not the transport's to remember: we go on being asked, and go on taking copies.
                self._always.add(request.name)
                return Allow()
            case "" | "n" | "no":
                return Deny("the user said no")
            case _:
                # What the agent does not hear now, the next prompt tells it.
                self._instead = None if self.agent_is_told else typed
                return Deny(f"the user said: {typed}")

    def _keep(self, request: PermissionRequest) -> None:
        path = request.input.get("file_path")
        if isinstance(path, str) and path:
            self._copies.keep(Path(self._cwd, path))


class Whole:
    """All of a question; one that is taller than the terminal says so at its end."""

    def __init__(self, *parts: RenderableType) -> None:
        self._parts = Group(*parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._parts
        rows = len(console.render_lines(self._parts, options, pad=False))
        if rows + _ROWS_OF_AN_ANSWER > console.height:
            yield Line(f"  (that was {rows} lines; scroll up to read all of them)", "bold yellow")


def question(request: PermissionRequest, cwd: Path) -> RenderableType:
    """What the agent wants to do, in full: a yes must not cover text that is cut off."""
    head = Line.assemble(("? ", "bold yellow"), (_on_a_line(request.name), "bold"))
    command = request.input.get("command")
    if isinstance(command, str):
        shell = Indented(Line(_exposed(command), "bold"), "    ", first="  $ ")
        return Whole(head, shell, *_rest(request.input, "command"))
    change = _change(request.input, cwd) if request.name in WRITING else None
    if change is None:
        return Whole(head, *(_rest(request.input) or _named(request.reason)))
    head.append(f" {_on_a_line(str(request.input.get('file_path', '')))}")
    body = shown.diff(*change, lines=None) or "  (nothing changes)"
    told = ("file_path", *shown.change_names(request.input))
    return Whole(head, body, *_rest(request.input, *told))


def _rest(arguments: dict[str, Any], *told: str) -> list[RenderableType]:
    """The arguments that were not shown yet: one of them may be the folder of a command."""
    left = {name: value for name, value in arguments.items() if name not in told}
    return [_argument(name, value) for name, value in left.items()]


def _argument(name: str, value: Any) -> RenderableType:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Indented(Line(f"{_on_a_line(name)}: {_exposed(text)}"), "    ", first="  ")


def _named(reason: str | None) -> list[RenderableType]:
    """What the agent calls it, where a transport tells no arguments."""
    return [_argument("it says", reason)] if reason else []


def _on_a_line(name: str) -> str:
    return without_padding(printable_line(name))


def _exposed(text: str) -> str:
    return without_padding(printable(text))


def _change(arguments: dict[str, Any], cwd: Path) -> tuple[str, str] | None:
    change = shown.asked_change(arguments)
    path = arguments.get("file_path")
    whole = shown.change_names(arguments) == ("content",)
    if change is None or not whole or not isinstance(path, str):
        return change
    file = Path(cwd, path)
    try:
        # The model names it: to open a pipe would wait for somebody to write.
        if not file.is_file() or file.stat().st_size > _MAX_SHOWN_BYTES:
            return change
        return file.read_bytes().decode(errors="replace"), change[1]
    except (OSError, ValueError):
        return change
