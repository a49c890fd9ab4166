"""Passes the requests of the CLI's hook to `decide`, and puts them in order into the stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Any

import msgspec

from geminorum.decisions import Decision, Decisions, Deny, decided
from geminorum.events import (
    Done,
    Event,
    PermissionDecision,
    PermissionRequest,
    ToolResult,
    ToolUse,
)
from geminorum.runtime.interrupts import OnInterrupt, ignore_interrupt
from geminorum.transports.turns.outbox import now
from geminorum.wire.callbacks.hook import HookCall, hook_answer, hook_call
from geminorum.wire.callbacks.mcp import full_name, own_name

_TOO_LATE = Deny("the run was stopped")


class _Question(msgspec.Struct, eq=False):
    """A request on its way to the stream, and the decision once there is one."""

    request: PermissionRequest
    decision: PermissionDecision | None = None
    is_told: bool = False
    """Is the request in the stream?"""

    def decide(self, decision: Decision) -> None:
        self.decision = decided(self.request, decision, now())

    def take(self) -> list[Event]:
        """What is to be told and was not."""
        told: list[Event] = [] if self.is_told else [self.request]
        self.is_told = True
        if self.decision is None:
            return told
        # The id may have come after the decision.
        return [*told, msgspec.structs.replace(self.decision, id=self.request.id)]


class PermissionHook:
    """One run's questions; `answer` is a handler for a `Loopback`."""

    def __init__(
        self,
        decisions: Decisions,
        pattern: str,
        on_change: Callable[[], None],
        own: Collection[str] = (),
        on_allowed: Callable[[str, dict[str, Any]], None] = lambda name, arguments: None,
        on_interrupt: OnInterrupt = ignore_interrupt,
    ) -> None:
        """`pattern` is for the tools asked about, `own` are functions of the caller's, as the
        caller named them; `on_change` is called with something to tell, `on_allowed` with each
        call of a function that may run now, `on_interrupt` with what whoever decides raised for
        the whole program."""
        self._decisions, self._on_change, self._on_allowed = decisions, on_change, on_allowed
        self._on_interrupt = on_interrupt
        self._own = {name: full_name(name) for name in own}
        self._matcher = re.compile(pattern)
        self._pending: set[asyncio.Future[Decision]] = set()
        self._is_held = self._stopped = False
        self.evaded = False
        """Did a tool run without the request that it needs?"""
        self._uses: list[ToolUse] = []
        """Tool calls whose request has not arrived yet."""
        self._questions: list[_Question] = []
        """Requests that are open, or of which the stream does not know everything yet."""
        self._nameless = count(1)

    async def answer(self, body: bytes) -> bytes:
        call = hook_call(body)
        if call is None:
            return hook_answer("geminorum did not understand the question")
        if not self._matcher.match(call.tool_name):
            return hook_answer(None)
        request = self._request(call)
        question = _Question(request)
        self._questions.append(question)
        self._on_change()
        decision = await self._decide(request)
        question.decide(decision)
        self._on_change()
        if isinstance(decision, Deny):
            return hook_answer(_reason(decision))
        if call.tool_name in self._own.values():
            self._on_allowed(request.name, request.input)
        return hook_answer(None)

    @property
    def is_open(self) -> bool:
        """Is a permission request undecided?"""
        return bool(self._pending)

    def hold(self) -> None:
        """Stops asking `decide`, and leaves requests unanswered for now."""
        self._is_held = True

    def stop(self) -> None:
        """Refuses what is open, and what may come: the run has ended."""
        self._stopped = True
        for question in self._pending:
            question.cancel()

    async def _decide(self, request: PermissionRequest) -> Decision:
        if self._stopped:
            return _TOO_LATE
        question = self._ask(request)
        self._pending.add(question)
        try:
            await asyncio.wait([question])
        finally:
            self._pending.discard(question)
            question.cancel()
        return _TOO_LATE if question.cancelled() else question.result()

    def _ask(self, request: PermissionRequest) -> asyncio.Future[Decision]:
        if self._is_held:
            return asyncio.get_running_loop().create_future()
        return asyncio.ensure_future(self._decisions.ask(request, self._on_interrupt))

    def _request(self, call: HookCall) -> PermissionRequest:
        own = call.tool_name in self._own.values()
        name = own_name(call.tool_name) if own else call.tool_name
        request = PermissionRequest(
            name, None, call.tool_input, timestamp=now(), session_id=call.session_id
        )
        return self._assign_use(request)

    def placed(self, events: list[Event], is_caught_up: bool = False) -> list[Event]:
        """The events with requests and decisions among them: behind the use, before the result.

        `is_caught_up`: everything that the CLI has printed is read. It prints a use before it
        asks, so a request without a use is then a subagent's: those calls are not in the stream.
        """
        placed = list(self._track(events))
        if is_caught_up:
            self._name_strangers()
        return [
            *placed,
            *self._take_decided({question.request.id for question in self._questions}),
        ]

    def _track(self, events: list[Event]) -> Iterator[Event]:
        for event in events:
            # The stream has a function by the caller's name for it, the pattern by the CLI's.
            if isinstance(event, ToolUse) and self._matcher.match(
                self._own.get(event.name, event.name)
            ):
                self._uses.append(event)
            for question in self._questions:
                question.request = self._assign_use(question.request)
            if isinstance(event, ToolResult):
                unasked = any(use.id == event.id for use in self._uses)
                self.evaded = self.evaded or (unasked and event.status == "success")
                self._uses = [use for use in self._uses if use.id != event.id]
                yield from self._take_decided({event.id})
            elif isinstance(event, Done):
                yield from self._take_rest()
            yield event

    def _assign_use(self, request: PermissionRequest) -> PermissionRequest:
        """Gives the request the id of its tool call, which the hook does not have."""
        if request.id is not None:
            return request
        mine = [use for use in self._uses if use.name == request.name]
        same = [use for use in mine if use.input == request.input] or mine
        if not same:
            return request
        self._uses.remove(same[0])
        return msgspec.structs.replace(request, id=same[0].id)

    def _name_strangers(self) -> None:
        for question in self._questions:
            if question.request.id is None:
                made_up = f"subagent-{next(self._nameless)}"
                question.request = msgspec.structs.replace(question.request, id=made_up)

    def _take_rest(self) -> list[Event]:
        """Everything that is left: no request stays without its decision."""
        self._name_strangers()
        for question in self._questions:
            if question.decision is None:
                question.decide(_TOO_LATE)
        return self._take_decided({question.request.id for question in self._questions})

    def _take_decided(self, ids: set[str | None]) -> list[Event]:
        mine = [one for one in self._questions if one.request.id in ids - {None}]
        told = [event for question in mine for event in question.take()]
        gone = [one for one in mine if one.decision is not None]
        self._questions = [one for one in self._questions if one not in gone]
        return told


def _reason(decision: Deny) -> str:
    return decision.reason or "the user said no"
