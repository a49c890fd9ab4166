"""What a warm CLI tells of a turn, to events: all but the `Done`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec
from msgspec import Raw

from geminorum.decisions import CANCELLED, Allow, AllowAlways, Decision
from geminorum.decisions import decided as decided_event
from geminorum.events import (
    Error,
    Event,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Unknown,
)
from geminorum.hints import advice
from geminorum.wire.acp.protocol import (
    CallBegun,
    CallEnded,
    Chunk,
    Commands,
    Question,
    ThoughtChunk,
    ToolCallUpdate,
    update_of,
)
from geminorum.wire.broken_json import mended
from geminorum.wire.callbacks.mcp import full_name
from geminorum.wire.notices import ALLOW_BEFOREHAND, NOBODY_TO_ASK
from geminorum.wire.surrogates import PairJoiner

SHELL = "run_shell_command"
_MODE = re.compile(r"\[MODE_UPDATE\] \w+")
_THOUGHT = re.compile(r"\*\*(.*?)\*\*\n(.*)", re.S)
_SHELL_NOTE = re.compile(
    r"\[(?:current working directory .*?|in (?P<dir_path>.*?))\]"
    r"(?: \((?P<description>.*)\))?(?: \[back.*)?"
)
_MAX_NOTE = 4_096
"""Each bracket may be the one that ends the folder, so a note without end would take forever."""
_DENIED = ("denied by policy", "requires user confirmation")


class AcpDecoder:
    """One turn's updates to events. Remembers what the verdict asks for afterwards."""

    def __init__(
        self,
        session_id: str | None,
        *,
        is_refused: Callable[[str], bool] = lambda tool: False,
        own: Collection[str] = (),
        named: Callable[[str], str] = str,
    ) -> None:
        """`own` are the tools of this process, as the caller named them; `named` gives any tool the
        name that the caller knows it by."""
        self.session_id = session_id
        self._is_refused = is_refused
        self._own, self._named = own, named
        self._text: list[str] = []
        self._joiner = PairJoiner()
        self._open: dict[str, ToolUse] = {}
        """Calls that were begun and have not ended."""
        self._asked: dict[str | None, PermissionRequest] = {}
        """Requests without a decision so far."""
        self._refused: dict[str, ToolResult] = {}
        """Results that we know of; what the model is told stands in the next request."""
        self._told: set[str] = set()
        self._known: set[str] = set()
        """Calls whose arguments the wire itself has told."""
        self._warned = False
        self.tool_uses = 0
        self.spoke_last = False
        """Did the model speak after its last tool?"""
        self.unread: dict[str, None] = {}
        """The kinds of what could not be read, in order."""

    @property
    def tool_runs(self) -> bool:
        return bool(self._open)

    def has_ended(self, call_id: str) -> bool:
        """Has the wire told of this call, to its end?"""
        return call_id in self._told and call_id not in self._open

    def update(self, raw: Raw, at: int, halved: str | None = None) -> list[Event]:
        """The events of one update; `halved` is its text with half a surrogate pair in it."""
        update, common = update_of(raw), self._common(at, raw)
        match update:
            case Chunk(content=block) if _MODE.fullmatch(block.text):
                return [Unknown(kind="mode_update", **common)]
            case Chunk(content=block):
                self.spoke_last = self.spoke_last or bool(block.text.strip())
                return self._add_text(
                    self._joiner.add(block.text if halved is None else halved), common
                )
            case ThoughtChunk(content=block):
                return [*self.flush(at), Thinking(_thought(block.text), **common)]
            case ToolCallUpdate(status="completed" | "failed"):
                return self._end_call(update, common)
            case CallBegun():
                return self._start_call(update, common)
            case CallEnded(status="pending" | "in_progress"):
                return []
            case CallEnded():
                return self.unknown("tool_call_update", raw, at)
            case Commands():
                return []
            case _:
                return self.unknown(str(update), raw, at)

    def unknown(self, kind: str, raw: Raw, at: int) -> list[Event]:
        """What a newer CLI says in words of its own, kept whole."""
        self.unread[kind] = None
        return [Unknown(kind=kind, **self._common(at, raw))]

    def question(self, question: Question, raw: Raw, at: int) -> PermissionRequest:
        """What `decide` is asked."""
        call = question.tool_call
        self._note(call)
        return PermissionRequest(
            self._name(call),
            call.tool_call_id,
            told_input(call),
            reason=call.title or None,
            **self._common(at, raw),
        )

    def open_request(self, request: PermissionRequest, at: int) -> list[Event]:
        """Emits the request, which is open until `close_request` or `close`."""
        self._asked[request.id] = request
        return [*self.flush(at), request]

    def close_request(
        self, request: PermissionRequest, decision: Decision, at: int, *, asked: bool = True
    ) -> list[Event]:
        """Emits what follows a request; nothing if the turn has closed it. A refused call has no
        result of its own on the wire."""
        if self._asked.pop(request.id, None) is None:
            return []
        events = [*self.flush(at), decided_event(request, decision, at)]
        common = self._common(at)
        # The question is all that the wire says about the call before it runs.
        asked_in = common if request.frame is msgspec.UNSET else {**common, "frame": request.frame}
        use = self._use(request.name, request.id or "", request.input, asked_in)
        if isinstance(decision, Allow | AllowAlways):
            self._open[request.id or ""] = use
            return [*events, use]
        if not asked and not self._warned:
            self._warned = True
            events.append(_nobody_to_ask(request.name, common))
        why = decision.reason or "refused"
        self._refused[request.id or ""] = ToolResult(
            request.id, request.name, "denied", why, error_type="permission_denied", **common
        )
        return [*events, use]

    def add_unseen(self, call_id: str, name: str, told: str, failed: bool, at: int) -> list[Event]:
        """Adds a call whose answer only the session file has: the wire is silent about refused and
        about unknown tools."""
        if (refused := self._refused.pop(call_id, None)) is not None:
            return [msgspec.structs.replace(refused, content=told)]
        if call_id in self._told:
            return []
        common, full = self._common(at), name
        name = self._named(name)
        use = self._use(name, call_id, {}, common)
        status: Literal["success", "error", "denied"] = "error" if failed else "success"
        hidden = failed and (self._is_refused(full) or self._is_refused(name))
        result = ToolResult(
            call_id,
            name,
            "denied" if hidden else status,
            told,
            error_type="tool_not_registered" if failed else None,
            content=told,
            **common,
        )
        return [*self.flush(at), use, result]

    def close(self, at: int) -> list[Event]:
        """What was still open when the turn ended."""
        events = self.flush(at)
        for request in [*self._asked.values()]:
            events += self.close_request(request, CANCELLED, at)
        events += self._refused.values()
        self._refused.clear()
        self._open.clear()
        return events

    def flush(self, at: int) -> list[Event]:
        """End the message that the chunks were making."""
        events = self._add_text(self._joiner.take_rest(), self._common(at))
        text = "".join(self._text)
        self._text.clear()
        return [*events, Text(text, **self._common(at))] if text else []

    def _add_text(self, text: str, common: dict[str, Any]) -> list[Event]:
        self._text.append(text)
        return [TextDelta(text, **common)] if text else []

    def lacks_input(self, event: Event) -> bool:
        """Is it a call that still runs, and whose arguments only the session file will tell?"""
        return isinstance(event, ToolUse) and event.id in self._open and event.id not in self._known

    def _start_call(self, call: ToolCallUpdate, common: dict[str, Any]) -> list[Event]:
        self._note(call)
        use = self._use(self._name(call), call.tool_call_id, told_input(call), common)
        self._open[call.tool_call_id] = use
        return [*self.flush(common["timestamp"]), use]

    def _use(
        self, name: str, call_id: str, told: dict[str, Any], common: dict[str, Any]
    ) -> ToolUse:
        self._told.add(call_id)
        self.tool_uses += 1
        self.spoke_last = False
        return ToolUse(name, call_id, told, **common)

    def _end_call(self, call: ToolCallUpdate, common: dict[str, Any]) -> list[Event]:
        if (refused := self._refused.pop(call.tool_call_id, None)) is not None:
            # Our own function refused it, since the question could not tell its arguments.
            return [msgspec.structs.replace(refused, content=call.text or None)]
        begun: list[Event] = []
        if self._open.pop(call.tool_call_id, None) is None:
            # Bad arguments, or a policy that says no: the first word is the last.
            begun = self._start_call(call, common)
            self._open.pop(call.tool_call_id)
        result = ToolResult(
            call.tool_call_id, self._name(call), _status(call), call.text or None, **common
        )
        return [*begun, result]

    def _note(self, call: ToolCallUpdate) -> None:
        shell = call.name == SHELL and bool(told_input(call))
        if shell or (call.name.startswith("mcp_") and not omits_input(call)):
            self._known.add(call.tool_call_id)

    def _name(self, call: ToolCallUpdate) -> str:
        """As the caller wrote it. A name may have the two lines in it that end a name in an id."""
        begins = call.tool_call_id.startswith
        mine = [name for name in self._own if begins(f"{full_name(name)}__")]
        return max(mine, key=len, default=self._named(call.name))

    def _common(self, at: int, raw: Raw | None = None) -> dict[str, Any]:
        common: dict[str, Any] = {"timestamp": at, "session_id": self.session_id}
        return common if raw is None else {**common, "frame": raw}


