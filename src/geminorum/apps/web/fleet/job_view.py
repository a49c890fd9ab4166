"""A job of the fleet as its page shows it: its facts, and what its agent said and did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from geminorum.events import Event
from geminorum.views.html import Limits, entry_html
from geminorum.views.transcript import transcript_of

if TYPE_CHECKING:
    from geminorum.fleet import Job, JobDetails

EVENTS_ON_PAGE = 1_000
_LIMITS = Limits(characters=20_000, parts=200)


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, and a part of its events."""

    details: JobDetails
    entries: list[Markup]
    after: str
    """Where the next part begins; empty if this is the last."""
    can_cancel: bool
    can_retry: bool


async def view_of(job: Job, after: tuple[int, int]) -> JobView:
    """What the database has about it now."""
    details = await job.details()
    numbered = await job.read_events(after, limit=EVENTS_ON_PAGE)
    info = details.info
    return JobView(
        details=details,
        entries=list(_entries([event for _, event in numbered])),
        after="{}-{}".format(*numbered[-1][0]) if len(numbered) == EVENTS_ON_PAGE else "",
        can_cancel=info.state != "done" and not info.is_cancelled,
        can_retry=info.state == "done" and info.status != "success",
    )


def _entries(events: Sequence[Event]) -> Iterator[Markup]:
    for number, entry in enumerate(transcript_of(events).entries, 1):
        # All that the job said is escaped there.
        yield Markup(entry_html(entry, number, limits=_LIMITS))  # nosec B704
