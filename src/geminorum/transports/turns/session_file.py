"""What the CLI's session file tells of a run as it goes: tokens, thoughts, contents of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from geminorum.events import Done, Event, ModelRequest, TextDelta, Thinking, ToolResult, ToolUse
from geminorum.sessions.tailing import SessionTail
from geminorum.wire.sessions.events import events_of, told_to_model
from geminorum.wire.sessions.records import SavedCall, SavedMessage, requests_of

_LOOKS, _MOMENT = 250, 0.004
"""How often, and how long each time, to wait for the session file to catch up with the stream: a
loaded machine takes its time."""


class SessionFileFeed:
    """The second channel of a run: each request, thought and tool result, once."""

    def __init__(
        self, home: Path, cwd: Path, resumed: str | None = None, imported: Path | None = None
    ) -> None:
        """Messages that `resumed`, a session, or `imported`, a file, holds by now belong to
        earlier runs."""
        self._tail = SessionTail(home, cwd)
        if resumed is not None:
            self._tail.skip_present(resumed)
        if imported is not None:
            self._tail.skip_import(imported)
        self._requests: dict[str, ModelRequest] = {}
        self._calls: dict[str, SavedCall] = {}
        self._thinking: dict[str, SavedMessage] = {}
        """The agent's messages whose thoughts were not handed out yet."""
        self._handed_out: set[str] = set()

    @property
    def answered(self) -> list[ModelRequest]:
        """The requests that were answered, as of the last look, those of subagents too."""
        return list(self._requests.values())

    def requests(self, session_id: str | None, *, thoroughly: bool = False) -> list[ModelRequest]:
        """Those that were answered by now, in that order."""
        self.read(session_id, thoroughly=thoroughly)
        return self.answered

    def read(self, session_id: str | None, *, thoroughly: bool = False) -> None:
        """Takes in what was written since the last look."""
        if session_id is None:
            return
        for message, by_subagent in self._tail.read(session_id, thoroughly=thoroughly):
            self._requests |= requests_of([message])
            if not by_subagent and message.id:
                self._calls |= {call.id: call for call in message.tool_calls or ()}
                # A message that the CLI has rebuilt on a resume has no thoughts of its own.
                if message.thoughts and message.id not in self._handed_out:
                    self._thinking[message.id] = message

    async def catch_up(self, session_id: str | None, events: list[Event]) -> None:
        """Waits until the file has what belongs to these events."""
        for _ in range(_LOOKS):
            self.read(session_id)
            if not self.lacks(events):
                return
            await asyncio.sleep(_MOMENT)

    def lacks(self, events: list[Event]) -> bool:
        """Is something still to be written that belongs to these events?"""
        if not self._tail.found:
            return False
        # By type, not isinstance: most of a long stream are deltas, and this passes them all.
        results = [event.id for event in events if type(event) is ToolResult and event.id]
        return any(call not in self._calls for call in results)

    def completed(self, events: list[Event]) -> list[Event]:
        """The events with what the stream leaves out: thoughts, and what the model was told."""
        if not self._tail.found:
            return events
        # Deltas are the bulk of every stream, and nothing is added to them.
        return [
            added
            for event in events
            for added in ((event,) if type(event) is TextDelta else self._completed(event))
        ]

    def _completed(self, event: Event) -> Iterator[Event]:
        if isinstance(event, ToolUse | ToolResult):
            yield from self._take_thoughts(
                [key for key in self._thinking if self._made(key, event.id)]
            )
        elif isinstance(event, Done):
            yield from self._take_thoughts([*self._thinking])
        call = self._calls.get(event.id or "") if isinstance(event, ToolResult) else None
        told = None if call is None else told_to_model(call)[0]
        yield event if told is None else msgspec.structs.replace(event, content=told)

    def _made(self, message_id: str, call_id: str | None) -> bool:
        calls = self._thinking[message_id].tool_calls or ()
        return any(call.id == call_id for call in calls)

    def _take_thoughts(self, message_ids: list[str]) -> Iterator[Event]:
        for key in message_ids:
            self._handed_out.add(key)
            told = events_of(self._thinking.pop(key), None)
            yield from (event for event in told if isinstance(event, Thinking))
