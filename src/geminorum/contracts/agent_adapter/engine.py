# SPDX-License-Identifier: Apache-2.0
"""Enforces the AgentAdapter guarantees on any adapter's stream, and merges many streams."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from geminorum.contracts.agent_adapter.events import AgentEvent, hint_for, known
from geminorum.contracts.agent_adapter.options import AnyOptions, agent_options
from geminorum.errors import GeminorumError, InvalidOptions
from geminorum.events import Status

if TYPE_CHECKING:
    from geminorum.contracts.agent_adapter import AgentAdapter
    from geminorum.contracts.agent_adapter.options import AgentOptions, Signal


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One prompt for one adapter."""

    adapter: AgentAdapter
    prompt: str
    options: AnyOptions = None


def run_agent(
    adapter: AgentAdapter, prompt: str, options: AnyOptions = None
) -> AsyncGenerator[AgentEvent, None]:
    """Yields the adapter's events with the guarantees of `guarded`.

    Plain data is converted to AgentOptions before the adapter gets it.
    """
    try:
        checked = None if options is None else agent_options(options)
    except GeminorumError as error:
        return _yield_refusal(error, adapter.agent)
    signal = checked.abort_signal if checked else None
    return guarded(_run_adapter(adapter, prompt, checked), agent=adapter.agent, abort_signal=signal)


async def guarded(
    events: AsyncIterator[AgentEvent], *, agent: str = "gemini", abort_signal: Signal | None = None
) -> AsyncGenerator[AgentEvent, None]:
    """Guarantees exactly one `done`, nothing after it, and no exception, whatever the adapter does.

    The adapter's stream is already closed when the `done` arrives. If the signal is set before the
    start, the adapter is not started.
    """
    watch = _Watch(agent)
    if abort_signal is not None and abort_signal.is_set():
        await _close(events)
        yield watch.done("interrupted")
        return
    try:
        async for event in events:
            watch.see(event)
            if event.type == "done":
                break
            yield event
    except (Exception, asyncio.CancelledError) as error:
        if _is_our_own_cancellation(error):
            raise
        watch.fail("ADAPTER_ERROR", f"{type(error).__name__}: {error}")
    finally:
        await _close(events)
    for event in watch.ending():
        yield event


async def run_parallel(tasks: Iterable[AgentTask]) -> AsyncGenerator[AgentEvent, None]:
    """Yields the events of all tasks as they arrive; each task has its own `done`.

    Leaving early stops all tasks: `async with aclosing(run_parallel(…)) as events`.
    """
    streams = [run_agent(task.adapter, task.prompt, task.options) for task in tasks]
    # One place: an adapter is not asked for more than the consumer takes.
    arrived: asyncio.Queue[AgentEvent] = asyncio.Queue(maxsize=1)
    running = len(streams)
    # Each stream is read to its end in one task of its own, or closed there.
    pumps = [asyncio.create_task(_pump(stream, arrived)) for stream in streams]
    try:
        while running:
            event = await arrived.get()
            running -= event.type == "done"
            yield event
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


class AdapterRegistry:
    """Adapters by agent name."""

    def __init__(self) -> None:
        self._adapters: dict[str, AgentAdapter] = {}

    def register(self, adapter: AgentAdapter) -> None:
        if adapter.agent in self._adapters:
            raise InvalidOptions(
                f"an adapter for {adapter.agent!r} is already registered",
                hint=f"unregister({adapter.agent!r}) first",
            )
        self._adapters[adapter.agent] = adapter

    def get(self, agent: str) -> AgentAdapter | None:
        return self._adapters.get(agent)

    def list(self) -> Sequence[str]:
        """Returns the agent names in registration order."""
        return [*self._adapters]

    def unregister(self, agent: str) -> bool:
        """Removes an adapter; returns whether there was one."""
        return self._adapters.pop(agent, None) is not None


class _Watch:
    """What a stream has said of itself, and what is left to say at its end."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._began = time.monotonic()
        self._session_id = uuid.uuid4().hex
        self._done: AgentEvent | None = None
        self._failure = ("MISSING_DONE", "the adapter ended without a done event")
        self._hint: str | None = None

    def see(self, event: AgentEvent) -> None:
        self._session_id = event.session_id or self._session_id
        if event.type == "done":
            self._done = event

    def fail(self, code: str, message: str, hint: str | None = None) -> None:
        self._failure, self._hint = (code, message), hint

    def ending(self) -> Iterator[AgentEvent]:
        if self._done is not None:
            yield self._done
        else:
            code, message = self._failure
            error = self._event("error", code=code, message=message, recoverable=False)
            yield replace(error, metadata=known(hint=self._hint) or None)
            yield self.done("error")

    def done(self, status: Status) -> AgentEvent:
        usage = {"inputTokens": 0, "outputTokens": 0, "toolUses": 0}
        duration_ms = round((time.monotonic() - self._began) * 1000)
        return self._event("done", status=status, usage=usage, durationMs=duration_ms)

    def _event(self, kind: str, **payload: Any) -> AgentEvent:
        return AgentEvent(
            type=kind,
            agent=self._agent,
            timestamp=time.time_ns() // 1_000_000,
            session_id=self._session_id,
            payload=payload,
        )


async def _yield_refusal(error: GeminorumError, agent: str) -> AsyncGenerator[AgentEvent, None]:
    watch = _Watch(agent)
    watch.fail(error.code, error.message, hint_for(error.hint))
    for event in watch.ending():
        yield event


async def _run_adapter(
    adapter: AgentAdapter, prompt: str, options: AgentOptions | None
) -> AsyncGenerator[AgentEvent, None]:
    """Starts the adapter inside the guard, because `run` itself may raise; yields its stream."""
    events = adapter.run(prompt, options)
    try:
        async for event in events:
            yield event
    finally:
        await _close(events)


def _is_our_own_cancellation(error: BaseException) -> bool:
    # An adapter whose own task was cancelled raises the same exception, but nobody asked us to end.
    task = asyncio.current_task()
    asked = task is not None and task.cancelling() > 0
    return asked and isinstance(error, asyncio.CancelledError)


async def _close(events: AsyncIterator[AgentEvent]) -> None:
    # What fails while an adapter clears up is no longer news: its stream has been told to the end.
    close = getattr(events, "aclose", None)
    if close is not None:
        with suppress(Exception):
            await close()


async def _pump(
    stream: AsyncGenerator[AgentEvent, None], arrived: asyncio.Queue[AgentEvent]
) -> None:
    async with aclosing(stream) as events:
        async for event in events:
            await arrived.put(event)
