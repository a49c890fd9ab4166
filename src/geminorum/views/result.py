"""The result of a run, from its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal

import msgspec

from geminorum.errors import (
    BudgetExceeded,
    GeminorumError,
    Interrupted,
    SessionLost,
    TurnLimit,
    class_for,
)
from geminorum.events import (
    Cost,
    DataT,
    Done,
    Error,
    Event,
    Init,
    Status,
    Text,
    TextDelta,
    ToolResult,
    ToolUse,
    Usage,
)
from geminorum.runtime.lazy import lazy_module
from geminorum.views.files import FileChange, FileFold

if TYPE_CHECKING:
    from geminorum.wire import causes
else:
    # Only an error needs it, and it is as large as all that `geminorum.run` loads.
    causes = lazy_module("geminorum.wire.causes")


class ToolCall(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A tool call of the agent and its outcome."""

    name: str
    input: dict[str, Any] = {}
    status: Literal["success", "error", "denied"] | None = None
    """None: the run ended before the tool did."""
    id: str | None = None


class Result(msgspec.Struct, Generic[DataT], frozen=True, kw_only=True, repr_omit_defaults=True):
    """The result of a run; partial after a failure or a cancellation."""

    text: str = ""
    """All messages of the agent, concatenated."""
    status: Status | Literal["running"] = "running"
    session_id: str | None = None
    model: str | None = None
    """The model that did most of the work, if reported; otherwise the one requested."""
    usage: Usage | None = None
    cost: Cost | None = None
    cost_note: str | None = None
    """Why the cost is unknown."""
    files: list[FileChange] = []
    tools: list[ToolCall] = []
    """The tool calls in order, with their outcomes; the last 1,000 of a run with more."""
    tools_left_out: int = 0
    """The number of earlier tool calls that `tools` no longer has."""
    errors: list[Error] = []
    stderr: str = ""
    duration: float = 0.0
    exit_code: int | None = None
    data: DataT = None  # type: ignore[assignment]
    """The answer as an `output_schema` value, None without a schema; plain data in a recorded run.
    If the run failed, `live.result.data` is None."""

    @property
    def ok(self) -> bool:
        return self.status == "success"

    @property
    def clear_session(self) -> bool:
        """Whether the session to resume was gone; if you stored its id, forget it."""
        return any(error.code == SessionLost.code for error in self.errors)

    def exception(self) -> GeminorumError | None:
        """Returns the typed error if the run failed; None after a success."""
        if self.status in ("success", "running"):
            return None
        cause = self._cause()
        kind = _KINDS.get(self.status) or class_for(cause.code)
        status = cause.status
        if status is None and self.status == "error":
            status = causes.http_status(cause.message, self.exit_code)
        known = cause.retryable
        details: dict[str, Any] = {
            "status": status,
            "retryable": causes.worth_retrying(cause.message, status) if known is None else known,
            "retry_after": cause.retry_after,
            "hint": cause.hint,
            "result": self,
            "exit_code": self.exit_code,
            "stderr": self.stderr,
            "session_id": self.session_id,
        }
        return kind(cause.message, **details)

    def raise_on_failure(self) -> Result[DataT]:
        """Returns itself after a success; otherwise raises `exception()`."""
        if (error := self.exception()) is not None:
            raise error
        return self

    def _cause(self) -> Error:
        if self.status != "error":
            return Error(_ENDINGS[self.status])
        fatal = [error for error in self.errors if not error.recoverable]
        last = (fatal or self.errors)[-1:]
        return last[0] if last else Error("the run failed", "RUN_FAILED")


_ENDINGS: dict[str, str] = {
    "interrupted": "the run was cancelled",
    "max_turns": "the run reached its limit of turns",
    "max_budget": "the run reached its budget",
}
_KINDS: dict[str, type[GeminorumError]] = {
    "interrupted": Interrupted,
    "max_turns": TurnLimit,
    "max_budget": BudgetExceeded,
}


_SHORT, _MANY = 1000, 1000
KEPT_CALLS = 1000
"""A run may go on for days; its result does not grow with it. The events have every call."""


class _ToolFold:
    """Remembers the latest calls and the status of each, but no outputs, which may be large."""

    def __init__(self) -> None:
        self.left_out = 0
        self._calls: dict[int, ToolCall] = {}
        self._open: dict[str | None, int] = {}

    def add_call(self, use: ToolUse) -> None:
        number = self.left_out + len(self._calls)
        self._calls[number] = ToolCall(use.name, use.input, None, use.id)
        self._open[use.id] = number
        if len(self._calls) > KEPT_CALLS:
            oldest = self._calls.pop(self.left_out)
            if self._open.get(oldest.id) == self.left_out:
                del self._open[oldest.id]
            self.left_out += 1

    def add_result(self, result: ToolResult) -> None:
        number = self._open.pop(result.id, None)
        if number is not None:
            call = self._calls[number]
            self._calls[number] = msgspec.structs.replace(call, status=result.status)

    def calls(self) -> list[ToolCall]:
        return list(self._calls.values())


class ResultFold:
    """Builds the result while the events pass by; keeps texts and failures, not events."""

    def __init__(self, typed: Callable[[Any], Any] = lambda data: data) -> None:
        self._typed = typed
        """Plain data to the value that the caller asked for."""
        self._texts: list[str] = []
        self._short: list[str] = []
        """The last messages, as long as they are short."""
        self._errors: list[Error] = []
        self._files = FileFold()
        self._tools = _ToolFold()
        self._model: str | None = None
        self.session_id: str | None = None
        self.done: Done | None = None

    def add(self, events: Iterable[Event]) -> None:
        # Deltas are the bulk of every stream; their whole message follows as a Text.
        for event in [event for event in events if type(event) is not TextDelta]:
            self._add(event)

    def _add(self, event: Event) -> None:
        self.session_id = event.session_id or self.session_id
        if isinstance(event, Text):
            self._keep(event.text)
        elif isinstance(event, Error):
            self._errors.append(event)
        elif isinstance(event, Done):
            self.done = event
        else:
            if isinstance(event, Init):
                self._model = event.model
            elif isinstance(event, ToolUse):
                self._tools.add_call(event)
            elif isinstance(event, ToolResult):
                self._tools.add_result(event)
            self._files.add(event)

    def _keep(self, text: str) -> None:
        self._short.append(text)
        # Many short messages become one string: each on its own takes more room than it says.
        # Long ones are not copied.
        if len(text) > _SHORT or len(self._short) == _MANY:
            *short, last = self._short
            self._texts += ["".join(short), last]
            self._short.clear()

    def result(self, stderr: str = "") -> Result[Any]:
        """The result so far."""
        done = self.done
        return Result(
            text="".join(self._texts + self._short),
            status=done.status if done else "running",
            session_id=(done.resume if done else None) or self.session_id,
            model=_busiest(done.usage if done else None) or self._model,
            usage=done.usage if done else None,
            cost=done.cost if done else None,
            cost_note=done.cost_note if done else None,
            files=list(self._files.changes),
            tools=self._tools.calls(),
            tools_left_out=self._tools.left_out,
            errors=list(self._errors),
            stderr=stderr,
            duration=done.duration if done else 0.0,
            exit_code=done.exit_code if done else None,
            data=self._typed(done.data) if done and done.data is not None else None,
        )


def result(events: Iterable[Event]) -> Result[Any]:
    """Returns the result of a recorded run."""
    fold = ResultFold()
    fold.add(events)
    return fold.result()


def _busiest(usage: Usage | None) -> str | None:
    shares = usage.by_model if usage else {}
    return max(shares, key=lambda name: shares[name].total, default=None)
