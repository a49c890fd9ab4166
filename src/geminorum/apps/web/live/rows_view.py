"""The list of runs, as its page follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminorum.apps.web.live.facts import facts_of
from geminorum.apps.web.live.stream import Message
from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.runs.runs import Runs


class RowsView:
    """The rows that changed since the last look; the first time, all that may have."""

    def __init__(self, runs: Runs, since: int, draw: Callable[[RunInfo], str]) -> None:
        """`since` is when the reader's page was made, in milliseconds: later runs are new to it."""
        self._runs, self._draw = runs, draw
        self._since = since
        self._known = 0
        self._sent: set[str] = set()

    async def messages(self) -> Sequence[Message]:
        revision = self._runs.changes.revision
        changed = self._runs.board.changed_since(self._known)
        self._known = revision
        return [Message("rows", [self._row(info) for info in changed])] if changed else []

    def _row(self, info: RunInfo) -> dict[str, object]:
        if info.started < self._since or info.id in self._sent:
            return facts_of(info)
        self._sent.add(info.id)
        return {**facts_of(info), "html": self._draw(info)}
