"""The transport protocols: a transport opens conversations, whose turns yield events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from geminorum.events import Event, ModelRequest
from geminorum.options import Options
from geminorum.prompt import Content, Prompt

if TYPE_CHECKING:
    from geminorum.wire.ending import Stop


class Turn(Protocol):
    """One prompt in progress. Always ends with a `Done`."""

    async def read(self) -> list[Event]:
        """Returns the events that have arrived, waiting for at least one; empty after the `Done`.

        It returns a list because awaiting events one by one would cost more than decoding them.
        """
        ...

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        """Stops the agent. Remaining events, including the `Done`, can still be read."""
        ...

    def hurry(self) -> None:
        """Shortens the grace period of `stop`, because its caller was cancelled meanwhile."""
        ...

    @property
    def stderr(self) -> str:
        """The stderr of the agent's program, redacted; empty if there is no program."""
        ...


class Conversation(Protocol):
    """Consecutive turns; each has the context of those before."""

    def turn(self, prompt: Prompt) -> AbstractAsyncContextManager[Turn]: ...


class Transport(Protocol):
    """A connection to Gemini."""

    def open(self, options: Options) -> AbstractAsyncContextManager[Conversation]: ...


@runtime_checkable
class KeepsHistory(Protocol):
    """A transport or conversation whose history the caller keeps."""

    @property
    def history(self) -> Sequence[Content]: ...


@runtime_checkable
class TellsRequests(Protocol):
    """A turn that knows its requests before it is over."""

    def requests(self) -> Sequence[ModelRequest]:
        """The requests that were answered so far, with their tokens."""
        ...


@runtime_checkable
class TellsSpending(Protocol):
    """A turn that knows what it has cost before it is over."""

    def spent(self) -> Decimal | None:
        """US dollars for the requests that were answered so far; None if that is unknown."""
        ...


@runtime_checkable
class PreparesTurns(Protocol):
    """A conversation that can get ready for its next turn before there is a prompt."""

    def prepare_turn(self) -> None: ...
