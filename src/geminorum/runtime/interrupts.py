"""Keeps an exception for the whole program until the reader of the run takes it.

Ctrl-C, `sys.exit()` and their kin end an event loop where a task raises them, and with it every
other run of that loop. So a task never does: it refuses, stops its run, and leaves the interrupt
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, TypeAlias

from geminorum.errors import WaitingForAnswer

OnInterrupt: TypeAlias = Callable[[BaseException], None]


def is_interrupt(error: BaseException) -> bool:
    """Is it meant for the whole program, not for the caller of the function?"""
    return not isinstance(error, Exception | asyncio.CancelledError | GeneratorExit)


def ignore_interrupt(error: BaseException) -> None:
    """For callers that only want the answer."""


def error_message(error: BaseException) -> str:
    """The exception as text, even if its `__str__` fails."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        return name
    return f"{name}: {text}" if text else name


class Interrupt:
    """The interrupt of one turn: the first counts, stops the turn, and is raised once.

    A question that is left to wait stops the turn, too; its stream says so, and nothing is raised.
    """

    def __init__(self, stop: Callable[[Literal["cancel", "waiting"]], None]) -> None:
        self._stop = stop
        self._error: BaseException | None = None
        self.waiting: WaitingForAnswer | None = None

    def take(self, error: BaseException) -> None:
        if isinstance(error, WaitingForAnswer):
            self.waiting = self.waiting or error
            self._stop("waiting")
            return
        self._error = self._error or error
        self._stop("cancel")

    @property
    def question(self) -> str:
        """The id of the question that is left to wait; empty if there is none."""
        return "" if self.waiting is None else self.waiting.question_id

    def pass_on(self) -> None:
        """Raises it, if there is one. For the end of the stream, so that no event is lost."""
        error, self._error = self._error, None
        if error is not None:
            raise error
