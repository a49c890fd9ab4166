"""One saved session, as much of it as a page has room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

import geminorum
from geminorum.apps.web.sessions.bars import Bar, bars_of
from geminorum.apps.web.words import took
from geminorum.cost import cost_of
from geminorum.sessions import Session, SessionInfo
from geminorum.views.html import Limits, entry_html
from geminorum.views.timeline import Timeline, timeline
from geminorum.views.transcript import Transcript, total, transcript_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES_ON_PAGE = 60
_BYTES_ON_PAGE = 1024 * 1024
_BYTES_TO_COUNT = 8 * 1024 * 1024
"""The bill of a larger session would keep the page waiting; the usage page has it."""
_LIMITS = Limits(characters=20_000, parts=200)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A part of a session, ready to be shown."""

    info: SessionInfo
    title: str
    facts: dict[str, str]
    entries: list[Markup]
    bars: list[Bar]
    timeline: Timeline
    subagents: list[SessionInfo]
    start: int
    """The number of its first message; the first of all is 0."""
    stop: int
    count: int
    """Messages of the whole session."""

    @property
    def previous(self) -> int | None:
        return max(0, self.start - MESSAGES_ON_PAGE) if self.start else None

    @property
    def next(self) -> int | None:
        return self.stop if self.stop < self.count else None

    @property
    def last(self) -> int:
        return max(0, self.count - MESSAGES_ON_PAGE)


def open_conversation(info: SessionInfo, start: int = 0) -> Conversation:
    """Reads the part that begins with this message. Blocks; raises SessionUnreadable."""
    session = geminorum.sessions.load(info)
    count = len(session.messages)
    start = min(start, max(0, count - 1))
    part = session.excerpt(start, start + MESSAGES_ON_PAGE, max_bytes=_BYTES_ON_PAGE)
    transcript = transcript_of(part.events(), session.title)
    calls = timeline(transcript)
    return Conversation(
        info=info,
        title=session.title or "Nobody said anything",
        facts=dict(_facts(info, session, transcript)),
        entries=list(_entries(transcript)),
        bars=bars_of(calls),
        timeline=calls,
        subagents=info.subagents,
        start=start,
        stop=start + len(part.messages),
        count=count,
    )


def _entries(transcript: Transcript) -> Iterator[Markup]:
    for number, entry in enumerate(transcript.entries, 1):
        # All that the session contains is escaped there.
        yield Markup(entry_html(entry, number, limits=_LIMITS))  # nosec B704


def _facts(
    info: SessionInfo, session: Session, transcript: Transcript
) -> Iterator[tuple[str, str]]:
    """What is known of the whole session, and of its models as far as they were read."""
    if models := transcript.facts().get("Model"):
        yield "Model", models
    if session.ended > session.started > 0:
        yield "Duration", took((session.ended - session.started) / 1000)
    yield "Messages", f"{len(session.messages):,}"
    if info.size <= _BYTES_TO_COUNT:
        usage = session.usage
        cost = cost_of(usage)
        yield "Tokens", f"{usage.total:,}"
        yield "Cost", total([cost]) if cost else "unknown"
    if info.cwd:
        yield "Folder", str(info.cwd)
    yield "Session", info.id
