"""Converts the core's result to the adapter's: with its cost, and whether to keep its session."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec

from geminorum import FileChange, Result
from geminorum.contracts.local_adapter.config import GeminiLocalConfig, camel_cased, hint_for
from geminorum.contracts.local_adapter.transcript import TranscriptEntry, build_transcript
from geminorum.cost import PriceBook, billing, cost_of, unknown_because
from geminorum.errors import (
    ApiError,
    BudgetExceeded,
    ContextOverflow,
    GeminorumError,
    Incomplete,
    RunFailed,
    RunTimeout,
    SessionLost,
    TurnLimit,
)
from geminorum.events import Billing, Done, Event, Status, Tokens, Usage

_SPEAKS_OF_SESSIONS = re.compile("session|resume", re.I)
_JSON = msgspec.json.Encoder(decimal_format="number")


class LocalResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a run. A failure does not raise: it says why and keeps what had arrived."""

    success: bool
    status: Status | Literal["not_started"] = "not_started"
    error: str | None = None
    error_code: str | None = None
    """The code of a class in `geminorum.errors`: "SESSION_LOST", "AUTH" …"""
    hint: str | None = None
    """What to do next."""
    retryable: bool = False
    output: str = ""
    session_id: str | None = None
    resumable: bool = False
    """Whether another run can resume `session_id`. The CLI does not keep a failed first prompt."""
    clear_session: bool = False
    """The session is no longer usable: forget it."""
    fresh_session: bool = False
    """The session was lost; this is the second attempt, without it."""
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    """None: unknown, which is not the same as zero."""
    cost_source: str = "no-usage"
    """"list:<models>", "table:<models>", "cli", "not-billed", "unknown-model" or "no-usage"."""
    cost_note: str | None = None
    """Why the cost is unknown."""
    billing: Billing | None = None
    """Who pays, according to the environment."""
    model: str | None = None
    files: Sequence[FileChange] = ()
    """The files the agent wrote, in order."""
    transcript: Sequence[TranscriptEntry] = ()
    warnings: Sequence[str] = ()
    timed_out: bool = False
    exit_code: int | None = None
    stderr: str = ""
    duration: float = 0.0
    """Seconds."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON: camelCase keys, costs as numbers; defaults are left out."""
        plain: dict[str, Any] = msgspec.json.decode(_JSON.encode(self))
        for owner in (plain, *plain.get("transcript", ())):
            if "usage" in owner:
                owner["usage"] = {camel_cased(key): part for key, part in owner["usage"].items()}
        return plain

    def changed(self, **values: Any) -> LocalResult:
        return msgspec.structs.replace(self, **values)

    @property
    def did_something(self) -> bool:
        """Whether the agent spoke or acted; a second attempt would then repeat it."""
        kinds = {entry.__struct_config__.tag for entry in self.transcript}
        return not kinds.isdisjoint({"assistant", "tool_call"})


def local_result(
    result: Result,
    events: Sequence[Event],
    config: GeminiLocalConfig,
    *,
    resumed: str | None = None,
    prices: PriceBook | None = None,
    warnings: Sequence[str] = (),
) -> LocalResult:
    """The run in the adapter's words."""
    error = result.exception()
    clear = _session_is_lost(error, events, resumed)
    bill = bill_of(result, config.merged_env, prices)
    kept = result.session_id or (None if clear else resumed)
    return LocalResult(
        success=result.ok,
        status="error" if result.status == "running" else result.status,
        **_error_fields(error, config),
        output=result.text,
        session_id=kept,
        resumable=kept is not None and not clear and (kept == resumed or _is_stored(error)),
        clear_session=clear,
        usage=result.usage,
        cost_usd=bill.usd,
        cost_source=bill.source,
        cost_note=bill.note,
        billing=bill.payer,
        model=result.model,
        files=result.files,
        transcript=build_transcript(events, result.stderr),
        warnings=warnings,
        exit_code=result.exit_code,
        stderr=result.stderr,
        duration=result.duration,
    )


def not_started(
    error: GeminorumError,
    config: GeminiLocalConfig,
    *,
    resumed: str | None = None,
    warnings: Sequence[str] = (),
) -> LocalResult:
    """For what failed before there was a run. The session that was to go on is still there."""
    lost = isinstance(error, SessionLost)
    return LocalResult(
        success=False,
        **_error_fields(error, config),
        session_id=None if lost else resumed,
        resumable=resumed is not None and not lost,
        clear_session=lost,
        billing=billing(config.merged_env),
        warnings=warnings,
        exit_code=error.exit_code,
        stderr=error.stderr,
    )


class Bill(msgspec.Struct, frozen=True):
    """The cost of a run for the payer, and the source of the figure."""

    payer: Billing
    usd: Decimal | None
    source: str
    note: str | None = None


def bill_of(result: Result, env: Mapping[str, str], prices: PriceBook | None = None) -> Bill:
    told = result.cost if prices is None else None
    payer = (told.billing if told else None) or billing(env)
    if payer != "api_key":
        return Bill(payer, Decimal("0.00"), "not-billed")
    usage = _by_model(result)
    cost = told or cost_of(usage, prices)
    if cost is None:
        source = "no-usage" if usage is None else "unknown-model"
        return Bill(payer, None, source, unknown_because(usage, prices))
    book = "list" if prices is None else "table"
    return Bill(payer, cost.usd, f"{book}:{'+'.join(cost.by_model)}" if cost.by_model else "cli")


def _by_model(result: Result) -> Usage | None:
    """The usage, put down to the model that was asked for where the CLI names none."""
    usage = result.usage
    if usage is None or usage.by_model or result.model is None:
        return usage
    share = Tokens(*(getattr(usage, name) for name in Tokens.__struct_fields__))
    return msgspec.structs.replace(usage, by_model={result.model: share})


def _error_fields(error: GeminorumError | None, config: GeminiLocalConfig) -> dict[str, Any]:
    if error is None:
        return {}
    timed_out = isinstance(error, RunTimeout)
    limit = config.timeout_sec or 0
    return {
        "error": f"Process timed out after {limit:g}s" if timed_out else error.message,
        "error_code": error.code,
        "hint": hint_for(error.hint),
        "retryable": error.retryable,
        "timed_out": timed_out,
    }


def _is_stored(error: GeminorumError | None) -> bool:
    """Has the CLI kept the session of a first prompt? It takes back one that failed, not one that
    was stopped."""
    return error is None or isinstance(error, Incomplete | TurnLimit | BudgetExceeded)


def _session_is_lost(
    error: GeminorumError | None, events: Sequence[Event], resumed: str | None
) -> bool:
    if isinstance(error, SessionLost):
        return True
    if isinstance(error, ContextOverflow):
        # The next prompt would only make it longer.
        return resumed is not None
    # The shape's own rule. Only where the CLI reported a failure and no better cause is known: a
    # login that ends the "session" must not cost the conversation.
    unexplained = type(error) in (RunFailed, ApiError)
    return unexplained and _reported(events) and bool(_SPEAKS_OF_SESSIONS.search(str(error)))


def _reported(events: Sequence[Event]) -> bool:
    last = events[-1] if events else None
    return isinstance(last, Done) and last.frame is not msgspec.UNSET
