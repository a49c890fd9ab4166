"""Passes the permission requests of a turn in a warm session to the caller's `decide`."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from geminorum.decisions import CANCELLED, Allow, AllowAlways, Decision, Deny
from geminorum.events import PermissionRequest
from geminorum.transports.turns.outbox import now
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import omits_input

if TYPE_CHECKING:
    from geminorum.transports.acp.turn import AcpTurn

_NAMELESS = "refused: the CLI did not say which tool it asks about; a newer CLI may need Cli()"
_NO_OPTION = "refused: the CLI offered no option that allows it once; a newer CLI may need Cli()"


class Questions:
    """Asks in tasks of its own, and answers the CLI; a question that is cancelled is withdrawn."""

    def __init__(self, turn: AcpTurn) -> None:
        self._turn, self._conversation = turn, turn.conversation
        # The process calls us in the context that started it, which may be another tenant's.
        self._context = contextvars.copy_context()
        self._tasks: dict[int | str | None, asyncio.Task[Any]] = {}

    @property
    def is_open(self) -> bool:
        """Is a request undecided right now?"""
        return bool(self._tasks)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        return [*self._tasks.values()]

    def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()

    def ask(self, number: int | str | None, question: acp.Question, params: Raw) -> None:
        request = self._turn.decoder.question(question, params, now())
        at_call = partial(self._ask_at_call, request)
        tools = self._conversation.tools
        if omits_input(question.tool_call) and tools.ask_at_call(request, at_call):
            self._conversation.process.answer(number, acp.choice(question, Allow()))
            return
        self._turn.emit(self._turn.decoder.open_request(request, now()))
        answering = self._answer(number, question, request)
        self._tasks[number] = asyncio.create_task(answering, context=self._context.copy())

    async def _answer(
        self, number: int | str | None, question: acp.Question, request: PermissionRequest
    ) -> None:
        decision: Decision | None = None
        try:
            decision = await self._decide(question, request)
            if self._turn.is_stopping:
                decision = None  # Said after the cancel: too late.
        finally:
            # Withdrawn where we were cancelled: a question without an answer would hang the turn.
            self._tasks.pop(number, None)
            if isinstance(decision, Allow | AllowAlways):
                self._conversation.tools.allow_once(request)
            self._conversation.process.answer(number, acp.choice(question, decision))
            asked = self._conversation.transport.decide is not None or decision is None
            close_request = self._turn.decoder.close_request
            self._turn.emit(close_request(request, decision or CANCELLED, now(), asked=asked))

    async def _decide(self, question: acp.Question, request: PermissionRequest) -> Decision:
        if not question.tool_call.names_tool:
            # A rule for a tool's name would not match, and let it run.
            return Deny(_NAMELESS)
        decision = await self._conversation.decisions.ask(request, self._turn.interrupt.take)
        is_allowed = isinstance(decision, Allow | AllowAlways)
        if is_allowed and acp.choice(question, decision) is acp.WITHDRAWN:
            return Deny(_NO_OPTION)
        return decision

    async def _ask_at_call(
        self, request: PermissionRequest, arguments: dict[str, Any]
    ) -> str | None:
        """Asks about a call of a function whose arguments were too long for the question; why it
        may not run, if so."""
        request = msgspec.structs.replace(request, input=arguments)
        self._turn.emit(self._turn.decoder.open_request(request, now()))
        question = self._conversation.decisions.ask(request, self._turn.interrupt.take)
        task = asyncio.create_task(question, context=self._context.copy())
        self._tasks[f"call {request.id}"] = task
        await asyncio.wait([task])
        self._tasks.pop(f"call {request.id}", None)
        decision = None if task.cancelled() or self._turn.is_stopping else task.result()
        self._turn.emit(self._turn.decoder.close_request(request, decision or CANCELLED, now()))
        if isinstance(decision, Allow | AllowAlways):
            return None
        return (decision.reason if decision else "") or "the user said no"
