"""A shape to a tool that takes the answer: what fits is kept, what does not is sent back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geminorum.errors import InvalidAnswer
from geminorum.options import Options
from geminorum.schema import Shape
from geminorum.transports.tool_server import Served
from geminorum.wire.mcp import declared, full_name

NAME = "final_answer"
_DESCRIPTION = "Takes the final answer to the user's request. Call it once, when all else is done."
_ACCEPTED = "Accepted. The request is answered: write one short closing sentence and nothing else."
INSTRUCTIONS = f"""\
Your answer to each request of the user is the arguments of one call of the tool {full_name(NAME)}.
Only that call is read: text that you write is not. Do the work first, then call it. If it says what
is wrong, mend that and call it again. When it has accepted the answer, stop."""
ONCE_MORE = f"""\
You have not given your answer yet. Call the tool {full_name(NAME)} now, with the answer to my
request as its arguments."""


def instructed_to_answer(options: Options) -> Options:
    """The options with a word on how to answer, behind what the agent is told already."""
    told = options.system_prompt
    return options.changed(system_prompt=f"{told}\n\n{INSTRUCTIONS}" if told else INSTRUCTIONS)


class FinalAnswer:
    """What one run is to answer, and how often it may try."""

    def __init__(self, shape: Shape, attempts: int) -> None:
        self._shape, self._attempts = shape, attempts
        self._wrapped = shape.schema.get("type") != "object"
        self.data: Any = None
        """The answer as plain data, once there is one that fits."""
        self.arrived = False
        self.failed = 0
        """How often there was none."""
        self._problem = "it never called the tool for it"

    @property
    def served(self) -> Served:
        schema = _as_argument(self._shape.schema) if self._wrapped else self._shape.schema
        return Served(declared(NAME, _DESCRIPTION, schema), self._take)

    @property
    def is_hopeless(self) -> bool:
        return not self.arrived and self.failed >= self._attempts

    @property
    def complaint(self) -> str:
        times = "attempt" if self.failed == 1 else "attempts"
        return f"no valid answer from the model in {self.failed} {times}: {self._problem}"

    def missed(self, problem: str | None = None) -> None:
        """One attempt is gone."""
        self.failed += 1
        self._problem = problem or self._problem

    async def _take(self, arguments: dict[str, Any]) -> tuple[str, bool]:
        answer = arguments.get("answer") if self._wrapped else arguments
        try:
            self._shape.read(answer)
        except InvalidAnswer as error:
            self._problem = error.message
            return f"{error.message}. Call {full_name(NAME)} again with that mended.", False
        self.data, self.arrived = answer, True
        return _ACCEPTED, True


def _as_argument(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that is no object, as the one argument of a call. References stay at the root."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    whole = {"type": "object", "properties": {"answer": inner}, "required": ["answer"]}
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole
