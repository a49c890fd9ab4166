"""What changes about a run while one looks at it, as the page's script takes it."""

from __future__ import annotations

from typing import Any

from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.words import tokens, usd
from geminorum.views.html.prose import visible


def facts_of(info: RunInfo) -> dict[str, Any]:
    """Texts to show, and the times between which it ran."""
    return {
        "id": info.id,
        "status": info.status,
        "live": info.is_live,
        "started": info.started,
        "ended": info.ended,
        "tokens": tokens(info.tokens),
        "usd": usd(info.usd),
        "tools": f"{info.tools:,}",
        "model": visible(info.model or ""),
        "activity": visible(info.problem or info.activity),
    }
