"""Events: everything an agent can report, as frozen values that convert to JSON and back.

`encode` and `decode` are inverses. Match on the classes or on `.type`, and ignore events you do not
know: newer versions may add some.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from geminorum.errors import InvalidEvent
from geminorum.runtime import typed

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DataT = TypeVar("DataT", default=Any, covariant=True)
    """The type of `result.data`: `Options(output_schema=Invoice)` is an `Options[Invoice]`."""
else:
    # Python has no defaults for type variables before 3.13.
    from typing import TypeVar

    DataT = TypeVar("DataT", covariant=True)

Status: TypeAlias = Literal["success", "error", "interrupted", "max_turns", "max_budget"]
Permission: TypeAlias = Literal["allow", "allow_always", "deny"]


class Tokens(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Tokens that one model consumed."""

    input: int = 0
    """Input tokens, including cached ones."""
    output: int = 0
    """Tokens of the visible answer."""
    cached: int = 0
    """The part of `input` that came from the cache."""
    thoughts: int = 0
    """Thinking tokens; billed as output."""
    tool: int = 0
    """Tokens of built-in tools' results; billed as input."""
    total: int = 0


class ModelRequest(Tokens, frozen=True, repr_omit_defaults=True):
    """Tokens that one request to a model consumed."""

    model: str = ""
    timestamp: int = 0
    """Milliseconds since 1970."""


class Usage(Tokens, frozen=True, repr_omit_defaults=True):
    """Tokens that a run consumed: in total, per model and per request."""

    by_model: dict[str, Tokens] = {}
    tool_calls: int = 0
    exact: bool = False
    """False if thought and tool tokens were reported only as one sum, which is in `thoughts`, or if
    the run was stopped: the request in progress was not counted."""
    requests: tuple[ModelRequest, ...] = ()
    """The requests in the session file. The CLI's internal requests (such as model routing) count
    only in the sums."""


class CostLine(msgspec.Struct, frozen=True):
    """Tokens of one kind at one price."""

    kind: Literal["input", "cached", "output", "thoughts"]
    tokens: int
    per_million: Decimal
    """US dollars per million tokens."""

    @property
    def usd(self) -> Decimal:
        return self.tokens * self.per_million / 1_000_000

    def __str__(self) -> str:
        return f"{self.tokens:>13,} {self.kind:<8} * ${self.per_million:f}/M = ${self.usd:f}"


