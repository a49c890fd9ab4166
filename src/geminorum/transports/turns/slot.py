"""The place for the one turn that a conversation has at a time."""

from __future__ import annotations

from typing import Generic, TypeVar

from geminorum.errors import GeminorumError, SessionBusy
from geminorum.hints import advice, python_only
from geminorum.transports import Turn

TurnT = TypeVar("TurnT", bound=Turn)


class TurnSlot(Generic[TurnT]):
    """Admits one turn at a time, while its conversation is open."""

    def __init__(self) -> None:
        self.turn: TurnT | None = None
        """The turn in progress."""
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def require_open(self) -> None:
        """Raises if the conversation is closed."""
        if not self.is_open:
            raise GeminorumError(
                "the chat is over", hint=python_only("open another with connect()")
            )

    def acquire(self, turn: TurnT) -> None:
        """Raises SessionBusy if another turn of the same conversation is still running."""
        self.require_open()
        if self.turn is not None:
            raise SessionBusy(
                "a turn of this conversation is still running",
                hint=advice("wait for it[, or open another conversation with {connect()}]"),
            )
        self.turn = turn

    def release(self, turn: TurnT) -> None:
        if self.turn is turn:
            self.turn = None

    async def close(self) -> None:
        """Admits no more, and stops the turn in progress."""
        self.is_open = False
        if self.turn is not None:
            await self.turn.stop("cancel")
