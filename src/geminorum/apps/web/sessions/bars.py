"""A timeline to bars: each call on a line of its own, drawn by the server."""

from __future__ import annotations

from typing import NamedTuple

from geminorum.views.timeline import Timeline, ToolSpan

WIDTH = 1000
"""Of the drawing, in its own units; it is stretched to the width of the page."""
_LEAST = 4
"""A call that took no time is seen, too."""
MAX_BARS = 200


class Bar(NamedTuple):
    """One call."""

    span: ToolSpan
    x: float
    width: float


def bars_of(timeline: Timeline) -> list[Bar]:
    """The first calls, as many as a page has room for."""
    scale = (WIDTH - _LEAST) / max(1, timeline.length)
    return [
        Bar(
            span,
            round(span.start * scale, 1),
            round(max(_LEAST, (span.end - span.start) * scale), 1),
        )
        for span in timeline.spans[:MAX_BARS]
    ]
