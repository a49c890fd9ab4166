"""How a run ended, whichever transport it took: what we did, how its program ended, one status."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum import errors
from geminorum.events import Cost, Done, Error, Event, Status
from geminorum.hints import advice
from geminorum.wire.callbacks.request_gate import limit_in
from geminorum.wire.causes import (
    CHECK_KEY,
    DAILY,
    KINDS_OF_EXIT,
    KINDS_OF_STATUS,
    NO_SUCH_MODEL,
    WRONG_KEY,
    cause_of,
    http_status,
    last_words,
    said_by_api,
    worth_retrying,
)

Stop: TypeAlias = Literal[
    "cancel",
    "timeout",
    "start_timeout",
    "stall",
    "bad_policy",
    "budget",
    "no_price",
    "unasked",
    "unrestricted",
    "no_answer",
    "turns",
    "network",
    "waiting",
]
FIRST_WORD = "waiting for the CLI's first output"
"""The phase between the start of a program and its first line."""
POLICY_ERROR = "Policy file error"
"""What the CLI says on stderr before it goes on without the policy."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process ended, and whether we had a hand in it."""

    exit_code: int | None
    """Negative: killed by that signal. None: it could not be learned."""
    stderr: str = ""
    stop: Stop | None = None
    limit: float | None = None
    """The seconds that a time limit allowed."""
    phase: str | None = None
    """What was going on, where it had not yet come to the prompt: "opening a session"."""
    network: str = ""
    """What could not be reached, and why; empty where all was well."""
    newer: str = ""
    """What to do about a CLI that came after this release; empty where it is a known one."""
    is_lapsed: bool = False
    """Was it killed because our lease over it has passed?"""
    question: str = ""
    """The id of the question that is left to wait, where that ended the run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    status: Status
    error: Error | None = None


def conclusion(
    verdict: Verdict, price: Cost | str, *, at: int, session_id: str | None, **facts: Any
) -> list[Event]:
    """The last events of a run: the failure, if there is one, and the `Done` with these facts."""
    envelope: dict[str, Any] = {"timestamp": at, "session_id": session_id}
    error = verdict.error
    failure = [] if error is None else [msgspec.structs.replace(error, **envelope)]
    cost, note = (price, None) if isinstance(price, Cost) else (None, price)
    return [*failure, Done(verdict.status, cost=cost, cost_note=note, **facts, **envelope)]


STATUS_OF_EXIT: dict[int, Status] = {0: "success", 53: "max_turns", 130: "interrupted"}
_SESSION_TAKEN = re.compile(r"Session ID \"[^\"]*\" already exists")
_USAGE = re.compile(r"(.*?)\nUsage: gemini ", re.S)
_REFUSED_FLAG = re.compile(
    r"^(?:error: )?unknown (?:argument|option)s?: ?(?P<unknown>.+)"
    r"|^(?:error: )?unknown option '(?P<option>[^']+)'"
    r"|^\s*Argument: (?P<valued>[\w-]+), Given: .*",
    re.M | re.I,
)


def status_of_exit(exit_code: int) -> Status:
    """The bare exit-code table, for a program that left nothing else to judge by."""
    return STATUS_OF_EXIT.get(exit_code, "error")


def looped() -> Verdict:
    """What became of a run that the CLI ended because the agent repeated itself."""
    return failed(errors.LoopDetected, "the CLI stopped the agent because it repeated itself")


def stopped(ending: Ending) -> Verdict:
    """What became of a run that we ended."""
    match ending.stop:
        case "timeout" | "start_timeout" | "stall" | "network":
            return _out_of_time(ending)
        case "bad_policy":
            hint = "fix the policy file that the message names: the CLI would run without it"
            return failed(errors.ConfigError, last_words(ending.stderr), hint=hint)
        case "unasked":
            text = "a tool ran although nobody was asked: the CLI's hooks are switched off"
            return failed(errors.ConfigError, text, hint=_NO_HOOKS)
        case "unrestricted":
            text = "a tool ran although these options deny it: the CLI does not apply the policy"
            return failed(errors.ConfigError, text, hint=_with_trial(ending.newer))
        case "no_answer":
            return Verdict("error")  # The transport says what was wrong with it.
        case "budget":
            return Verdict("max_budget")
        case "turns":
            return Verdict("max_turns")
        case "waiting":
            return _left_waiting(ending.question)
        case "no_price":
            text = "the budget cannot be kept: a model answered whose price is not known"
            return failed(errors.BudgetExceeded, text, hint=_NO_PRICE)
        case _:
            return Verdict("interrupted")


def _left_waiting(question: str) -> Verdict:
    text = f"question {question[:8]} is not answered yet: the run ends, and the question waits"
    verdict = failed(errors.WaitingForAnswer, text)
    assert verdict.error is not None
    return Verdict("error", msgspec.structs.replace(verdict.error, question=question))


def _with_trial(advice: str) -> str:
    trial = "`geminorum doctor --try` says which restrictions hold on this CLI"
    return f"{trial}; {advice}" if advice else trial


def _out_of_time(ending: Ending) -> Verdict:
    match ending.stop:
        case "timeout":
            text = f"timed out after {ending.limit:g} s" if ending.limit else "timed out"
            phase = f" while {ending.phase}" if ending.phase else ""
            return failed(errors.RunTimeout, text + phase)
        case "start_timeout":
            text = f"no output from the program for {ending.limit or 0:g} s"
            return failed(errors.StartTimeout, _with_reason(text, ending.stderr))
        case "stall":
            text = f"the program fell silent for {ending.limit or 0:g} s"
            return failed(errors.Stalled, _with_reason(text, ending.stderr))
        case _:
            text = f"{ending.network}; gave up after {ending.limit or 0:g} s"
            return failed(errors.NetworkError, text, hint=_NO_NETWORK)


_NO_NETWORK = advice(
    f"{errors.NetworkError.default_hint}[; {{Options.network_timeout=…}} tries for longer]"
)
LAPSED = "killed before its result: the lease of this process over its agents has passed"
_RENEW = advice("renew the lease and ask again[; what arrived is in {.result}]")
_NO_HOOKS = 'look for "hooksConfig" in the settings of the folder and of the system'
_NO_PRICE = advice(
    "[pass {Cli.prices=PriceBook(…)} with its price][, or leave {Options.max_budget_usd} out]"
)


def kind_of_failure(message: str, ending: Ending) -> type[errors.GeminorumError]:
    exit_code = ending.exit_code
    status = http_status(message, exit_code)
    if status in KINDS_OF_STATUS:
        return KINDS_OF_STATUS[status]
    kind = KINDS_OF_EXIT.get(exit_code or 0) or cause_of(message)
    if kind is None and NO_SUCH_MODEL.search(ending.stderr):
        return errors.ModelNotFound
    if kind is None:
        return errors.ApiError if status else errors.RunFailed
    return kind


def by_exit(ending: Ending, *, only_garbage: bool = False) -> Verdict:
    """What became of a program that ended without a word about it."""
    code, why = ending.exit_code, last_words(ending.stderr)
    if ending.is_lapsed:
        return failed(errors.MissingResult, LAPSED, recoverable=True, hint=_RENEW)
    if code == 130:
        return Verdict("interrupted")
    if code == 42 and _SESSION_TAKEN.search(why):
        return failed(
            errors.InvalidOptions,
            why,
            hint=advice("pass another {Options.session_id}, or resume it"),
        )
    if refused := refused_flags(ending):
        return refused
    kind = KINDS_OF_EXIT.get(code or 0)
    if kind is errors.InvalidPrompt or (kind is None and code not in (None, 0)):
        kind = cause_of(why) or kind
    if kind is not None:
        return failed(kind, why or f"the CLI exited with {code}")
    if only_garbage:
        return failed(errors.ProtocolError, "not one line of its output was an event")
    return failed(errors.MissingResult, _with_reason(_exit_text(code), why), recoverable=True)


def refused_flags(ending: Ending) -> Verdict | None:
    """What became of a program that does not take its arguments; None where it did."""
    why = last_words(ending.stderr)
    found = _REFUSED_FLAG.search(why) if ending.exit_code == 1 else None
    if found and ending.newer:
        text = f"this CLI does not take {', '.join(_flags_in(found))} as geminorum writes it"
        return failed(errors.SetupError, text, hint=ending.newer)
    usage = _USAGE.match(why)
    if not found and not usage:
        return None
    hint = advice("`gemini --help` lists what this version takes[; see {Cli.extra_args=…}]")
    text = usage[1] if usage else found[0].strip() if found else why
    return failed(errors.InvalidOptions, text, hint=hint)


def _flags_in(found: re.Match[str]) -> list[str]:
    """As they are typed. The CLI repeats `--skip-trust` as `skipTrust`."""
    names = re.split(r",\s*", found["unknown"] or found["option"] or found["valued"])
    flags = dict.fromkeys(f"--{name.strip().lstrip('-')}" for name in names)
    return [flag for flag in flags if flag.islower() or flag.lower() not in map(_joined, flags)]


def _joined(flag: str) -> str:
    return f"--{flag.removeprefix('--').replace('-', '')}"


def _exit_text(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        known = {int(number): number.name for number in signal.Signals}
        return f"killed by {known.get(-exit_code, f'signal {-exit_code}')} before its result"
    return f"exited with code {exit_code} and without a result"


def _with_reason(text: str, stderr: str) -> str:
    why = last_words(stderr).strip()
    return f"{text}: {why.splitlines()[-1]}" if why else text


def refused_by_api(message: str, status: int | None, stderr: str = "") -> Verdict:
    """What became of a run that the API refused, with its HTTP status where that is known."""
    kind = KINDS_OF_STATUS.get(status) or cause_of(message)
    if kind is None and NO_SUCH_MODEL.search(stderr):
        kind = errors.ModelNotFound
    return failed(kind or (errors.ApiError if status else errors.RunFailed), message)


def failed(
    kind: type[errors.GeminorumError],
    message: str,
    *,
    recoverable: bool = False,
    hint: str | None = None,
) -> Verdict:
    """A failure with its kind's own hint."""
    if (limited := limit_in(message)) is not None:
        return Verdict("error", limited)
    if DAILY.search(message):
        hint = "the day's quota is used up: choose another model or key, or go on tomorrow"
    if kind is errors.AuthError and WRONG_KEY.search(message):
        hint = CHECK_KEY
    error = Error(message, kind.code, recoverable, hint or kind.default_hint)
    return Verdict("error", _in_words(error))


def _in_words(error: Error) -> Error:
    """The CLI repeats the API's JSON; this says it as `Api` does, and keeps the numbers."""
    said = said_by_api(error.message)
    if said is None:
        return error
    status = http_status(error.message, None)
    return msgspec.structs.replace(
        error,
        message=f"{said.code} {said.status}: {said.message}",
        status=status,
        retryable=worth_retrying(error.message, status),
    )
