"""The rounds of a turn: an agent that ends without the answer that is wanted is asked again."""

from __future__ import annotations

from collections.abc import Callable

from geminorum.events import Cost, Done, Event, ModelRequest, Usage
from geminorum.transports.callbacks.final_answer import FinalAnswer, is_complaint
from geminorum.transports.turns.bill import with_earlier


class AnswerRounds:
    """The answer that is wanted, if any, and what earlier rounds used."""

    def __init__(self, answer: FinalAnswer | None = None) -> None:
        self.answer = answer
        self._earlier: list[Usage | None] = []
        """What earlier rounds used together; empty in the first."""

    @property
    def is_first(self) -> bool:
        return not self._earlier

    @property
    def is_awaited(self) -> bool:
        """Is there an answer still to come?"""
        return self.answer is not None and not self.answer.arrived

    @property
    def needs_retry(self) -> bool:
        """Has the agent ended without an answer, with attempts left?"""
        return self.answer is not None and self.answer.needs_retry

    def end_round(self, events: list[Event]) -> list[Event]:
        """Returns the events of a round without its end, which is not the turn's."""
        *said, done = [event for event in events if not is_complaint(event)]
        assert isinstance(done, Done)
        self._earlier = [done.usage]
        return said

    def begin_round(self) -> None:
        assert self.answer is not None
        self.answer.needs_retry = False

    def requests(self, latest: list[ModelRequest]) -> list[ModelRequest]:
        """Those of all rounds, given those of the latest."""
        earlier = [request for usage in self._earlier if usage for request in usage.requests]
        return [*earlier, *latest]

    def whole(self, done: Done, price: Callable[[Usage | None], Cost | str]) -> Done:
        """The end of the turn, with what all of its rounds used."""
        return with_earlier(done, self._earlier, price)
