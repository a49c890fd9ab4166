"""What the transports that start a Gemini CLI have in common: their fields, and checks of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from geminorum.cost import PriceBook
from geminorum.decisions import Decide, Decisions
from geminorum.detect import CliProgram
from geminorum.errors import InvalidOptions
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.redaction import secrets_in_settings
from geminorum.tools import Tool, tools_of
from geminorum.transports.gates import RequestGate
from geminorum.transports.turns.stop_checks import StallTimeout

T = TypeVar("T", bound="CliTransport")


@dataclass(frozen=True, slots=True)
class CliTransport:
    """The base of `Cli` and `Acp`."""

    executable: str | os.PathLike[str] | None = None
    """A path or name. None: search GEMINI_CLI_PATH, PATH and the common locations."""
    grace: float = 5.0
    """Seconds between asking a turn or the process tree to stop and killing it."""
    _: KW_ONLY
    tools: Sequence[Callable[..., Any] | Tool] = ()
    """Functions of this process that the agent may call; `decide` is asked about them."""
    decide: Decide | None = None
    """Answers permission requests. None: they are denied."""
    decide_timeout: float | None = 300.0
    """Seconds until an unanswered request is denied. None: wait forever. An `Inbox` has a deadline
    of its own."""
    answer_attempts: int = 3
    """How often the agent may try to match `output_schema`."""
    extra_args: tuple[str, ...] = ()
    start_timeout: float | None = 60.0
    """Seconds until the first output, or until a warm session is open. None: wait forever."""
    stall_timeout: StallTimeout = "auto"
    """Seconds of silence that end a turn. "auto": 600, with no limit while a tool runs or a
    permission request is open. None: no limit."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """CLI settings for these runs; they override the user's and geminorum's: `{"mcpServers": {…}}`,
    `{"general": {"maxAttempts": 1}}`."""
    fresh_if_lost: bool = False
    """If the session to resume is gone, continue in a new one and report that in the stream."""
    prices: PriceBook | None = None
    """The price book. None: the list prices of the day."""
    heap_mb: int | None = None
    """Heap size of the CLI. None: half of the machine's memory, the CLI's own default."""
    plan_tools: bool = False
    """Offer the tools with which a model leaves plan mode; headless, it approves its own plan and
    goes on in yolo."""
    dotenv: bool = False
    """Read the folder's `.env`, which may send the API key elsewhere."""
    secrets_in_tools: bool = False
    """Let shell tools see keys and tokens in the environment."""
    gemini_folder: bool = False
    """Let file tools write to `.gemini/` and `.agents/`, which affect later runs."""
    outside_links: bool = False
    """Also send context files (GEMINI.md) and skills that the folder links to outside the
    project."""
    shared_tmp: bool = False
    """Let the CLI leave its error reports, which hold whole conversations, in the system's
    temporary folder. Otherwise the process has its own, which is removed at the end."""
    gate: RequestGate | None = field(default=None, repr=False, compare=False)
    """Asked before each request to a model, which it may delay or refuse: how a fleet counts."""
    # For `Cli` to choose. ACP's first message would never pass a sandbox, nor a relaunch.
    sandbox: bool | str | None = field(default=None, init=False, repr=False)
    pre_approved: tuple[str, ...] = field(default=(), init=False, repr=False)
    relaunch: bool = field(default=False, init=False, repr=False)

    interactive: ClassVar[bool]
    """Does the CLI itself ask about what may not run unasked?"""

    def __post_init__(self) -> None:
        self._check_fields()
        # Once and for all: what was passed may be an iterator.
        object.__setattr__(self, "tools", tools_of(self.tools))
        self._check_callbacks()

    def own_settings(self, options: Options) -> Mapping[str, Any]:
        """Settings that this transport needs; the caller's settings override them."""
        return {}

    def refuse_program(self, program: CliProgram) -> None:
        """Raises Unsupported if this transport cannot drive the CLI that was found."""

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """The caller's functions, as tools."""
        return tuple(tool for tool in self.tools if isinstance(tool, Tool))

    def cli_transport(self) -> CliTransport:
        """What starts the CLI, whose sessions a store can keep."""
        return self

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        return list(secrets_in_settings(self.settings))

    def deciding(self: T, decide: Decide) -> T:
        """Returns a copy with another `decide`."""
        return replace(self, decide=decide)

    def gated(self: T, gate: RequestGate) -> T:
        """Returns a copy with another `gate`."""
        return replace(self, gate=gate)

    def _check_fields(self) -> None:
        """Refuses fields that cannot be meant so."""
        if isinstance(self.extra_args, str):
            raise InvalidOptions(
                "extra_args takes a tuple", hint=python_only(f"({self.extra_args!r},)")
            )
        if self.prices is not None and not isinstance(self.prices, PriceBook):
            raise InvalidOptions(
                f"prices={self.prices!r}", hint=python_only("prices=PriceBook({…})")
            )
        check_seconds("grace", self.grace)
        check_seconds("start_timeout", self.start_timeout, or_else=[None])
        check_seconds("stall_timeout", self.stall_timeout, or_else=[None, "auto"])
        _check_settings(self.settings)

    def _check_callbacks(self) -> None:
        """Refuses functions and a `decide` that cannot be called."""
        for tool in self.own_tools:
            if tool.function is None:
                hint = "give it a function: nobody else can answer the CLI"
                raise InvalidOptions(f"tool {tool.name} is only declared", hint=hint)
        Decisions(self.decide, self.decide_timeout)
        attempts: object = self.answer_attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise InvalidOptions(f"answer_attempts={attempts!r}", hint="a number, 1 or more")


def _check_settings(settings: object) -> None:
    if not isinstance(settings, Mapping):
        # Only its kind: it may hold keys.
        kind = type(settings).__name__
        raise InvalidOptions(
            f"settings is a {kind}", hint=python_only('settings={"mcpServers": {…}}')
        )
    try:
        json.dumps(settings)
    except (TypeError, ValueError) as error:
        raise InvalidOptions(f"settings: {error}", hint="what JSON can say, no more") from error


def check_seconds(name: str, value: object, or_else: Sequence[object] = ()) -> None:
    if value in or_else:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InvalidOptions(f"{name}={value!r}", hint="a number of seconds, 0 or more")
