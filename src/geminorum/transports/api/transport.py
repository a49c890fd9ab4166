"""The Gemini API as a transport: the caller's history and functions, Google's models."""

from __future__ import annotations

import difflib
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from geminorum.cost import PriceBook, request_usd
from geminorum.credentials import credentials_in
from geminorum.decisions import Decide, Decisions
from geminorum.environment import environment_of
from geminorum.errors import InvalidOptions, Unsupported
from geminorum.events import ModelRequest
from geminorum.hints import advice, python_only
from geminorum.options import Options
from geminorum.permissions import KNOWN_TOOLS, rule_of
from geminorum.prompt import Prompt
from geminorum.redaction import secrets_in_settings
from geminorum.schema import Shape, shape_of
from geminorum.spelling import snake_case
from geminorum.tools import Tool, tools_of
from geminorum.transports.api.client import GenaiClient
from geminorum.transports.api.turn import ApiTurn
from geminorum.transports.gates import RequestGate
from geminorum.transports.turns.asking_place import decisions_of
from geminorum.transports.turns.slot import TurnSlot
from geminorum.wire.genai.request import Content, checked_history, config_of, model_of

_HAS_NO = {
    "resume": advice("{keep the conversation open with connect(), or pass Api(history=…)}"),
    "store": advice("{keep chat.history, and pass Api(history=…) with it later}"),
    "policy": advice("{pass Api(decide=…), or leave a function out of Api(tools=…)}"),
    "include_directories": "pass files as parts of the prompt",
    "trust_workspace": "there is no folder to trust",
    "home": "there is no home to isolate",
}


@dataclass(frozen=True, slots=True)
class Api:
    """The Gemini API through Google's SDK. Install it with `pip install 'geminorum[api]'`."""

    api_key: str | None = field(default=None, repr=False)
    """None: GOOGLE_API_KEY or GEMINI_API_KEY, as in the SDK."""
    base_url: str | None = None
    """None: GOOGLE_GEMINI_BASE_URL (Vertex AI: GOOGLE_VERTEX_BASE_URL), else Google's."""
    tools: Sequence[Callable[..., Any] | Tool] = ()
    """Functions that the model may call. A Tool without a function is only declared: the turn ends
    with its calls, for the caller to answer."""
    decide: Decide | None = None
    """Asked before a function is called. None: functions are called without asking."""
    decide_timeout: float | None = 300.0
    """Seconds until an unanswered request is denied."""
    history: Sequence[Content] = ()
    """Earlier messages in the API's format, as `chat.history` returns them."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """More settings of google.genai.types.GenerateContentConfig: `{"temperature": 0.2}`."""
    stream: bool = True
    """False: request the whole answer at once."""
    include_thoughts: bool | None = None
    """Whether to request the model's thoughts. None: if the model has any."""
    vertex: bool = False
    """Use Vertex AI instead of the Developer API. No environment variable turns this on."""
    project: str | None = None
    location: str | None = None
    credentials: Any = field(default=None, repr=False)
    """google.auth credentials for Vertex AI. None: application default credentials."""
    api_version: str | None = None
    """None: v1beta; on Vertex AI, v1beta1."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)
    """None: HTTPS_PROXY and related variables."""
    retries: int = 3
    """How often to retry a request that failed before any response."""
    patience: float = 60.0
    """Maximum wait in seconds that the API may request before a retry."""
    idle_timeout: float | None = 120.0
    """Seconds of silence from the API that end a run. None: wait forever."""
    grace: float = 5.0
    """Seconds a cancelled function has to stop; then the run ends without it."""
    prices: PriceBook | None = None
    """The price book. None: the list prices of the day."""
    gate: RequestGate | None = field(default=None, repr=False, compare=False)
    """Asked before each request to a model, which it may delay or refuse: how a fleet counts."""

    def __post_init__(self) -> None:
        for problem, hint in _problems(self):
            raise InvalidOptions(problem, hint=hint)
        tools_of(self.tools)
        checked_history(self.history)
        Decisions(self.decide, self.decide_timeout)  # Refuses what is none.

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        given = [self.api_key or "", *secrets_in_settings(self.headers)]
        return [*given, *credentials_in(self.proxy or ""), *credentials_in(self.base_url or "")]

    def deciding(self, decide: Decide) -> Api:
        """Returns a copy with another `decide`."""
        return replace(self, decide=decide)

    def gated(self, gate: RequestGate) -> Api:
        """Returns a copy with another `gate`."""
        return replace(self, gate=gate)

    def open(self, options: Options) -> ApiConversation:
        return ApiConversation(self, options)


class ApiConversation:
    """Turns that share a history, which is all that the API remembers: nothing."""

    phase = "loading Google's SDK"
    """What takes the time when this is opened."""

    def __init__(self, transport: Api, options: Options) -> None:
        _refuse_unsupported(options)
        self.transport, self.options = transport, options
        self.model = model_of(options)
        tools = tools_of(transport.tools)
        _warn_of_strangers(tools, options)
        self.tools = _permitted(tools, options)
        self.shape: Shape | None = (
            None if options.output_schema is None else shape_of(options.output_schema)
        )
        self.config = config_of(
            options,
            self.tools,
            {snake_case(name): value for name, value in transport.config.items()},
            schema=self.shape.schema if self.shape else None,
            thoughts=transport.include_thoughts,
        )
        self.decisions = decisions_of(transport, options)
        self.session_id = options.session_id or str(uuid.uuid4())
        self.history: list[Content] = checked_history(transport.history)
        self._stack = AsyncExitStack()
        self._slot = TurnSlot[ApiTurn]()

    @property
    def has_price(self) -> bool:
        """Is it known what the model charges?"""
        try:
            return request_usd(ModelRequest(model=self.model), self.transport.prices) is not None
        except Exception:
            return False  # Whatever is wrong with the prices: no budget can be kept.

    async def __aenter__(self) -> ApiConversation:
        self.client = GenaiClient(self.transport, environment_of(self.options))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.client)
            self.client.check(self.config)
            self._stack = stack.pop_all()
        self._slot.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._slot.close()
        finally:
            await self._stack.aclose()

    def turn(self, prompt: Prompt) -> ApiTurn:
        return ApiTurn(self, prompt)

    def begin_turn(self, turn: ApiTurn) -> None:
        self._slot.acquire(turn)

    def end_turn(self, turn: ApiTurn) -> None:
        self._slot.release(turn)


def _warn_of_strangers(tools: tuple[Tool, ...], options: Options) -> None:
    """The CLI's names are none: the same options may serve several transports."""
    own = [tool.name for tool in tools]
    known = {*own, *KNOWN_TOOLS, "*"}
    for name in (*(options.allowed_tools or ()), *options.disallowed_tools):
        if rule_of(name)[0] not in known:
            near = difflib.get_close_matches(name, known, n=1)
            others = f"; did you mean {near[0]!r}?" if near else ""
            stranger = f"{name!r}{others}"
            text = advice("{Api.tools=…} has no function {stranger}", stranger=stranger)
            warnings.warn(text, stacklevel=3)