class ModelCost(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One model's share of the cost, in US dollars."""

    usd: Decimal
    tokens: Tokens
    lines: tuple[CostLine, ...] = ()


Billing: TypeAlias = Literal["api_key", "vertex", "google_account"]


class Cost(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The cost of a run. If it cannot be known, there is no Cost rather than a Cost of zero."""

    usd: Decimal
    """The cost at the price per token, no matter who pays."""
    by_model: dict[str, ModelCost] = {}
    exact: bool = False
    billing: Billing | None = None
    """Who pays, if known."""

    @property
    def billed_usd(self) -> Decimal:
        """The amount charged for the tokens: zero unless an API key pays per token."""
        return self.usd if self.billing in (None, "api_key") else Decimal("0.00")

    def explain(self) -> str:
        """The calculation line by line, then the sum."""
        rows = []
        for name, share in self.by_model.items():
            rows += [name, *map(str, share.lines)]
        kind = "exact" if self.exact else "estimate"
        return "\n".join([*rows, f"total: ${self.usd:f} ({kind}){_PAYERS[self.billing]}"])


_PAYERS: dict[Billing | None, str] = {
    None: "",
    "api_key": "",
    "vertex": ", billed by Google Cloud, which has prices of its own",
    "google_account": ", not billed: a Google account pays by subscription",
}


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    # gc=False below: events hold plain JSON values, which cannot form cycles, so the garbage
    # collector has nothing to find in them. It halves the cost of a long stream.
    # `type` is a class attribute of each, a Literal: `if event.type == "text"` narrows to Text.
    agent: str = "gemini"
    timestamp: int = 0
    """Milliseconds since 1970."""
    session_id: str | None = None
    frame: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The line it was read from, to the letter; unset for an event of our own making."""

    _hidden: ClassVar[frozenset[str]] = frozenset({"agent", "timestamp", "session_id", "frame"})

    @property
    def raw(self) -> Any:
        """The frame as plain data, None where there was none."""
        return None if self.frame is msgspec.UNSET else msgspec.json.decode(self.frame)

    def __repr__(self) -> str:
        shown = (
            f"{name}={_shown(value)}"
            for name in self.__struct_fields__
            if name not in self._hidden and (value := getattr(self, name)) is not None
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except RecursionError:  # JSON may be nested deeper than Python can show.
        return "…"


class Init(_Event, frozen=True, gc=False, tag="init"):
    """The run has started. Pass `session_id` as `resume` later."""

    type: ClassVar[Literal["init"]] = "init"
    _hidden: ClassVar[frozenset[str]] = frozenset({"agent", "timestamp", "frame"})

    model: str | None = None
    """The model requested; "auto" does not tell which model answered."""
    cwd: str | None = None
    tools: list[str] | None = None
    """None: not reported."""


class TextDelta(_Event, frozen=True, gc=False, tag="text_delta"):
    """A piece of an answer, as it is written."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


class Text(_Event, frozen=True, gc=False, tag="text"):
    """A complete assistant message; its deltas came before."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class Thinking(_Event, frozen=True, gc=False, tag="thinking"):
    """The model's thoughts, if the transport reports them."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str


class ToolUse(_Event, frozen=True, gc=False, tag="tool_use"):
    """The agent calls a tool."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    name: str
    id: str | None = None
    input: dict[str, Any] = {}


class ToolResult(_Event, frozen=True, gc=False, tag="tool_result"):
    """The result of a tool call."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    id: str | None = None
    name: str | None = None
    """Taken from the ToolUse with the same id: the CLI does not repeat it."""
    status: Literal["success", "error", "denied"] = "success"
    output: Any = None
    """The output for display, or the error text if a tool failed without output. None if the CLI
    displays nothing (`list_directory`): use `event.output or event.content`."""
    error_type: str | None = None
    duration: float | None = None
    """Seconds, if reported."""
    content: str | None = None
    """What the model received. The CLI's stream does not have it: on `Cli` and `Acp` it comes from
    the session file, and is None if it is not there."""


class PermissionRequest(_Event, frozen=True, gc=False, tag="permission_request"):
    """The agent asks to use a tool. One PermissionDecision with the same id follows."""

    type: ClassVar[Literal["permission_request"]] = "permission_request"
    name: str
    id: str | None = None
    input: dict[str, Any] = {}
    reason: str | None = None
    decision: Permission | None = None
    """None: the answer is the PermissionDecision. Set only in events saved before that event
    existed."""


class PermissionDecision(_Event, frozen=True, gc=False, tag="permission_decision"):
    """The answer to the PermissionRequest with the same id."""

    type: ClassVar[Literal["permission_decision"]] = "permission_decision"
    name: str
    decision: Permission
    id: str | None = None
    reason: str | None = None
    """Why it was denied, if `decide` said so; also a timeout, an exception, a cancelled run."""


class Error(_Event, frozen=True, gc=False, tag="error"):
    """Something went wrong. If it is not `recoverable`, a failed Done follows."""

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: str | None = None
    recoverable: bool = False
    hint: str | None = None
    """What to do next."""
    status: int | None = None
    """The HTTP status of the API, if reported."""
    retryable: bool | None = None
    """Whether the same request may succeed a little later. None: depends on the kind of error."""
    retry_after: float | None = None
    """Seconds to wait, as the API asks."""
    question: str | None = None
    """The id of the question in the inbox that the run has left to wait, with the code WAITING."""


class UserMessage(_Event, frozen=True, gc=False, tag="user_message"):
    """The prompt, echoed. Never agent text."""

    type: ClassVar[Literal["user_message"]] = "user_message"
    text: str


class Unknown(_Event, frozen=True, gc=False, tag="unknown"):
    """A frame that this version does not know, complete in `.frame` and `.raw`."""

    type: ClassVar[Literal["unknown"]] = "unknown"
    kind: str | None = None
    """The frame's own type name."""


class Done(_Event, frozen=True, gc=False, tag="done"):
    """Always the last event; there is exactly one."""

    type: ClassVar[Literal["done"]] = "done"
    status: Status
    usage: Usage | None = None
    """None: not reported."""
    cost: Cost | None = None
    """None: unknown, which is not the same as zero."""
    cost_note: str | None = None
    """Why the cost is unknown."""
    duration: float = 0.0
    """Seconds, by geminorum's clock."""
    resume: str | None = None
    """The session id to resume."""
    exit_code: int | None = None
    stop_reason: str | None = None
    """The API's reason why the last answer ended ("STOP", "SAFETY" …), if reported."""
    data: Any = None
    """The answer as plain data, if `output_schema` was set."""


Event: TypeAlias = (
    Init
    | TextDelta
    | Text
    | Thinking
    | ToolUse
    | ToolResult
    | PermissionRequest
    | PermissionDecision
    | Error
    | Done
    | UserMessage
    | Unknown
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = typed.decoder(Event)


def encode(event: Event) -> bytes:
    """Encodes an event as one line of JSON, without a newline.

    Raises InvalidEvent if it is nested too deeply.
    """
    try:
        return _encoder.encode(event)
    except RecursionError as error:
        raise InvalidEvent("nested too deeply", hint="leave the event out") from error


def decode(line: bytes | str) -> Event:
    """Decodes a line that `encode` wrote. Raises InvalidEvent if it is not an event."""
    try:
        return _decoder.decode(line)
    except RecursionError as error:
        raise InvalidEvent("nested too deeply") from error
    except ValueError as error:
        raise InvalidEvent(f"no event: {error}") from error


def total_of(shares: Collection[Tokens]) -> Tokens:
    """The sum over several models or requests."""
    columns = [[getattr(share, name) for share in shares] for name in Tokens.__struct_fields__]
    return Tokens(*map(sum, columns))
