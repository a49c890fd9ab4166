"""What the page knows about a run, and keeps."""

from __future__ import annotations

import time
import uuid
from typing import Literal, TypeAlias, get_args

import msgspec

from geminorum.events import Status

LiveStatus: TypeAlias = Literal["starting", "running", "waiting", "stopping"]
RunStatus: TypeAlias = Status | LiveStatus
LIVE: frozenset[str] = frozenset(get_args(LiveStatus))


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as lists show it."""

    id: str
    prompt: str
    folder: str
    via: str
    """The transport, by its name in the form."""
    model: str | None = None
    approval: str | None = None
    status: RunStatus = "starting"
    session_id: str | None = None
    started: int
    """Milliseconds since 1970."""
    ended: int | None = None
    tokens: int | None = None
    """So far; None: not known."""
    usd: float | None = None
    """So far; None: not known."""
    tools: int = 0
    """Tool calls so far."""
    activity: str = ""
    """What it does or has said last, on one line."""
    problem: str | None = None
    """Why it failed."""
    resumes: str | None = None
    """The session that it goes on with."""
    agent: str | None = None
    """The agent of the page that it is a run of."""

    @property
    def is_live(self) -> bool:
        return self.status in LIVE


def new_id() -> str:
    return uuid.uuid4().hex[:16]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
