"""The vocabulary: everything an agent can say, as frozen values that turn to JSON and back.

`encode` and `decode` are inverse. A consumer matches on the classes, or on `.type`; it should pass
over events it does not know, because newer versions may add some.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from geminorum.errors import InvalidEvent

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
    """What one model consumed."""

    input: int = 0
    """Tokens read, those from the cache included."""
    output: int = 0
    """Tokens of the visible answer."""
    cached: int = 0
    """The part of `input` that came from the cache."""
    thoughts: int = 0
    """Tokens of thinking; billed as output."""
    tool: int = 0
    """Tokens of built-in tools' results; billed as input."""
    total: int = 0


class ModelRequest(Tokens, frozen=True, repr_omit_defaults=True):
    """What one request to a model consumed."""

    model: str = ""
    timestamp: int = 0
    """Milliseconds since 1970."""


class Usage(Tokens, frozen=True, repr_omit_defaults=True):
    """What a run consumed: the sum, each model's share, each request."""

    by_model: dict[str, Tokens] = {}
    tool_calls: int = 0
    exact: bool = False
    """False where thoughts and tool tokens were told only as one sum, which stands in `thoughts`;
    and where the run was stopped, since what it was at was not counted."""
    requests: tuple[ModelRequest, ...] = ()
    """As far as the session file tells them; the CLI's own small questions (which model to take)
    stand only in the sums."""


class CostLine(msgspec.Struct, frozen=True):
    """Tokens of one kind at one price."""

    kind: Literal["input", "cached", "output", "thoughts"]
    tokens: int
    per_million: Decimal
    """US dollars."""

    @property
    def usd(self) -> Decimal:
        return self.tokens * self.per_million / 1_000_000

    def __str__(self) -> str:
        return f"{self.tokens:>13,} {self.kind:<8} * ${self.per_million:f}/M = ${self.usd:f}"


class ModelCost(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One model's share of a bill, in US dollars."""

    usd: Decimal
    tokens: Tokens
    lines: tuple[CostLine, ...] = ()


Billing: TypeAlias = Literal["api_key", "vertex", "google_account"]


class Cost(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What a run cost. There is no Cost, rather than a Cost of zero, where it cannot be known."""

    usd: Decimal
    """At the price for each token, whoever pays."""
    by_model: dict[str, ModelCost] = {}
    exact: bool = False
    billing: Billing | None = None
    """Who pays, where that is known."""

    @property
    def billed_usd(self) -> Decimal:
        """What is charged for the tokens: nothing where no API key pays for each."""
        return self.usd if self.billing in (None, "api_key") else Decimal("0.00")

    def explain(self) -> str:
        """The arithmetic, line by line, then the sum."""
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
    """The run has begun. `session_id` is what `resume` takes later."""

    type: ClassVar[Literal["init"]] = "init"
    _hidden: ClassVar[frozenset[str]] = frozenset({"agent", "timestamp", "frame"})

    model: str | None = None
    """What was asked for; "auto" says nothing about the model that answered."""
    cwd: str | None = None
    tools: list[str] | None = None
    """None: not told."""


class TextDelta(_Event, frozen=True, gc=False, tag="text_delta"):
    """A piece of an answer, as it is written."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


class Text(_Event, frozen=True, gc=False, tag="text"):
    """A whole assistant message; the deltas that made it came before."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class Thinking(_Event, frozen=True, gc=False, tag="thinking"):
    """What the model thought, where the door tells."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str


class ToolUse(_Event, frozen=True, gc=False, tag="tool_use"):
    """The agent asks for a tool."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    name: str
    id: str | None = None
    input: dict[str, Any] = {}


class ToolResult(_Event, frozen=True, gc=False, tag="tool_result"):
    """What a tool gave back."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    id: str | None = None
    name: str | None = None
    """Joined from the ToolUse with the same id: the CLI does not repeat it."""
    status: Literal["success", "error", "denied"] = "success"
    output: Any = None
    """What a person would be shown; the error's text where a tool failed without output. None where
    the CLI shows nothing (`list_directory`): write `event.output or event.content`."""
    error_type: str | None = None
    duration: float | None = None
    """Seconds, where told."""
    content: str | None = None
    """What the model was told. The CLI's stream does not say it: on `Cli` and `Acp` it is joined
    from the session file, and None where that tells nothing."""


class PermissionRequest(_Event, frozen=True, gc=False, tag="permission_request"):
    """The agent asks whether it may use a tool. One PermissionDecision with the same id follows."""

    type: ClassVar[Literal["permission_request"]] = "permission_request"
    name: str
    id: str | None = None
    input: dict[str, Any] = {}
    reason: str | None = None
    decision: Permission | None = None
    """None; the answer is the PermissionDecision. Only events that were saved before that event
    existed have it here."""


class PermissionDecision(_Event, frozen=True, gc=False, tag="permission_decision"):
    """The answer to the PermissionRequest with the same id."""

    type: ClassVar[Literal["permission_decision"]] = "permission_decision"
    name: str
    decision: Permission
    id: str | None = None
    reason: str | None = None
    """Why it was denied, where `decide` said it; also a timeout, an exception, a cancelled run."""


class Error(_Event, frozen=True, gc=False, tag="error"):
    """Something went wrong. Where it is not `recoverable`, a failed Done follows."""

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: str | None = None
    recoverable: bool = False
    hint: str | None = None
    """What to type next."""
    status: int | None = None
    """The HTTP status of the API, where it was told."""
    retryable: bool | None = None
    """Would the same request succeed a little later? None: that goes by the kind of error."""
    retry_after: float | None = None
    """Seconds that the API asks to wait."""


class UserMessage(_Event, frozen=True, gc=False, tag="user_message"):
    """The prompt, echoed. Never agent text."""

    type: ClassVar[Literal["user_message"]] = "user_message"
    text: str


class Unknown(_Event, frozen=True, gc=False, tag="unknown"):
    """A frame this version has no word for, whole in `.frame` and `.raw`."""

    type: ClassVar[Literal["unknown"]] = "unknown"
    kind: str | None = None
    """What the frame called itself."""


class Done(_Event, frozen=True, gc=False, tag="done"):
    """Always the last event, and always exactly one."""

    type: ClassVar[Literal["done"]] = "done"
    status: Status
    usage: Usage | None = None
    """None: nothing was reported."""
    cost: Cost | None = None
    """None: it cannot be known. Not the same as nothing to pay."""
    cost_note: str | None = None
    """Why the cost cannot be known."""
    duration: float = 0.0
    """Seconds, by our own clock."""
    resume: str | None = None
    """The session to go on with."""
    exit_code: int | None = None
    stop_reason: str | None = None
    """The API's own word for why the last answer ended: "STOP", "SAFETY" …, where told."""
    data: Any = None
    """The answer as plain data, where `output_schema` asked for some."""


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
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """One line of JSON, without its newline; InvalidEvent where it is nested too deeply."""
    try:
        return _encoder.encode(event)
    except RecursionError as error:
        raise InvalidEvent("nested too deeply", hint="leave the event out") from error


def decode(line: bytes | str) -> Event:
    """The event that `encode` made the line from; InvalidEvent where the line is no event."""
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
