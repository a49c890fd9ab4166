"""The request by which a warm session is prompted, and what came of it."""

from __future__ import annotations

import msgspec

from geminorum.events import Error
from geminorum.wire.acp import protocol as acp


class PromptCall:
    """Not sent, sent, replied to, or impossible because there was no session."""

    def __init__(self) -> None:
        self.number: int | None = None
        """Of the request; None until it is sent."""
        self.reply: acp.Message | None = None
        self.broken: Error | None = None
        """Why there was no session to prompt."""

    @property
    def has_succeeded(self) -> bool:
        return self.reply is not None and self.reply.error is None

    def outcome(self) -> tuple[acp.Prompted | None, acp.RpcError | None]:
        if self.reply is None or self.reply.error is not None:
            return None, self.reply.error if self.reply else None
        try:
            return acp.prompted_of(self.reply), None
        except msgspec.MsgspecError:
            return None, acp.RpcError(-32603, "the answer to the prompt is invalid")
