# SPDX-License-Identifier: Apache-2.0
"""Gemini as an AgentAdapter: takes a prompt and options, yields the interface's events.

The interface comes from an Apache-2.0 document: GEMINI-001 … 008 of cligent, (c) 2026 SubLang
International, and the documents it refers to. The code is our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from geminorum import Run, Transport, run
from geminorum.adapter_parts import status_of_exit
from geminorum.contracts.agent_adapter.engine import (
    AdapterRegistry,
    AgentTask,
    guarded,
    run_agent,
    run_parallel,
)
from geminorum.contracts.agent_adapter.events import EVENT_TYPES, AgentEvent, envelope
from geminorum.contracts.agent_adapter.narrator import Narrator
from geminorum.contracts.agent_adapter.ndjson import Parsed, parse_ndjson
from geminorum.contracts.agent_adapter.options import (
    AbortSignal,
    AgentOptions,
    AnyOptions,
    PermissionPolicy,
    Signal,
    agent_options,
)
from geminorum.detect import is_available as is_cli_available
from geminorum.errors import GeminorumError
from geminorum.events import Status
from geminorum.options import Options
from geminorum.permissions import TOOL_GROUPS

__all__ = [
    "EVENT_TYPES",
    "TOOL_GROUPS",
    "AbortSignal",
    "AdapterRegistry",
    "AgentAdapter",
    "AgentEvent",
    "AgentOptions",
    "AgentTask",
    "GeminiAdapter",
    "Parsed",
    "PermissionPolicy",
    "Signal",
    "envelope",
    "guarded",
    "legacy_flag_mapping",
    "map_exit_code",
    "parse_ndjson",
    "run_agent",
    "run_parallel",
]


@runtime_checkable
class AgentAdapter(Protocol):
    """The interface of one agent. Calls of `run` may overlap."""

    @property
    def agent(self) -> str: ...

    async def is_available(self) -> bool: ...

    def run(
        self, prompt: str, options: AgentOptions | None = None
    ) -> AsyncIterator[AgentEvent]: ...


class GeminiAdapter:
    """Gemini as an AgentAdapter.

    `base` holds settings that the interface lacks (environment, home, time limit); a run's own
    options override it.
    """

    agent = "gemini"

    def __init__(self, via: Transport | None = None, base: Options | None = None) -> None:
        self._via = via
        self._base = base or Options()

    async def is_available(self) -> bool:
        """Returns whether the CLI starts: runs it, with a time limit."""
        return await is_cli_available(getattr(self._via, "executable", None))

    def run(self, prompt: str, options: AnyOptions = None) -> AsyncGenerator[AgentEvent, None]:
        """Yields events: `init` first, one `done` last. Never raises; failures are events.

        `options` may be plain data, as for `AgentOptions.from_dict`. Leaving the stream early stops
        the agent: `async with aclosing(adapter.run(…)) as events`.
        """
        try:
            checked = agent_options(options)
        except GeminorumError as error:
            return guarded(self._refusal(error), agent=self.agent)
        events = self._events(prompt, checked)
        return guarded(events, agent=self.agent, abort_signal=checked.abort_signal)

    def _narrator(self, options: AgentOptions) -> Narrator:
        return Narrator(options, Path(options.cwd or self._base.cwd or ".").absolute())

    async def _refusal(self, error: GeminorumError) -> AsyncGenerator[AgentEvent, None]:
        for told in self._narrator(AgentOptions()).tell_failure(error):
            yield told

    async def _events(self, prompt: str, options: AgentOptions) -> AsyncGenerator[AgentEvent, None]:
        narrator = self._narrator(options)
        try:
            ours = options.over(self._base)
            async with (
                run(prompt, ours, via=self._via) as live,
                _cancel_on(options.abort_signal, live),
            ):
                async for event in live:
                    for told in narrator.tell(event):
                        yield told
        except GeminorumError as error:
            for told in narrator.tell_failure(error):
                yield told


def map_exit_code(code: int) -> Status:
    """Maps an exit code alone. A run needs more: exit 0 without a `result` is not a success."""
    return status_of_exit(code)


def legacy_flag_mapping() -> Mapping[str, str]:
    """Returns the flags that the interface's document names for its options.

    The CLI never had the flag for `max_turns`; the limit goes into the run's settings.
    """
    return {
        "model": "--model",
        "max_turns": "--max-session-turns",
        "permissions": "--allowed-tools",
    }


@asynccontextmanager
async def _cancel_on(signal: Signal | None, live: Run) -> AsyncIterator[None]:
    """Cancels the run when the signal is set, for the length of a block."""
    if signal is None:
        yield
        return
    waiting = asyncio.create_task(_cancel_at(signal, live))
    try:
        yield
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def _cancel_at(signal: Signal, live: Run) -> None:
    await signal.wait()
    await live.cancel()
