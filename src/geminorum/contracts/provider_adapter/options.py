"""The options of the adapter and of a call, from plain data in either spelling."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from geminorum import Tool
from geminorum.adapter_parts import convert, snake_case
from geminorum.contracts.provider_adapter.failures import MissingApiKey
from geminorum.errors import InvalidOptions

T = TypeVar("T")

DEFAULT_API_MODEL = "gemini-1.5-flash-latest"
"""The interface's default, which Google has retired. An environment variable of this name sets
another default; a model named by the caller overrides both."""


class AdapterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an adapter."""

    api_key: str = ""
    model: str | None = None
    """None: DEFAULT_API_MODEL, with a warning."""
    api_base_url: str | None = None
    api_version: str | None = None
    system_instruction: bool = False
    """Send system messages in the API's own field instead of the first user message."""
    timeout: float | None = None
    """Seconds for a whole call. None: no limit."""
    retries: int = 3
    """How often to retry a request that failed before any response."""

    def __post_init__(self) -> None:
        if not self.api_key.strip():
            raise MissingApiKey("GeminiAdapter requires an apiKey in options.")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AdapterOptions:
        given = _adapter_values(data)
        for text in _unknown_adapter_options(given):
            warnings.warn(text, stacklevel=4)
        return _converted(given, cls)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("model", self.model), ("api_base_url", self.api_base_url)]

    def __repr__(self) -> str:
        # Without the key: options end up in logs.
        return f"AdapterOptions(model={self.model!r}, api_base_url={self.api_base_url!r})"


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool that the model may call; the interface's other fields are not sent to the model."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}

    @property
    def declared(self) -> Tool:
        """Returns the tool for the transport: declared to the model, run by the caller."""
        return Tool(self.name, self.description, {"type": "object", **self.input_schema})


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one call. `from_dict` accepts the interface's own spellings."""

    thread_id: str
    trace_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    stream: bool = False
    call_context: str | None = None
    """AGENT_THOUGHT and FINAL_SYNTHESIS mark the tokens; other values do not."""
    model: str | None = None
    model_id: str | None = None
    """`providerConfig.modelId`."""
    adapter_options: dict[str, Any] = {}
    """`providerConfig.adapterOptions`: override the adapter's own for this call."""
    temperature: float | None = None
    max_output_tokens: int | None = None
    top_p: float | None = None
    top_k: float | None = None
    stop_sequences: list[str] | None = None
    include_thoughts: bool = False
    thinking_budget: int | None = None
    tools: list[ToolSchema] = []
    extra: dict[str, Any] = {}
    """Keys that this adapter does not use; the interface allows them."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CallOptions:
        """Builds CallOptions from plain data; None counts as left out."""
        given = {snake_case(key): value for key, value in data.items() if value is not None}
        if not given.get("thread_id"):
            raise InvalidOptions("a call requires a threadId", hint='{"threadId": "…", …}')
        known = {name: given[name] for name in _PLAIN if name in given}
        for name, spellings in _SPELLINGS.items():
            found = [given[word] for word in spellings if word in given]
            known |= {name: found[0]} if found else {}
        known |= _of_provider(given.get("provider_config")) | _of_thinking(given.get("gemini"))
        extra = {key: value for key, value in data.items() if snake_case(key) not in _READ}
        return _converted({**_lists(known), "extra": extra}, cls)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Of the adapter's options, which hold a key, only the names.
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return list({**values, "adapter_options": sorted(self.adapter_options)}.items())

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"CallOptions({', '.join(shown)})"

    @property
    def generation_config(self) -> dict[str, Any]:
        """Returns the given generation parameters, as google-genai spells them."""
        values = {name: getattr(self, name) for name in _GENERATION}
        thinking = {
            "include_thoughts": self.include_thoughts or None,
            "thinking_budget": self.thinking_budget,
        }
        return _given(values | {"thinking_config": _given(thinking) or None})


# Of two words for one thing, the first that is given counts.
_SPELLINGS = {
    "max_output_tokens": ("max_tokens", "max_output_tokens"),
    "stop_sequences": ("stop", "stop_sequences"),
}
_GENERATION = ("temperature", "max_output_tokens", "top_p", "top_k", "stop_sequences")
_PLAIN = (
    *("thread_id", "trace_id", "user_id", "session_id", "stream", "call_context", "model"),
    *("temperature", "top_p", "top_k", "tools"),
)
_READ = {*_PLAIN, *sum(_SPELLINGS.values(), ()), "provider_config", "gemini"}


def adapter_options(options: Mapping[str, Any] | AdapterOptions | None) -> AdapterOptions:
    if isinstance(options, AdapterOptions):
        return options
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOptions(
            f"options is a {type(options).__name__}", hint='GeminiAdapter({"apiKey": "…"})'
        )
    return AdapterOptions.from_dict(options or {})


def call_options(options: Mapping[str, Any] | CallOptions) -> CallOptions:
    if isinstance(options, CallOptions):
        return options
    if not isinstance(options, Mapping):
        raise InvalidOptions(f"options is a {type(options).__name__}", hint='{"threadId": "…"}')
    return CallOptions.from_dict(options)


def options_for(call: CallOptions, adapter: AdapterOptions) -> AdapterOptions:
    """The adapter's options for one call: the call's own `adapterOptions` go first.

    Call it from the function that the caller calls.
    """
    if not call.adapter_options:
        return adapter
    given = _adapter_values(call.adapter_options)
    for text in _unknown_adapter_options(given):
        warnings.warn(text, stacklevel=3)
    return _converted({**msgspec.structs.asdict(adapter), **given}, AdapterOptions)


def model_of(call: CallOptions, adapter: AdapterOptions) -> str:
    """The model to ask: the call's, the adapter's, else the default, which is warned of."""
    named = call.model or call.model_id or adapter.model or os.environ.get("DEFAULT_API_MODEL")
    if named:
        return named
    warnings.warn(
        f"Google has retired the default model {DEFAULT_API_MODEL!r}; name one: "
        'GeminiAdapter({"model": "gemini-2.5-flash", …})',
        DeprecationWarning,
        stacklevel=3,
    )
    return DEFAULT_API_MODEL


def _of_provider(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InvalidOptions("providerConfig is not an object", hint='{"modelId": "…"}')
    given = {snake_case(key): value for key, value in config.items()}
    options = given.get("adapter_options")
    if options is not None and not isinstance(options, Mapping):
        hint = '"adapterOptions": {"apiKey": "…", "model": "…"}'
        raise InvalidOptions("providerConfig.adapterOptions is not an object", hint=hint)
    found = {"model_id": given.get("model_id"), "adapter_options": _adapter_values(options or {})}
    return _given(found)


def _adapter_values(data: Mapping[str, Any]) -> dict[str, Any]:
    given = {snake_case(key): value for key, value in data.items() if value is not None}
    # ART's ProviderManager adds the name of the provider to the options of every adapter.
    given.pop("provider_name", None)
    return given


def _unknown_adapter_options(given: Mapping[str, Any]) -> list[str]:
    names = AdapterOptions.__struct_fields__
    return [_unknown(name, names) for name in given if name not in names]


def _of_thinking(gemini: Any) -> dict[str, Any]:
    match gemini:
        case {"thinking": Mapping() as thinking}:
            given = {snake_case(key): value for key, value in thinking.items()}
            return _given(
                {name: given.get(name) for name in ("include_thoughts", "thinking_budget")}
            )
        case Mapping() | None:
            return {}
        case _:
            hint = '"gemini": {"thinking": {"includeThoughts": True, "thinkingBudget": 1024}}'
            raise InvalidOptions("gemini is not an object", hint=hint)


def _lists(known: dict[str, Any]) -> dict[str, Any]:
    """One stop word may stand without a list; tools may spell their keys either way."""
    stop, tools = known.get("stop_sequences"), known.get("tools")
    if isinstance(stop, str):
        known = {**known, "stop_sequences": [stop]}
    if isinstance(tools, Sequence):
        known = {**known, "tools": [_tool(tool) for tool in tools]}
    return known


def _tool(tool: Any) -> Any:
    if isinstance(tool, Mapping) and "input_schema" in tool:
        return {"inputSchema": tool["input_schema"], **tool}
    return tool


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _converted(values: dict[str, Any], kind: type[T]) -> T:
    try:
        return convert(values, kind)
    except msgspec.ValidationError as error:
        raise InvalidOptions(
            f"{kind.__name__}: {error}", hint="see docs/provider-adapter.md"
        ) from error


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"unknown option {name!r} is ignored" + (f"; did you mean {near[0]!r}?" if near else "")
