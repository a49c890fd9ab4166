"""The model's calls to the caller's functions, and what became of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from geminorum.decisions import CANCELLED, Allow, Decision, Deny, decided
from geminorum.events import PermissionRequest, ToolResult
from geminorum.runtime.interrupts import OnInterrupt, error_message
from geminorum.tools import Tool, ToolOutcome, call
from geminorum.transports.turns.outbox import Outbox, now
from geminorum.wire.genai.answer import FunctionCall
from geminorum.wire.genai.request import response_of

if TYPE_CHECKING:
    from geminorum.transports.api.transport import ApiConversation


class ToolRunner:
    """Runs the functions that the model calls, after asking the caller's `decide`."""

    def __init__(self, talk: ApiConversation, out: Outbox, on_interrupt: OnInterrupt) -> None:
        """`on_interrupt` gets what a function raised for the whole program."""
        self._talk, self._out, self._on_interrupt = talk, out, on_interrupt
        self._tools: dict[str, Tool] = {tool.name: tool for tool in talk.tools}
        self._outcomes: dict[str, ToolOutcome] = {}
        self.count = 0

    def leaves_to_caller(self, calls: Sequence[FunctionCall]) -> bool:
        """Is one of them to a tool that was only declared? Then all of them wait for the caller,
        because the API wants their results together."""
        known = (self._tools.get(wanted.name) for wanted in calls)
        return any(tool is not None and tool.function is None for tool in known)

    async def run(self, calls: Sequence[FunctionCall]) -> None:
        """All of them at once."""
        async with asyncio.TaskGroup() as group:
            for wanted in calls:
                group.create_task(self._run(wanted))

    def outcome_of(self, wanted: FunctionCall) -> ToolOutcome:
        """What became of it, also where it was cancelled."""
        unfinished = ToolOutcome("error", "cancelled before it was finished", "cancelled")
        return self._outcomes.get(wanted.id, unfinished)

    async def _run(self, wanted: FunctionCall) -> None:
        self.count += 1
        began = time.monotonic()
        outcome = self._outcomes[wanted.id] = await self._try_call(wanted)
        self._out.put(_result_event(wanted, outcome, time.monotonic() - began))

    async def _try_call(self, wanted: FunctionCall) -> ToolOutcome:
        tool = self._tools.get(wanted.name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            text = f"there is no tool {wanted.name!r}; there are: {names}"
            return ToolOutcome("error", text, "tool_not_registered")
        decision = await self._ask_permission(wanted)
        if isinstance(decision, Deny):
            reason = f": {decision.reason}" if decision.reason else ""
            return ToolOutcome("error", f"the user denied this call{reason}", "denied")
        return await self._call(tool, wanted)

    async def _call(self, tool: Tool, wanted: FunctionCall) -> ToolOutcome:
        try:
            return await call(tool, wanted.arguments)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_interrupt(error)
            return ToolOutcome("error", error_message(error), "tool_failed")

    async def _ask_permission(self, wanted: FunctionCall) -> Decision:
        options = self._talk.options
        unasked = options.approval == "yolo" or wanted.name in (options.allowed_tools or ())
        if self._talk.transport.decide is None or unasked:
            return Allow()
        request = PermissionRequest(
            wanted.name,
            wanted.id,
            wanted.arguments,
            timestamp=now(),
            session_id=self._talk.session_id,
        )
        self._out.put(request)
        decision: Decision = CANCELLED
        try:
            decision = await self._talk.decisions.ask(request, self._on_interrupt)
        finally:
            self._out.put(decided(request, decision, now()))
        return decision


def _result_event(wanted: FunctionCall, outcome: ToolOutcome, duration: float) -> ToolResult:
    status: Any = "denied" if outcome.error_type == "denied" else outcome.status
    return ToolResult(
        wanted.id,
        wanted.name,
        status,
        outcome.text,
        outcome.error_type,
        duration,
        msgspec.json.encode(response_of(outcome)).decode(),
    )