def _permitted(tools: tuple[Tool, ...], options: Options) -> tuple[Tool, ...]:
    wanted, refused = options.allowed_tools, options.disallowed_tools
    return tuple(
        tool
        for tool in tools
        if (wanted is None or tool.name in wanted) and tool.name not in refused
    )


def _refuse_unsupported(options: Options) -> None:
    default = Options()
    for name, hint in _HAS_NO.items():
        if getattr(options, name) != getattr(default, name):
            raise Unsupported(f"the Api transport has no {name}", hint=hint)
    if options.approval in ("plan", "auto_edit"):
        raise Unsupported(
            f"the Api transport has no approval={options.approval!r}",
            hint=python_only("its only tools are yours: leave one out, or pass Api(decide=…)"),
        )
    if not options.literal:
        raise Unsupported(
            "the Api transport runs no commands in prompts",
            hint=advice("leave {Options.literal=True|literal=True}"),
        )


def _problems(transport: Any) -> Iterator[tuple[str, str]]:
    if transport.api_key is not None and not str(transport.api_key).strip():
        yield "api_key is empty", "leave it out to take GEMINI_API_KEY, or pass a key"
    for name, kind in _KINDS.items():
        if not isinstance(value := getattr(transport, name), kind):
            yield f"{name} is a {type(value).__name__}", _EXAMPLES[name]
    for name in ("base_url", "proxy"):
        value = getattr(transport, name)
        if value is not None and not str(value).startswith(("http://", "https://", "socks5://")):
            # Not the address itself: it may hold a password.
            yield f"{name} is not an address", python_only(f'{name}="https://…", or http://')
    if (transport.project or transport.location or transport.credentials) and not transport.vertex:
        yield "project, location and credentials are for Vertex AI", python_only("add vertex=True")
    if not all(isinstance(word, str) for pair in transport.headers.items() for word in pair):
        yield "headers has something that is not text", _EXAMPLES["headers"]
    yield from _wrong_settings(transport.config)
    yield from _wrong_numbers(transport)


_KINDS: dict[str, Any] = {
    "headers": Mapping,
    "config": Mapping,
    "vertex": bool,
    "stream": bool,
    "api_version": str | None,
    "prices": PriceBook | None,
}
_EXAMPLES = {
    "headers": advice('{headers={"X-Trace": "7"}}'),
    "config": advice('{config={"temperature": 0.2}}'),
    "vertex": advice("{vertex=True}"),
    "stream": advice("{stream=False}"),
    "api_version": advice('{api_version="v1"}'),
    "prices": advice("{prices=PriceBook({…})}"),
}


def _wrong_settings(config: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for name in config:
        if not isinstance(name, str):
            yield f"config has the name {name!r}", _EXAMPLES["config"]
        elif snake_case(name) == "http_options":
            yield (
                "config has http_options",
                python_only("Api(base_url=…, headers=…, proxy=…) says it"),
            )


def _wrong_numbers(transport: Any) -> Iterator[tuple[str, str]]:
    if (
        isinstance(transport.retries, bool)
        or not isinstance(transport.retries, int)
        or transport.retries < 0
    ):
        yield f"retries={transport.retries!r}", "a number, 0 or more"
    for name in ("idle_timeout", "decide_timeout", "patience", "grace"):
        value = getattr(transport, name)
        if value is None and name.endswith("timeout"):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            yield f"{name}={value!r}", "a number of seconds greater than 0"
