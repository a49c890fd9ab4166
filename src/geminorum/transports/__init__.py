"""The seam: a transport opens a conversation, a conversation takes turns, a turn yields events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from geminorum.errors import GeminorumError, SessionBusy
from geminorum.events import Event
from geminorum.options import Options
from geminorum.prompt import Content, Prompt
from geminorum.wire.verdict import Stop


class Turn(Protocol):
    """One prompt on its way. Ends with a `Done`, whatever happens."""

    async def read(self) -> list[Event]:
        """What has arrived; waits for at least one event. Empty after the `Done`.

        A list rather than one event, because a long stream would otherwise spend more time in
        the machinery of `await` than in decoding.
        """
        ...

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        """End the agent's work. What is left to read, the `Done` included, can still be read."""
        ...

    def hurry(self) -> None:
        """End it with next to no grace: whoever stopped it was cancelled while it ended."""
        ...

    @property
    def stderr(self) -> str:
        """What the agent's program complained about, redacted; empty where there is no program."""
        ...


class Conversation(Protocol):
    """Turns that follow one another; each knows what was said before."""

    def turn(self, prompt: Prompt) -> AbstractAsyncContextManager[Turn]: ...


class Transport(Protocol):
    """A door to Gemini."""

    def open(self, options: Options) -> AbstractAsyncContextManager[Conversation]: ...


@runtime_checkable
class KeepsHistory(Protocol):
    """A transport, and its conversations, whose history is the caller's to keep."""

    @property
    def history(self) -> Sequence[Content]: ...


def require_open(*, is_open: bool) -> None:
    """Raises where a turn begins in a conversation that was left."""
    if not is_open:
        raise GeminorumError("the chat is over", hint="open another with connect()")


def require_no_turn(running: Turn | None) -> None:
    """Raises SessionBusy where a turn of the same conversation is still running."""
    if running is not None:
        raise SessionBusy(
            "a turn of this conversation is still running",
            hint="wait for it, or open another conversation with connect()",
        )
