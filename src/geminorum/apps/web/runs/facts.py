"""The facts of a run, kept up to date by its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from geminorum.apps.web.runs.info import LIVE, RunInfo
from geminorum.events import (
    Done,
    Error,
    Event,
    Init,
    PermissionDecision,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    ToolUse,
)
from geminorum.views.transcript import TranscriptCall, one_line

_SHOWN_OF_TEXT = 80
"""Characters from the end of a text that is being written."""


class RunFacts:
    """What lists show about a run that goes on."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self._said = ""
        """The end of the text that is being written."""
        self._error: str | None = None
        """The last one; if the run fails, it says why."""

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if changes := self._changes_by(event):
                self.change(**changes)

    def change(self, **changes: Any) -> None:
        if self.info.status == "stopping" and changes.get("status") in LIVE:
            del changes["status"]  # It goes on until its end, but not for long.
        self.info = msgspec.structs.replace(self.info, **changes)

    def _changes_by(self, event: Event) -> dict[str, Any]:
        if not isinstance(event, TextDelta):
            self._said = ""
        match event:
            case Init():
                return _known(session_id=event.session_id, model=event.model, status="running")
            case TextDelta():
                self._said = (self._said + event.text)[-_SHOWN_OF_TEXT:]
                return {"activity": " ".join(self._said.split())}
            case Text():
                return {"activity": one_line(event.text.lstrip("#*`> \n"))}
            case ToolUse():
                gist = " ".join(filter(None, [event.name, TranscriptCall(event).gist]))
                return {"activity": gist, "tools": self.info.tools + 1}
            case Error():
                self._error = event.message
                return {}
            case Done():
                problem = None if event.status == "success" else self._error
                return {**_at_the_end(event), **_known(problem=problem)}
            case _:
                return _in_between(event)


def _in_between(event: Event) -> dict[str, Any]:
    match event:
        case Thinking():
            return {"activity": f"thinks: {one_line(event.text)}"}
        case PermissionRequest():
            return {"activity": f"asks to use {event.name}", "status": "waiting"}
        case PermissionDecision():
            return {"activity": f"{event.decision}: {event.name}", "status": "running"}
        case _:
            return {}


def _at_the_end(done: Done) -> dict[str, Any]:
    return _known(
        status=done.status,
        ended=done.timestamp,
        session_id=done.resume or done.session_id,
        tokens=done.usage.total if done.usage else None,
        usd=float(done.cost.usd) if done.cost else None,
    )


def _known(**facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}
