"""How a run ended: what the CLI said, how its process ended and what we did, to one status.

The order holds: our own cancel or time limit, then the turn limit, then the `result`, then the
exit code. What the model wrote is never looked at: it may speak of quotas and logins all it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from geminorum import errors
from geminorum.events import Cost, Error, Event, ModelRequest, Usage
from geminorum.wire.ending import (
    Ending,
    Verdict,
    by_exit,
    conclusion,
    failed,
    kind_of_failure,
    looped,
    stopped,
)
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.stream_json.dialects import error_message
from geminorum.wire.stream_json.frames import ResultFrame, told_cost, usage_of

_SUCCESS = frozenset({"success", "completed", "ok"})
_TURN_LIMIT = frozenset(
    {"max_turns", "maxturns", "turn_limit", "max_turns_exhausted", "turn_limit_exhausted"}
)
_INTERRUPTED = frozenset({"interrupted", "cancelled", "canceled", "aborted"})
_BUDGET = frozenset({"max_budget", "max_budget_usd", "budget"})


def last_events(
    seen: StreamDecoder,
    ending: Ending,
    *,
    at: int = 0,
    duration: float = 0.0,
    price: Callable[[Usage | None], Cost | str] = lambda usage: "not asked for",
    requests: Sequence[ModelRequest] = (),
) -> list[Event]:
    """What follows the last byte: text that was still open, the failure if any, and the `Done`."""
    rest = seen.close()
    usage = usage_of(seen.result.stats if seen.result else None, seen.tool_uses, requests)
    ended = conclusion(
        judge(seen, ending),
        told_cost(seen.result) or price(usage),
        at=at,
        session_id=seen.session_id,
        usage=usage,
        duration=duration,
        resume=seen.session_id,
        exit_code=ending.exit_code,
        frame=msgspec.Raw(seen.result_line) if seen.result_line else msgspec.UNSET,
    )
    return [*rest, *ended]


def replay(stdout: bytes, exit_code: int | None = 0, stderr: str = "") -> list[Event]:
    """The events of a recorded run."""
    seen = StreamDecoder()
    return [*seen.feed(stdout), *last_events(seen, Ending(exit_code, stderr))]


def judge(seen: StreamDecoder, ending: Ending) -> Verdict:
    """What became of the run."""
    if ending.stop is not None:
        return stopped(ending)
    if _turn_limited(seen.result, ending.exit_code):
        return Verdict("max_turns")
    if seen.result is not None:
        return _by_result(seen, seen.result, ending)
    return by_exit(ending, only_garbage=bool(seen.garbage and not seen.frames))


def _turn_limited(result: ResultFrame | None, exit_code: int | None) -> bool:
    if exit_code == 53:
        return True
    if result is None:
        return False
    kind = result.error.get("type") if isinstance(result.error, dict) else None
    told = {result.status, result.stop_reason}
    return kind == "FatalTurnLimitedError" or not told.isdisjoint(_TURN_LIMIT)


def _by_result(seen: StreamDecoder, result: ResultFrame, ending: Ending) -> Verdict:
    if result.status in _INTERRUPTED or _was_cancelled(result):
        return Verdict("interrupted")
    if result.status in _BUDGET:
        return Verdict("max_budget")
    if result.status not in _SUCCESS:
        return _reported_failure(seen, result, ending)
    if seen.failed_after_result and seen.failure is not None:
        return Verdict("error")
    if seen.looped:
        return looped()
    if _overflowed(seen, result):
        text = "the CLI reported an empty success: the prompt is larger than the model's window"
        return failed(errors.ContextOverflow, text)
    return Verdict("success")


def _was_cancelled(result: ResultFrame) -> bool:
    return isinstance(result.error, dict) and result.error.get("type") == "FatalCancellationError"


def _overflowed(seen: StreamDecoder, result: ResultFrame) -> bool:
    # `models` was added in 0.40; without it an empty answer says nothing.
    models = result.stats.models if result.stats else None
    return models == {} and not seen.answered and seen.failure is None


def _reported_failure(seen: StreamDecoder, result: ResultFrame, ending: Ending) -> Verdict:
    message = error_message(result.error)
    if message is None and seen.failure is not None:
        # The cause was told in an error event before, which stands in the stream already.
        return Verdict("error")
    if message is None:
        raw = seen.result_line.decode("utf-8", "replace")
        return failed(errors.RunFailed, f"Gemini result error: {raw}")
    code = result.error.get("code") if isinstance(result.error, dict) else None
    if isinstance(code, str):
        return Verdict("error", Error(message, code))
    kind = kind_of_failure(message, ending)
    if kind is errors.NetworkError and ending.network:
        # The CLI says only that a fetch failed.
        message = ending.network
    return failed(kind, message)
