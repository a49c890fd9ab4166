"""How a run ended: what the CLI said, how its process ended and what we did, to one status.

The order holds: our own cancel or time limit, then the turn limit, then the `result`, then the
exit code. What the model wrote is never looked at: it may speak of quotas and logins all it likes.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum import errors, typed
from geminorum.events import Cost, Done, Error, Event, ModelRequest, Status, Usage
from geminorum.wire.dialects import told
from geminorum.wire.frames import ResultFrame, told_cost, usage_of
from geminorum.wire.stream_json import StreamDecoder

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


@dataclass(frozen=True, slots=True)
class Verdict:
    status: Status
    error: Error | None = None


STATUS_OF_EXIT: dict[int, Status] = {0: "success", 53: "max_turns", 130: "interrupted"}

_KINDS_OF_EXIT: dict[int, type[errors.GeminorumError]] = {
    41: errors.AuthError,
    42: errors.InvalidPrompt,
    44: errors.SandboxError,
    52: errors.ConfigError,
    54: errors.ToolFailed,
    55: errors.TrustError,
}
_KINDS_OF_STATUS: dict[int | None, type[errors.GeminorumError]] = {
    401: errors.AuthError,
    403: errors.AuthError,
    404: errors.ModelNotFound,
    429: errors.QuotaError,
    500: errors.ServerError,
    502: errors.ServerError,
    503: errors.ServerError,
    504: errors.ServerError,
}
_SUCCESS = frozenset({"success", "completed", "ok"})
_TURN_LIMIT = frozenset(
    {"max_turns", "maxturns", "turn_limit", "max_turns_exhausted", "turn_limit_exhausted"}
)
_INTERRUPTED = frozenset({"interrupted", "cancelled", "canceled", "aborted"})
_BUDGET = frozenset({"max_budget", "max_budget_usd", "budget"})

# Only for text that the CLI itself wrote. Each is a whole phrase of it: a bare "auth" would also
# match "author".
_PHRASES: tuple[tuple[type[errors.GeminorumError], re.Pattern[str]], ...] = (
    (
        errors.SessionLost,
        re.compile(
            r"Error resuming session|unknown session|session \S+ not found"
            r"|checkpoint \S+ not found",
            re.I,
        ),
    ),
    (
        errors.ContextOverflow,
        re.compile(
            r"input token count exceeds|Context window will overflow"
            r"|exceeds the maximum number of tokens",
            re.I,
        ),
    ),
    (
        errors.AuthError,
        re.compile(
            r"Invalid auth method|set an Auth method|FatalAuthenticationError|IneligibleTierError"
            r"|API key not valid|API_KEY_INVALID|\bUNAUTHENTICATED\b"
            r"|must specify the GEMINI_API_KEY|Error authenticating"
            r"|Could not load the default credentials|GOOGLE_APPLICATION_CREDENTIALS",
        ),
    ),
    (
        errors.ModelNotFound,
        re.compile(r"\bNOT_FOUND\b|is not found for API version|Requested entity was not found"),
    ),
    (
        errors.QuotaError,
        re.compile(
            r"\bRESOURCE_EXHAUSTED\b|exceeded your current quota|exhausted your .{0,20}quota"
        ),
    ),
    (
        errors.NetworkError,
        re.compile(
            r"getaddrinfo|\bENOTFOUND\b|\bEAI_AGAIN\b|\bECONNREFUSED\b|\bECONNRESET\b|\bETIMEDOUT\b"
            r"|fetch failed"
        ),
    ),
)
# A 404 leaves with exit 1 and the API's bare message; only the name of the exception tells it.
_NO_SUCH_MODEL = re.compile(r"^(?!Error executing tool).*\bModelNotFoundError: ", re.M)
WRONG_KEY = re.compile(r"API_KEY_INVALID|API key (?:not valid|expired)")
CHECK_KEY = "check GEMINI_API_KEY; https://aistudio.google.com/apikey lists your keys"
_API_CODE = re.compile(r'(?:"code":\s*|\bHTTP )(\d{3})\b')
_API_JSON = re.compile(r'(?:\[API Error: )?(\{"error":.*\})\]?', re.S)
_DAILY = re.compile(r"daily quota|PerDay|per day", re.I)
_SESSION_TAKEN = re.compile(r"Session ID \"[^\"]*\" already exists")
_USAGE = re.compile(r"(.*?)\nUsage: gemini ", re.S)
_REFUSED_FLAG = re.compile(
    r"^(?:error: )?unknown (?:argument|option)s?: ?(?P<unknown>.+)"
    r"|^(?:error: )?unknown option '(?P<option>[^']+)'"
    r"|^\s*Argument: (?P<valued>[\w-]+), Given: .*",
    re.M | re.I,
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(
    r"^(?:Ripgrep is not available|\[STARTUP\]|YOLO mode is enabled"
    r"|Warning: (?:256-color|True|Basic terminal)"
    r"|Error executing tool|Full report available at|\s+at )"
)


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
    events = seen.close()
    verdict = judge(seen, ending)
    envelope: dict[str, Any] = {"timestamp": at, "session_id": seen.session_id}
    if verdict.error is not None:
        events.append(msgspec.structs.replace(verdict.error, **envelope))
    usage = usage_of(seen.result.stats if seen.result else None, seen.tool_uses, requests)
    cost = told_cost(seen.result) or price(usage)
    done = Done(
        verdict.status,
        usage=usage,
        cost=cost if isinstance(cost, Cost) else None,
        cost_note=cost if isinstance(cost, str) else None,
        duration=duration,
        resume=seen.session_id,
        exit_code=ending.exit_code,
        frame=msgspec.Raw(seen.result_line) if seen.result_line else msgspec.UNSET,
        **envelope,
    )
    return [*events, done]


def replay(stdout: bytes, exit_code: int | None = 0, stderr: str = "") -> list[Event]:
    """The events of a recorded run."""
    seen = StreamDecoder()
    return [*seen.feed(stdout), *last_events(seen, Ending(exit_code, stderr))]


def status_of_exit(exit_code: int) -> Status:
    """The bare exit-code table, for a program that left nothing else to judge by."""
    return STATUS_OF_EXIT.get(exit_code, "error")


def judge(seen: StreamDecoder, ending: Ending) -> Verdict:
    """What became of the run."""
    if ending.stop is not None:
        return stopped(ending)
    if _turn_limited(seen.result, ending.exit_code):
        return Verdict("max_turns")
    if seen.result is not None:
        return _by_result(seen, seen.result, ending)
    return by_exit(ending, only_garbage=bool(seen.garbage and not seen.frames))


def looped() -> Verdict:
    """What became of a run that the CLI ended because the agent repeated itself."""
    return failed(errors.LoopDetected, "the CLI stopped the agent because it repeated itself")


def cause_of(text: str) -> type[errors.GeminorumError] | None:
    """The kind of failure that a message of the CLI speaks of."""
    return next((kind for kind, phrase in _PHRASES if phrase.search(text)), None)


def last_words(stderr: str) -> str:
    """The part of stderr that says why, without colours and everyday noise."""
    lines = (line.rstrip() for line in _ANSI.sub("", stderr).split("\n"))
    return "\n".join(line for line in lines if line and not _NOISE.match(line))


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
            return Verdict("error")  # The door says what was wrong with it.
        case "budget":
            return Verdict("max_budget")
        case "turns":
            return Verdict("max_turns")
        case "no_price":
            text = "the budget cannot be kept: a model answered whose price is not known"
            return failed(errors.BudgetExceeded, text, hint=_NO_PRICE)
        case _:
            return Verdict("interrupted")


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


_NO_NETWORK = f"{errors.NetworkError.default_hint}; Options(network_timeout=…) tries for longer"
_NO_HOOKS = 'look for "hooksConfig" in the settings of the folder and of the system'
_NO_PRICE = "pass Cli(prices=PriceBook(…)) with its price, or leave max_budget_usd out"


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
    message = told(result.error)
    if message is None and seen.failure is not None:
        # The cause was told in an error event before, which stands in the stream already.
        return Verdict("error")
    if message is None:
        raw = seen.result_line.decode("utf-8", "replace")
        return failed(errors.RunFailed, f"Gemini result error: {raw}")
    code = result.error.get("code") if isinstance(result.error, dict) else None
    if isinstance(code, str):
        return Verdict("error", Error(message, code))
    kind = _cause(message, ending)
    if kind is errors.NetworkError and ending.network:
        # The CLI says only that a fetch failed.
        message = ending.network
    return failed(kind, message)


def _cause(message: str, ending: Ending) -> type[errors.GeminorumError]:
    exit_code = ending.exit_code
    status = http_status(message, exit_code)
    if status in _KINDS_OF_STATUS:
        return _KINDS_OF_STATUS[status]
    kind = _KINDS_OF_EXIT.get(exit_code or 0) or cause_of(message)
    if kind is None and _NO_SUCH_MODEL.search(ending.stderr):
        return errors.ModelNotFound
    if kind is None:
        return errors.ApiError if status else errors.RunFailed
    return kind


def http_status(message: str, exit_code: int | None) -> int | None:
    """The API's HTTP status, told by the message or, mod 256, by the exit code."""
    if found := _API_CODE.search(message):
        return int(found[1])
    # 400 … 511 leave as 144 … 255; 143 and below are the shell's signal codes and the CLI's own.
    return exit_code + 256 if exit_code is not None and 144 <= exit_code <= 255 else None


