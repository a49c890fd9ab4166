"""How a turn of a warm CLI ended: its answer, the session file's word, and what we did."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from geminorum import errors
from geminorum.events import Cost, Error, Event, ModelRequest, Usage
from geminorum.hints import advice
from geminorum.wire.acp.decoder import AcpDecoder
from geminorum.wire.acp.protocol import Prompted, Quota, RpcError
from geminorum.wire.causes import cause_of
from geminorum.wire.ending import (
    Ending,
    Verdict,
    by_exit,
    conclusion,
    failed,
    looped,
    refused_by_api,
    refused_flags,
    stopped,
)
from geminorum.wire.usage import usage_of_requests

_NO_FLAG = re.compile(r"Unknown arguments?: .*\bacp\b")
_AUTH_REQUIRED = -32000
# The CLI reports 500 for every failure whose HTTP status it does not know, an unknown model too.
_NO_STATUS = 500
_EMPTY = "the CLI reported a success, but the model's answer was empty, blocked or broken"
_NEWER = advice("a newer CLI may say it in other words: update geminorum[, or use {via.cli|Cli()}]")
_CUT = "the CLI reported a success, but the model's answer was cut off"


@dataclass(frozen=True, slots=True)
class Round:
    """The requests that one question to the model took: more than one where it was asked again."""

    requests: tuple[ModelRequest, ...] = ()
    answered: bool = True
    """Did the CLI save an answer? It forgets those that broke."""


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """All that is known at the end of a turn."""

    process: Ending
    """What we did, and how the process ended, if it did."""
    reply: Prompted | None = None
    error: RpcError | None = None
    rounds: Sequence[Round] = ()
    requests: Sequence[ModelRequest] = ()
    """Those of subagents too."""
    unseen_requests: bool = False
    """Does the CLI send requests of its own, which are not counted, to choose a model?"""
    has_turn_limit: bool = False
    """Do settings of the CLI limit the turns? It gives the same reason for that as for a loop."""
    failure: Error | None = None
    """What kept the prompt from being asked at all."""


def last_events(
    seen: AcpDecoder,
    ending: TurnEnding,
    *,
    at: int = 0,
    duration: float = 0.0,
    price: Callable[[Usage | None], Cost | str] = lambda usage: "not asked for",
    resume: str | None = None,
) -> list[Event]:
    """What follows the last update: text that was still open, the failure if any, the `Done`."""
    verdict, rest = judge(seen, ending), seen.close(at)
    usage = turn_usage(seen, ending)
    ended = conclusion(
        verdict,
        price(usage),
        at=at,
        session_id=seen.session_id,
        usage=usage,
        duration=duration,
        resume=resume or seen.session_id,
        exit_code=ending.process.exit_code,
    )
    return [*rest, *ended]


def judge(seen: AcpDecoder, ending: TurnEnding) -> Verdict:
    """What became of the turn."""
    if ending.process.stop is not None:
        return stopped(ending.process)
    if ending.failure is not None:
        return Verdict("error", ending.failure)
    if ending.error is not None:
        return reported(ending.error, ending.process)
    if ending.reply is None:
        return by_exit(ending.process)
    match ending.reply.stop_reason:
        case "end_turn":
            return _by_answer(seen, ending)
        case "cancelled":
            return Verdict("interrupted")
        case "max_tokens":
            text = "the CLI sent nothing: the prompt is larger than the model's window"
            return failed(errors.ContextOverflow, text)
        case "max_turn_requests":
            return Verdict("max_turns") if ending.has_turn_limit else looped()
        case "":
            text = "the CLI gave no stop reason that geminorum knows with the end of the turn"
            return failed(errors.ProtocolError, text, hint=_NEWER)
        case other:
            return failed(errors.InvalidAnswer, f"the model's turn ended with {other!r}")


def reported(error: RpcError, ending: Ending) -> Verdict:
    """What an error of the protocol means."""
    if error.code == _AUTH_REQUIRED:
        return failed(errors.AuthError, error.message)
    message = _text(error)
    api_told = f'"code":{error.code}' in message
    cause = None if api_told else cause_of(message)
    if cause is errors.NetworkError:
        return failed(errors.NetworkError, ending.network or message)
    if cause is not None and error.code == _NO_STATUS:
        return failed(cause, message)
    if error.code < 0:
        return refused_by_api(message, None, ending.stderr)
    told = message if api_told else f"HTTP {error.code}: {message}"
    return refused_by_api(told, error.code, ending.stderr)


def ended_early(ending: Ending) -> Verdict:
    """What became of a process that ended before it had answered at all."""
    if ending.newer and (refused := refused_flags(ending)):
        return refused
    if _NO_FLAG.search(ending.stderr):
        hint = advice(
            "update it with `npm install -g @google/gemini-cli@latest`[, or use {via.cli|Cli()}]"
        )
        return failed(errors.CliTooOld, "this CLI does not know --acp", hint=hint)
    return by_exit(ending)


def _text(error: RpcError) -> str:
    """The message; JSON-RPC's own "Internal error" has the cause beside it."""
    match error.data:
        case {"details": str(details)}:
            return details
        case _:
            return error.message


def _by_answer(seen: AcpDecoder, ending: TurnEnding) -> Verdict:
    # The CLI gives up on a broken answer in silence.
    if not seen.spoke_last and seen.unread:
        text = f"{_EMPTY}, or came as what geminorum cannot read: {', '.join(seen.unread)}"
        return failed(errors.InvalidAnswer, text, hint=_NEWER)
    if not seen.spoke_last:
        return failed(errors.InvalidAnswer, _EMPTY)
    if was_cut(ending.reply.quota if ending.reply else None, ending.rounds):
        return failed(errors.InvalidAnswer, _CUT)
    return Verdict("success")


def was_cut(quota: Quota | None, rounds: Sequence[Round]) -> bool:
    """Was the last answer not counted by the CLI? It counts only those that were whole."""
    if quota is None or not rounds or _counts(rounds[:-1]) != _token_counts(quota):
        return False
    return not rounds[-1].answered or _counts(rounds) != _token_counts(quota)


def fits(quota: Quota | None, rounds: Sequence[Round]) -> bool:
    """Does the session file have every request that the CLI counted?"""
    return quota is not None and _counts(rounds) == _token_counts(quota)


def turn_usage(seen: AcpDecoder, ending: TurnEnding) -> Usage | None:
    """The turn's tokens, request by request; without the file, the sums of the wire."""
    usage = usage_of_requests(ending.requests, seen.tool_uses)
    quota = ending.reply.quota if ending.reply else None
    if usage is None:
        return _from_wire(quota, seen.tool_uses)
    exact = fits(quota, ending.rounds) and not ending.unseen_requests
    return msgspec.structs.replace(usage, exact=exact)


def _from_wire(quota: Quota | None, tool_uses: int) -> Usage | None:
    if quota is None or not quota.model_usage:
        return None
    sums = quota.token_count
    both = sums.input_tokens + sums.output_tokens
    return Usage(sums.input_tokens, sums.output_tokens, total=both, tool_calls=tool_uses)


def _token_counts(quota: Quota) -> tuple[int, int]:
    return quota.token_count.input_tokens, quota.token_count.output_tokens


def _counts(rounds: Sequence[Round]) -> tuple[int, int]:
    # Where a question was asked again, the last answer is the one that counted.
    last = [one.requests[-1] for one in rounds if one.requests]
    return sum(request.input for request in last), sum(request.output for request in last)
