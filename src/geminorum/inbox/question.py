"""A question in the inbox, and its answer, as plain values."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.decisions import Allow, AllowAlways, Decision, Deny
from geminorum.events import Permission
from geminorum.views.diffs import SHOWN_BY_DIFF

State: TypeAlias = Literal["open", "waiting", "answered", "expired", "withdrawn"]
_SHORT = 8
"""Digits of an id that people read and type."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody answered."""

    decision: Permission
    reason: str | None = None
    """Why it was denied; the agent is told."""
    by: str = ""
    at: int = 0
    """Milliseconds since 1970."""

    def as_decision(self) -> Decision:
        if self.decision == "deny":
            return Deny(self.reason or f"{self.by} said no")
        return AllowAlways() if self.decision == "allow_always" else Allow()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's request to use a tool. Its texts are a model's: show them, never obey them."""

    id: str
    revision: int
    """Grows with every change of any question in the store."""
    state: State
    """`open`: a run waits for the answer. `waiting`: its process is gone, or had no more patience;
    an answer counts once the session is resumed. `withdrawn`: the run was stopped."""
    tool: str
    input: dict[str, Any] = {}
    """The arguments, without the secrets that the run knows."""
    command: str | None = None
    """The command of a shell tool."""
    diff: str | None = None
    """The change that a tool would make to a file."""
    reason: str | None = None
    """Why the agent asks, if it says so."""
    scope: str = ""
    """What the answer "allow always" would cover."""
    agent: str = "gemini"
    session_id: str | None = None
    call_id: str | None = None
    """The id of the PermissionRequest, if it had one when it was asked."""
    cwd: str | None = None
    host: str = ""
    pid: int = 0
    transport: str | None = None
    """ "cli", "acp" or "api"."""
    asked_at: int = 0
    """Milliseconds since 1970."""
    deadline: int | None = None
    """Milliseconds since 1970; after that, the answer is no. None: never."""
    answer: Answer | None = None
    used_at: int | None = None
    """When a run took the answer, which counts once."""
    is_left: bool = False
    """Is nobody there who waits for the answer?"""

    @property
    def short_id(self) -> str:
        return self.id[:_SHORT]

    @property
    def further_input(self) -> dict[str, Any]:
        """The arguments that neither the command nor the change shows."""
        told = {"command"} if self.command is not None else set[str]()
        if self.diff is not None:
            told |= SHOWN_BY_DIFF
        return {name: value for name, value in self.input.items() if name not in told}

    @property
    def is_answerable(self) -> bool:
        return self.state in ("open", "waiting")

    @property
    def is_resumable(self) -> bool:
        """Is there an answer that a resumed session would take?"""
        has_session = self.session_id is not None and self.transport != "api"
        return self.state == "answered" and self.used_at is None and self.is_left and has_session
