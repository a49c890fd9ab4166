"""A shape to a tool that takes the answer: what fits is kept, what does not is sent back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from geminorum.errors import (
    ApiError,
    BudgetExceeded,
    InvalidAnswer,
    LoopDetected,
    NetworkError,
    class_for,
)
from geminorum.events import Done, Error, Event, ToolResult
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.schema import Shape
from geminorum.transports.callbacks.tool_server import Served
from geminorum.wire.callbacks.mcp import declared, full_name

NAME = "final_answer"
_DESCRIPTION = "Takes the final answer to the user's request. Call it once, when all else is done."
_ACCEPTED = "Accepted. The request is answered: write one short closing sentence and nothing else."
_MENDED = f"Call {full_name(NAME)} again with that fixed."
INSTRUCTIONS = f"""\
Your answer to each request of the user is the arguments of one call of the tool {full_name(NAME)}.
Only that call is read: text that you write is not. Do the work first, then call it. If it says what
is wrong, fix that and call it again. When it has accepted the answer, stop."""
RETRY_PROMPT = f"""\
You have not given your answer yet. Call the tool {full_name(NAME)} now, with the answer to my
request as its arguments."""


_SPEECHLESS = (InvalidAnswer, ApiError, NetworkError, BudgetExceeded, LoopDetected)
"""What may befall the words behind an answer."""


def instructed_to_answer(options: Options) -> Options:
    """The options with an instruction on how to answer, behind the system prompt."""
    told = options.system_prompt
    return options.changed(system_prompt=f"{told}\n\n{INSTRUCTIONS}" if told else INSTRUCTIONS)


def is_complaint(event: Event) -> bool:
    return isinstance(event, Error) and event.code == InvalidAnswer.code


class FinalAnswer:
    """What one run is to answer, and how often it may try."""

    def __init__(self, shape: Shape, attempts: int) -> None:
        self._shape, self._attempts = shape, attempts
        self._wrapped = shape.schema.get("type") != "object"
        self.data: Any = None
        """The answer as plain data, once there is one that fits."""
        self.arrived = False
        self.needs_retry = False
        """Has the agent ended without an answer, with attempts left?"""
        self._failed = 0
        self._speechless = False
        self._problem = f"it did not call {NAME}"

    @property
    def served(self) -> Served:
        schema = _as_argument(self._shape.schema) if self._wrapped else self._shape.schema
        return Served(declared(NAME, _DESCRIPTION, schema), self._take)

    @property
    def is_exhausted(self) -> bool:
        return not self.arrived and self._failed >= self._attempts

    def judged(self, events: list[Event]) -> list[Event]:
        """The events with the answer in their `Done`, or with the complaint that there is none."""
        return [judged for event in events for judged in self._judge(event)]

    def _judge(self, event: Event) -> list[Event]:
        match event:
            case ToolResult(name=name, status="error" | "denied") if name == NAME:
                self._count_miss(self._problem_of(event))
            case Error() if self.arrived and issubclass(class_for(event.code), _SPEECHLESS):
                self._speechless = True
                return [msgspec.structs.replace(event, recoverable=True)]
            case Done():
                return self._judge_end(event)
        return [event]

    def _problem_of(self, event: ToolResult) -> str:
        """What the CLI itself refuses never reaches us; not every transport says why it failed."""
        told, why = f"{event.output} {event.content}", event.error_type
        by_cli = why == "invalid_tool_params" or (why is None and _MENDED not in told)
        return str(event.output) if by_cli and event.status == "error" else self._problem

    def _judge_end(self, done: Done) -> list[Event]:
        change = msgspec.structs.replace
        if self.arrived:
            # The answer stands; only the closing words are missing.
            limited = done.status in ("max_turns", "max_budget")
            enough = limited or (done.status == "error" and self._speechless)
            return [change(done, data=self.data, status="success" if enough else done.status)]
        if done.status == "success":
            self._count_miss(self._problem)
            self.needs_retry = not self.is_exhausted
        elif done.status != "error" or not self.is_exhausted:
            return [done]
        return [self._complaint(done), change(done, status="error")]

    def _complaint(self, done: Done) -> Error:
        times = "attempt" if self._failed == 1 else "attempts"
        return Error(
            f"no valid answer from the model in {self._failed} {times}: {self._problem}",
            InvalidAnswer.code,
            hint=advice(
                "say in the prompt what is wanted"
                "[, or raise {Cli.answer_attempts|answer_attempts of the transport}]"
            ),
            timestamp=done.timestamp,
            session_id=done.session_id,
        )

    def _count_miss(self, problem: str) -> None:
        # What comes while the run is being ended for that does not count any more.
        if not self.is_exhausted:
            self._failed += 1
            self._problem = problem

    async def _take(self, arguments: dict[str, Any]) -> tuple[str, bool]:
        answer = arguments.get("answer") if self._wrapped else arguments
        try:
            self._shape.read(answer)
        except InvalidAnswer as error:
            self._problem = error.message
            return f"{error.message}. {_MENDED}", False
        self.data, self.arrived = answer, True
        return _ACCEPTED, True


def _as_argument(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that is no object, as the one argument of a call. References stay at the root."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    whole = {"type": "object", "properties": {"answer": inner}, "required": ["answer"]}
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole
