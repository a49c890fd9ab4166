"""The exception hierarchy. Errors say what happened and what to do, and keep the partial result.

```text
GeminorumError          .code .hint .status .result .exit_code .stderr .session_id
│                       .retryable .retry_after
├── SetupError          fix the machine, then try again; the message says how
│   ├── CliNotFound     no Gemini CLI, or no Node to run it
│   ├── CliTooOld       older than 0.11, which has no event stream; than 0.51 for Acp
│   ├── AuthError       no login, a wrong key, an account that is no longer served
│   ├── TrustError      the CLI refuses an untrusted folder
│   ├── ConfigError     a settings file that the CLI cannot read
│   └── SandboxError    the requested sandbox is not installed
├── InvalidOptions      also a ValueError; raised before anything starts
│   └── InvalidPrompt   empty, or larger than the CLI reads
├── SessionUnreadable   the file does not hold a saved session
├── StoreError          the session store failed, or holds nothing that can be read
│   └── StoreConflict   another writer was first; stores raise it
├── InvalidEvent        also a ValueError; `events.decode` cannot read the line
├── WorkspaceError      a folder cannot travel, or a patch cannot come back; `.paths`
│   ├── WorkspaceTooLarge
│   ├── InvalidPack     the file is no pack or patch, is damaged, or could do harm
│   └── WorkspaceConflict  files changed on both sides; nothing was written
├── FleetError          the fleet cannot do what was asked
│   ├── FleetUnavailable  its database does not answer; .retryable
│   └── UnknownJob      there is no such job, or it was pruned
├── InboxError          the inbox cannot do what was asked
│   ├── InboxUnavailable  its store does not answer; .retryable
│   ├── UnknownQuestion there is no such question, or several begin so
│   └── QuestionClosed  it expired or was withdrawn; .question
│       └── AlreadyAnswered  another answer was first; .question.answer says whose
├── Unsupported         the transport cannot honour a setting; raised before anything starts
├── PoolBusy            no place in the pool became free in time
├── RunFailed           the agent itself reported failure
│   ├── ApiError        the Gemini API refused the request; see .status
│   │   ├── QuotaError  too many requests, or the daily quota is used up
│   │   ├── ServerError Google's side failed or is overloaded
│   │   └── ModelNotFound
│   ├── NetworkError    the API was unreachable for `network_timeout` seconds
│   ├── InvalidAnswer   the answer was empty, broken, or did not match the schema
│   │   ├── Blocked     a filter held back the prompt or the answer
│   │   └── AnswerCut   the answer reached its maximum length
│   ├── ContextOverflow the prompt is larger than the model's context window
│   ├── SessionLost     the session to resume does not exist
│   ├── SessionBusy     another run or turn is using the session
│   ├── TurnLimit       `max_turns` was reached
│   ├── BudgetExceeded  `max_budget_usd` was reached
│   ├── LimitReached    a limit of the fleet refused a request, or ends the wait for it
│   ├── LoopDetected    the CLI stopped an agent that repeated itself
│   └── ToolFailed      a tool error that ended the run (disk full)
└── Incomplete          the run was cut short; the partial result is in `.result`
    ├── RunTimeout      `timeout` passed
    ├── StartTimeout    the program never responded
    ├── Stalled         the program was silent for too long
    ├── Interrupted     cancelled by the caller
    ├── WaitingForAnswer  nobody answered yet; the question stays in the inbox; .question_id
    ├── MissingResult   the program ended without its final `result`
    ├── EndedEarly      the API's answer stopped without a finish reason
    └── ProtocolError   the program printed something other than the event stream
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from geminorum.hints import advice

if TYPE_CHECKING:
    from geminorum.inbox.question import Question
    from geminorum.views.result import Result


class GeminorumError(Exception):
    """Base class of all errors that geminorum raises on purpose."""

    code: ClassVar[str] = "ERROR"
    default_hint: ClassVar[str | None] = None
    default_retryable: ClassVar[bool] = False
    default_status: ClassVar[int | None] = None

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        status: int | None = None,
        result: Result | None = None,
        exit_code: int | None = None,
        stderr: str = "",
        session_id: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        self.status = self.default_status if status is None else status
        """The HTTP status of the API, if reported."""
        self.result = result
        self.exit_code = exit_code
        self.stderr = stderr
        self.session_id = session_id
        self.retryable = self.default_retryable if retryable is None else retryable
        self.retry_after = retry_after
        """Seconds to wait, if the API asked for it."""

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone and lose every keyword.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[GeminorumError], args: tuple[Any, ...]) -> GeminorumError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class SetupError(GeminorumError):
    code = "SETUP"


class CliNotFound(SetupError):
    code = "CLI_NOT_FOUND"
    default_hint = advice(
        "install it with `{install|python -m geminorum.install}` or "
        "`npm install -g @google/gemini-cli`[, or name it: {Cli.executable=…}]"
    )


class CliTooOld(SetupError):
    code = "CLI_TOO_OLD"
    default_hint = "update it with `npm install -g @google/gemini-cli@latest`"


class AuthError(SetupError):
    code = "AUTH"
    default_hint = advice(
        "{set_key|set GEMINI_API_KEY} (a key from https://aistudio.google.com/apikey) or configure "
        "Vertex AI; Google ended the CLI's Google login for consumers on 18 June 2026 and refers "
        "them to Antigravity; with a company licence, run `gemini` once and log in"
    )


class TrustError(SetupError):
    code = "TRUST"
    default_hint = advice(
        "leave {Options.trust_workspace=None} to run without the folder's own settings, "
        "or pass {Options.trust_workspace=True|True} to load them"
    )


class ConfigError(SetupError):
    code = "CONFIG"
    default_hint = "fix the settings file that the message names"


class SandboxError(SetupError):
    code = "SANDBOX"
    default_hint = "install the sandbox program that the message names, or unset GEMINI_SANDBOX"


class InvalidOptions(GeminorumError, ValueError):
    code = "INVALID_OPTIONS"


class InvalidPrompt(InvalidOptions):
    code = "INPUT"
    default_hint = "pass a prompt with some text in it"


class SessionUnreadable(GeminorumError):
    code = "SESSION_UNREADABLE"
    default_hint = "name a file under ~/.gemini/tmp/<project>/chats"


class StoreError(GeminorumError):
    code = "STORE"
    default_hint = advice(
        "check that the store in {Options.store=…} can be reached and has room; what was not saved "
        "is still on this machine, and the next turn saves it"
    )
    default_retryable = True


class StoreConflict(StoreError):
    code = "STORE_CONFLICT"
    default_hint = "read the session again: it was continued elsewhere"
    default_retryable = False


class InvalidEvent(GeminorumError, ValueError):
    code = "INVALID_EVENT"
    default_hint = advice("pass one line that [{`events.encode`} or ]`geminorum run --json` wrote")


class WorkspaceError(GeminorumError):
    code = "WORKSPACE"

    def __init__(self, message: str = "", *, paths: Sequence[str] = (), **more: Any) -> None:
        # Names that are not UTF-8 are in `paths`; a message has to be printable.
        super().__init__(_encodable(message), **more)
        self.hint = self.hint and _encodable(self.hint)
        self.paths = tuple(paths)
        """The names that the error is about."""


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class WorkspaceTooLarge(WorkspaceError):
    code = "WORKSPACE_TOO_LARGE"


class InvalidPack(WorkspaceError):
    code = "INVALID_PACK"
    default_hint = "make it again, and check where it comes from"


class WorkspaceConflict(WorkspaceError):
    code = "CONFLICT"


class FleetError(GeminorumError):
    code = "FLEET"


class FleetUnavailable(FleetError):
    code = "FLEET_UNAVAILABLE"
    default_hint = "check GEMINORUM_DB, and that PostgreSQL runs there and lets you in"
    default_retryable = True


class UnknownJob(FleetError):
    code = "UNKNOWN_JOB"
    default_hint = "check the id, and that GEMINORUM_DB is the database that it was submitted to"


class InboxError(GeminorumError):
    code = "INBOX"


class InboxUnavailable(InboxError):
    code = "INBOX_UNAVAILABLE"
    default_hint = "check GEMINORUM_INBOX and GEMINORUM_DB: is there room, and may you write there?"
    default_retryable = True


class UnknownQuestion(InboxError):
    code = "UNKNOWN_QUESTION"
    default_hint = "`geminorum inbox list` shows the questions and their ids"


class QuestionClosed(InboxError):
    code = "QUESTION_CLOSED"

    def __init__(self, message: str = "", *, question: Question | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.question = question
        """The question as it is now."""


class AlreadyAnswered(QuestionClosed):
    code = "ALREADY_ANSWERED"
    default_hint = "the first answer counts; `geminorum inbox show` shows it"


class Unsupported(GeminorumError):
    code = "UNSUPPORTED"


class PoolBusy(GeminorumError):
    code = "POOL_BUSY"
    default_hint = advice(
        "try again later[, or raise {Pool.size=…}, {Pool.at_once=…} or {Pool.wait=…}]"
    )
    default_retryable = True


class RunFailed(GeminorumError):
    code = "RUN_FAILED"


class ApiError(RunFailed):
    code = "API"
    default_hint = "the message is the API's own: change what it names"


class QuotaError(ApiError):
    code = "QUOTA"
    default_retryable = True
    default_status = 429
    default_hint = "wait and try again, choose another model, or raise the quota of the key"


class ServerError(ApiError):
    code = "SERVER"
    default_retryable = True
    default_hint = "try again in a moment, or choose another model"


class ModelNotFound(ApiError):
    code = "MODEL_NOT_FOUND"
    default_status = 404
    default_hint = advice("check {Options.model=…}; `geminorum models` lists the models")


class NetworkError(RunFailed):
    code = "NETWORK"
    default_retryable = True
    default_hint = "check the connection, HTTPS_PROXY and GOOGLE_GEMINI_BASE_URL"


class InvalidAnswer(RunFailed):
    code = "INVALID_ANSWER"
    default_retryable = True
    default_hint = "ask again, or rephrase the prompt"


class Blocked(InvalidAnswer):
    code = "BLOCKED"
    default_retryable = False
    default_hint = advice(
        "rephrase the prompt[; `safety_settings` in {Api.config=…} control the filters]"
    )


class AnswerCut(InvalidAnswer):
    code = "LENGTH"
    default_retryable = False
    default_hint = advice(
        "[raise {api.max_output_tokens|`max_output_tokens` in Api(config=…)}, or ]ask for less"
        "[; see {.result.text}]"
    )


class ContextOverflow(RunFailed):
    code = "CONTEXT_OVERFLOW"
    default_hint = "shorten the prompt, or let the agent read the material from files"


class SessionLost(RunFailed):
    code = "SESSION_LOST"
    default_hint = advice(
        "start a new session without {Options.resume|`resume`}; "
        "a session belongs to the folder it began in"
    )


class SessionBusy(RunFailed):
    code = "SESSION_BUSY"
    default_hint = advice(
        "wait until that run has ended, or start a new session without {Options.resume|`resume`}"
    )
    default_retryable = True


class TurnLimit(RunFailed):
    code = "TURN_LIMIT"
    default_hint = advice("[raise {Options.max_turns=…}, or ]resume the session to continue")


class BudgetExceeded(RunFailed):
    code = "BUDGET"
    default_hint = advice("[raise {Options.max_budget_usd=…}, or ]resume the session to continue")


class LimitReached(RunFailed):
    code = "LIMIT_REACHED"
    default_status = 429
    default_hint = "wait until the limit lets more through; `geminorum fleet limits list` shows it"


class LoopDetected(RunFailed):
    code = "LOOP"
    default_hint = advice(
        "say in the prompt what to do instead, or when to stop"
        '[; {settings={"model": {"disableLoopDetection": True}}} lets it go on]'
    )


class ToolFailed(RunFailed):
    code = "TOOL_FAILED"
    default_hint = "read the message: a full disk is the usual cause"


class Incomplete(GeminorumError):
    code = "INCOMPLETE"
    default_retryable = True


class RunTimeout(Incomplete):
    code = "TIMEOUT"
    default_hint = advice("[raise {Options.timeout=…}][; what arrived is in {.result}]")


class StartTimeout(Incomplete):
    code = "START_TIMEOUT"
    default_hint = advice(
        "[see {.stderr}][; a slow machine needs {Cli.start_timeout=…}[, {None} waits forever]]"
    )


class Stalled(Incomplete):
    code = "STALLED"
    default_hint = advice(
        "[see {.stderr}][; a model that thinks long needs {Cli.stall_timeout=…}[, {None} waits on]]"
    )


class Interrupted(Incomplete):
    code = "INTERRUPTED"
    default_retryable = False


class WaitingForAnswer(Incomplete):
    code = "WAITING"
    default_hint = advice(
        "answer it with `geminorum inbox allow` or `deny`, and add --resume to go on"
        "[; or {inbox.answer(…)} and {inbox.resume(…)}]"
    )
    default_retryable = False

    def __init__(self, message: str = "", *, question_id: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.question_id = question_id or _waiting_question(self.result)


def _waiting_question(result: Result | None) -> str:
    told = [error.question for error in result.errors if error.question] if result else []
    return told[-1] if told else ""


class MissingResult(Incomplete):
    code = "MISSING_RESULT"
    default_hint = advice(
        "[see {.stderr}; ][check that {Cli.executable=…} is the Gemini CLI, then ]ask again"
        "[; what arrived is in {.result}]"
    )


class EndedEarly(Incomplete):
    code = "ENDED_EARLY"
    default_hint = advice("ask again[; what arrived is in {.result}]")


class ProtocolError(Incomplete):
    code = "PROTOCOL"
    default_retryable = False
    default_hint = advice(
        "is this the Gemini CLI? Its output was not the event stream[; see {.stderr}]"
    )


class NewerCliWarning(UserWarning):
    """The installed Gemini CLI is newer than the newest that this geminorum was tested with.

    Said once per version and process. The run goes on; ignore it with `warnings.filterwarnings`.
    """


def class_for(code: str | None) -> type[GeminorumError]:
    """Returns the exception class for an `Error` event's code; RunFailed for unknown codes."""
    return _BY_CODE.get(code or "", RunFailed)


def _family(kind: type[GeminorumError]) -> list[type[GeminorumError]]:
    return [kind, *(name for child in kind.__subclasses__() for name in _family(child))]


_BY_CODE = {kind.code: kind for kind in _family(GeminorumError)}