def worth_retrying(message: str, status: int | None) -> bool | None:
    """Would the same request succeed a little later? None: that depends on the kind of error."""
    if _DAILY.search(message):
        return False
    return None if status is None else status in (408, 429, 500, 502, 503, 504)


def by_exit(ending: Ending, *, only_garbage: bool = False) -> Verdict:
    """What became of a program that ended without a word about it."""
    code, why = ending.exit_code, last_words(ending.stderr)
    if code == 130:
        return Verdict("interrupted")
    if code == 42 and _SESSION_TAKEN.search(why):
        return failed(errors.InvalidOptions, why, hint="pass another session_id, or resume it")
    if refused := refused_flags(ending):
        return refused
    kind = _KINDS_OF_EXIT.get(code or 0)
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
    hint = "`gemini --help` lists what this version takes; see Cli(extra_args=…)"
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
    kind = _KINDS_OF_STATUS.get(status) or cause_of(message)
    if kind is None and _NO_SUCH_MODEL.search(stderr):
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
    if _DAILY.search(message):
        hint = "the day's quota is used up: choose another model or key, or go on tomorrow"
    if kind is errors.AuthError and WRONG_KEY.search(message):
        hint = CHECK_KEY
    error = Error(message, kind.code, recoverable, hint or kind.default_hint)
    return Verdict("error", _in_words(error))


def _in_words(error: Error) -> Error:
    """The CLI repeats the API's JSON; this says it as `Api` does, and keeps the numbers."""
    said = _said_by_api(error.message)
    if said is None:
        return error
    status = http_status(error.message, None)
    return msgspec.structs.replace(
        error,
        message=f"{said.code} {said.status}: {said.message}",
        status=status,
        retryable=worth_retrying(error.message, status),
    )


class _ApiFailure(msgspec.Struct):
    code: int
    message: str
    status: str


class _ApiBody(msgspec.Struct):
    error: _ApiFailure


def _said_by_api(message: str) -> _ApiFailure | None:
    found = _API_JSON.fullmatch(message)
    try:
        return typed.decode(found[1], _ApiBody).error if found else None
    except msgspec.DecodeError:
        return None