def told_input(call: ToolCallUpdate) -> dict[str, Any]:
    """What the wire tells of a call's arguments, in the tool's own words where it can."""
    if call.kind == "execute" and call.name == SHELL:
        note = _SHELL_NOTE.fullmatch(call.text) if len(call.text) <= _MAX_NOTE else None
        about = note.groupdict() if note else {}
        return {"command": call.title, **{key: value for key, value in about.items() if value}}
    if (diff := call.diff) is not None:
        return _edit(call.name, diff.path, diff.old_text or "", diff.new_text or "")
    if call.name.startswith("mcp_"):
        return _arguments(call.text) or {}
    paths = [place.path for place in call.locations or () if place.path]
    return {"file_path": paths[0]} if len(paths) == 1 else {}


def omits_input(call: ToolCallUpdate) -> bool:
    """Are the arguments of a server's tool too long for the wire to tell them?"""
    return call.name.startswith("mcp_") and _arguments(call.text) is None


def _edit(tool: str, path: str, before: str, after: str) -> dict[str, Any]:
    if tool == "write_file":
        return {"file_path": path, "content": after}
    return {"file_path": path, "old_content": before, "new_content": after}


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        arguments, _ = mended(text.encode())
    except (ValueError, RecursionError):
        return None  # Too long to be told.
    return arguments if isinstance(arguments, dict) else None


def _thought(text: str) -> str:
    found = _THOUGHT.fullmatch(text)
    if found is None:
        return text
    return f"{found[1]}: {found[2]}" if found[1] else found[2]


def _status(call: ToolCallUpdate) -> Literal["success", "error", "denied"]:
    if call.status == "completed":
        return "success"
    return "denied" if any(words in call.text for words in _DENIED) else "error"


def _nobody_to_ask(tool: str, common: dict[str, Any]) -> Error:
    return Error(
        f"{tool} needs approval, and there is nobody to ask: refused",
        NOBODY_TO_ASK,
        recoverable=True,
        hint=advice("[pass {Acp.decide=…}, or ]{allow}", allow=ALLOW_BEFOREHAND),
        **common,
    )
