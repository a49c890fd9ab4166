"""What the page knows about a run, and keeps."""

from __future__ import annotations

import time
import uuid
from typing import Literal, TypeAlias, get_args

import msgspec

from geminorum import Options
from geminorum.events import Status

LiveStatus: TypeAlias = Literal["starting", "running", "waiting", "stopping"]
RunStatus: TypeAlias = Status | LiveStatus
LIVE: frozenset[str] = frozenset(get_args(LiveStatus))


class RunLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run was asked to keep to, also where it goes on after an answer."""

    model: str | None = None
    effort: str | None = None
    max_budget_usd: float | None = None
    max_turns: int | None = None
    timeout: float | None = None

    @classmethod
    def of(cls, options: Options) -> RunLimits:
        return cls(**{name: getattr(options, name) for name in cls.__struct_fields__})


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
    limits: RunLimits = RunLimits()

    @property
    def is_live(self) -> bool:
        return self.status in LIVE


def new_id() -> str:
    return uuid.uuid4().hex[:16]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
