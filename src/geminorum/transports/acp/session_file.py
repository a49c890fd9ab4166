"""What the session file of a warm session tells, turn by turn: what the wire leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from geminorum.events import Event, ModelRequest, ToolResult, ToolUse
from geminorum.sessions.tailing import SessionTail
from geminorum.wire.acp.verdict import Round
from geminorum.wire.sessions.events import told_to_model
from geminorum.wire.sessions.records import SavedCall, SavedMessage, is_context, requests_of


class SavedAnswer(NamedTuple):
    """The response to a call as the model got it, from the tool or from the CLI."""

    id: str
    name: str
    text: str
    failed: bool


class AcpSessionFileFeed:
    """The second channel of a session; `begin` starts the next turn's page.

    One for all turns, since the CLI writes every tool call of a warm session into the message of
    the first: by its time stamp it would belong to a turn long past.
    """

    def __init__(
        self,
        home: Path,
        cwd: Path,
        session_id: str,
        named: Callable[[str], str] = str,
    ) -> None:
        """`named` gives a tool the name that the caller knows it by."""
        self._named = named
        self._tail = SessionTail(home, cwd)
        self._session_id = session_id
        self._seen: set[str] = set()
        self._calls: dict[str, SavedCall] = {}
        self._past: set[str] = set()
        """Calls of earlier turns."""
        self._answers: list[tuple[SavedAnswer, int]] = []
        """Each with the number of calls that were recorded before it."""
        self._rounds: list[list[ModelRequest]] = []
        self._answered = False
        """Has the last question to the model an answer?"""
        self._requests: list[ModelRequest] = []

    def begin(self) -> None:
        """What is there by now belongs to earlier turns."""
        self.read(thoroughly=True)
        self._answers, self._rounds, self._requests = [], [], []
        self._past |= self._calls.keys()
        self._calls.clear()

    @property
    def found(self) -> bool:
        return self._tail.found

    @property
    def requests(self) -> list[ModelRequest]:
        """The turn's requests that were answered by now, those of subagents too."""
        return self._requests

    @property
    def rounds(self) -> list[Round]:
        whole = [Round(tuple(requests)) for requests in self._rounds]
        if whole and not self._answered:
            whole[-1] = Round(whole[-1].requests, answered=False)
        return whole

    def read(self, *, thoroughly: bool = False) -> None:
        """Takes in what was written since the last look."""
        for message, by_subagent in self._tail.read(self._session_id, thoroughly=thoroughly):
            if by_subagent:
                self._requests += self._take_new_requests(message)
            else:
                self._take(message)

    def answers(self, has_ended: Callable[[str], bool] = lambda _: True) -> list[SavedAnswer]:
        """What the model was told since the last look, of calls that were never made.

        Those that were have a record before their answer; the wire tells of them, though perhaps
        in lines that are still to be read. So an answer waits until the wire has told the end of
        every call before it.
        """
        ready: list[SavedAnswer] = []
        while self._answers:
            answer, before = self._answers[0]
            is_made_up = answer.id not in self._calls
            if is_made_up and not all(map(has_ended, self._of_this_turn(before))):
                break
            ready += [answer] if is_made_up else []
            del self._answers[0]
        return ready

    def _of_this_turn(self, count: int) -> Iterator[str]:
        return (call for call in islice(self._calls, count) if call not in self._past)

    def lacks(self, events: list[Event]) -> bool:
        """Is something still to be written that belongs to these events?"""
        # Denied calls never stand in the file; those of unknown tools came from there.
        results = [
            one.id
            for one in events
            if isinstance(one, ToolResult) and one.content is None and one.error_type is None
        ]
        return self.found and any(call not in self._calls for call in results)

    def completed(self, event: Event) -> Event:
        """The event with its arguments, or with what the model was told."""
        if not isinstance(event, ToolUse | ToolResult):
            return event
        call = self._calls.get(event.id or "")
        if call is None:
            return event
        name = self._named(call.name)
        if isinstance(event, ToolUse):
            return msgspec.structs.replace(event, name=name, input=call.args or {})
        told = told_to_model(call)[0]
        shown = call.result_display if isinstance(call.result_display, str) else None
        output = event.output if event.output is not None else shown
        return msgspec.structs.replace(event, name=name, content=told, output=output)

    def _take(self, message: SavedMessage) -> None:
        self._calls |= {call.id: call for call in message.tool_calls or ()}
        if not message.id or message.id in self._seen or is_context(message):
            return
        if message.type == "user":
            self._seen.add(message.id)
            self._rounds.append([])
            self._answered = False
            before = len(self._calls)
            self._answers += [(answer, before) for answer in _answers_in(message.content)]
        self._answered = self._answered or message.type == "gemini"
        requests = self._take_new_requests(message)
        self._requests += requests
        if requests and self._rounds:
            self._rounds[-1] += requests

    def _take_new_requests(self, message: SavedMessage) -> list[ModelRequest]:
        """Each request once: a message is written again when something is added to it."""
        found = requests_of([message])
        fresh = [request for key, request in found.items() if key not in self._seen]
        self._seen |= found.keys()
        return fresh


def _answers_in(content: Any) -> list[SavedAnswer]:
    parts = content if isinstance(content, list) else []
    return [
        _answer(part)
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("functionResponse"), dict)
    ]


def _answer(part: dict[str, Any]) -> SavedAnswer:
    response = part["functionResponse"]
    text, failed = told_to_model(SavedCall(result=[part]))
    return SavedAnswer(str(response.get("id", "")), str(response.get("name", "")), text, failed)
