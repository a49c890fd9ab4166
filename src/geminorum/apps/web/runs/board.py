"""The runs that somebody may be looking at: the live ones, and those that ended a while ago."""

from __future__ import annotations

from collections import OrderedDict

from geminorum.apps.web.runs.change_signal import ChangeSignal
from geminorum.apps.web.runs.info import RunInfo

_KEPT = 500
"""Runs on the board; what falls off is found in the book. Those that go on never do: who answers
a question looks here for the run that takes the answer."""


class RunBoard:
    """The latest facts of each run, and when they changed."""

    def __init__(self, changes: ChangeSignal) -> None:
        self._changes = changes
        self._runs: OrderedDict[str, tuple[int, RunInfo]] = OrderedDict()

    def put(self, info: RunInfo) -> None:
        self._runs[info.id] = (self._changes.announce(), info)
        self._runs.move_to_end(info.id)
        if len(self._runs) > _KEPT:
            over = next((id for id, (_, one) in self._runs.items() if not one.is_live), None)
            if over is not None:
                self.remove(over)

    def remove(self, id: str) -> None:
        self._runs.pop(id, None)

    def get(self, id: str) -> RunInfo | None:
        _, info = self._runs.get(id, (0, None))
        return info

    def changed_since(self, revision: int) -> list[RunInfo]:
        """Those that changed after this revision, the latest last."""
        found = []
        # The latest are at the end: nothing before the first known one can be new.
        for changed, info in reversed(self._runs.values()):
            if changed <= revision:
                break
            found.append(info)
        return found[::-1]

    @property
    def live(self) -> list[RunInfo]:
        return [info for _, info in self._runs.values() if info.is_live]
