"""Gemini as a ProviderAdapter: a standard prompt in, TOKEN, METADATA, ERROR and END events out.

The interface comes from ART (hashangit/ART, MIT by its package.json): its GeminiAdapter and the
types that it refers to. The code is our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from geminorum import Api, Run, run
from geminorum.contracts.provider_adapter.events import (
    LLMMetadata,
    StreamEvent,
    ToolCall,
)
from geminorum.contracts.provider_adapter.failures import (
    ARTError,
    MissingApiKey,
    PromptTranslationFailed,
    ProviderTimeout,
    ProviderUnreachable,
    failure_of,
)
from geminorum.contracts.provider_adapter.memory import CallMemory, CallsInFrames
from geminorum.contracts.provider_adapter.options import (
    DEFAULT_API_MODEL,
    AdapterOptions,
    CallOptions,
    ToolSchema,
    adapter_options,
    call_options,
    model_of,
    options_for,
)
from geminorum.contracts.provider_adapter.telling import Teller
from geminorum.contracts.provider_adapter.translation import (
    INITIAL_CONTEXT,
    Content,
    Message,
    translate_to_gemini,
    translated,
)
from geminorum.errors import GeminorumError
from geminorum.events import ToolUse
from geminorum.options import Options

__all__ = [
    "DEFAULT_API_MODEL",
    "INITIAL_CONTEXT",
    "ARTError",
    "AdapterOptions",
    "CallOptions",
    "EventStream",
    "GeminiAdapter",
    "LLMMetadata",
    "MissingApiKey",
    "PromptTranslationFailed",
    "ProviderAdapter",
    "ProviderTimeout",
    "ProviderUnreachable",
    "StreamEvent",
    "ToolCall",
    "ToolSchema",
    "translate_to_gemini",
]


@runtime_checkable
class ProviderAdapter(Protocol):
    """The interface of one model provider. Calls of `call` may overlap."""

    @property
    def provider_name(self) -> str: ...

    async def call(
        self, prompt: Sequence[Message], options: Mapping[str, Any] | CallOptions
    ) -> AsyncIterator[StreamEvent]: ...


class GeminiAdapter:
    """Gemini's models as a ProviderAdapter. The caller owns the history and runs the tools.

    The adapter remembers details of the API's tool calls that the API expects back, so use one
    adapter for a whole conversation.
    """

    provider_name = "gemini"

    def __init__(self, options: Mapping[str, Any] | AdapterOptions | None = None) -> None:
        self.options = adapter_options(options)
        self._transport = _transport_of(self.options)
        self._memory = CallMemory()

    async def call(
        self, prompt: Sequence[Message], options: Mapping[str, Any] | CallOptions
    ) -> EventStream:
        """Returns the call's events; the request is sent when you ask for the first one.

        Raises InvalidOptions for invalid options. Every other failure is an ERROR event, even a
        prompt that cannot be translated.
        """
        wanted = call_options(options)
        ours = options_for(wanted, self.options)
        try:
            told = translated(prompt, system_instruction=ours.system_instruction)
        except PromptTranslationFailed as error:
            return EventStream(_yield_failure(error, wanted))
        model = model_of(wanted, ours)
        contents = self._memory.restored(told, model)
        transport = replace(
            self._transport if ours is self.options else _transport_of(ours),
            history=contents[:-1],
            tools=[tool.declared for tool in wanted.tools],
            config=wanted.generation_config,
            stream=wanted.stream,
        )
        asked = Options(
            model=model,
            system_prompt=told.system,
            timeout=ours.timeout,
            # One answer: a call of a tool that nobody declared is the caller's to answer, too.
            max_turns=1,
        )
        return EventStream(self._events(run(contents[-1], asked, via=transport), wanted, model))

    def translate_to_gemini(self, prompt: Sequence[Message]) -> list[Content]:
        """Returns the prompt as this adapter sends it, without a separate system instruction.

        Raises PromptTranslationFailed.
        """
        system_instruction = self.options.system_instruction
        return translated(prompt, system_instruction=system_instruction).contents

    async def _events(
        self, run: Run, wanted: CallOptions, model: str
    ) -> AsyncGenerator[StreamEvent, None]:
        teller = Teller(wanted)
        calls = CallsInFrames()
        try:
            async with run as live:
                async for event in live:
                    if isinstance(event, ToolUse) and event.id is not None:
                        self._memory.keep(event.id, calls.part_of(event), model)
                    for told in teller.tell(event):
                        yield told
        except GeminorumError as error:
            for told in teller.tell_failure(failure_of(error)):
                yield told


class EventStream(AsyncIterator[StreamEvent]):
    """A call's events. Leaving a loop over them in any way stops the request."""

    def __init__(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        self._events = events
        self._closing = asyncio.Lock()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        # An iterator that only the loop holds: it goes with the loop, also where the caller keeps
        # the stream.
        return self._close_when_left()

    async def __anext__(self) -> StreamEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Stops the request and waits for its end; `contextlib.aclosing` calls this."""
        # After a `break` inside of `aclosing`, the loop's iterator closes it at the same time, and
        # a generator refuses the second one while the first waits.
        async with self._closing:
            await self._events.aclose()

    async def _close_when_left(self) -> AsyncGenerator[StreamEvent, None]:
        async with self._closing:
            pass  # A loop that was left before may still be closing the events.
        try:
            async for event in self._events:
                yield event
        finally:
            await self.aclose()


async def _yield_failure(error: ARTError, wanted: CallOptions) -> AsyncGenerator[StreamEvent, None]:
    for told in Teller(wanted).tell_failure(error):
        yield told


def _transport_of(options: AdapterOptions) -> Api:
    return Api(
        api_key=options.api_key,
        base_url=options.api_base_url,
        api_version=options.api_version,
        retries=options.retries,
        # Thoughts are told where the call's own options ask for them.
        include_thoughts=False,
    )
