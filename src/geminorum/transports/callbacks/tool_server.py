"""Python functions as tools of the CLI: an MCP server in this very process, for one block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from geminorum import tools
from geminorum.runtime.interrupts import OnInterrupt, error_message, ignore_interrupt, is_interrupt
from geminorum.tools import Tool
from geminorum.transports.callbacks.grants import Ask, Grants
from geminorum.wire.callbacks import mcp
from geminorum.wire.callbacks.mcp import Declared, Message, Refusal

Call: TypeAlias = Callable[[dict[str, Any]], Awaitable[tuple[str, bool]]]
"""Arguments to the text for the model, and whether it went well."""


class Served(msgspec.Struct, frozen=True):
    """A tool that can be called from outside."""

    declared: Declared
    call: Call


def to_served(tool: Tool) -> Served:
    """The function of a caller as a tool that can be called from outside."""

    async def called(arguments: dict[str, Any]) -> tuple[str, bool]:
        outcome = await tools.call(tool, arguments)
        return outcome.text, outcome.status == "success"

    return Served(mcp.declared(tool.name, tool.description, tool.schema), called)


class ToolServer:
    """Answers MCP messages; `answer` is a handler for a `Loopback`."""

    def __init__(
        self,
        offered: Sequence[Served],
        instructions: str = "",
        *,
        asked: Collection[str] = (),
        on_read: Callable[[], None] = lambda: None,
        on_interrupt: OnInterrupt = ignore_interrupt,
    ) -> None:
        """`instructions` are what the model is told of these tools as a whole; those in `asked`
        run only for a call that was allowed. `on_read` is called when somebody has asked what
        there is, `on_interrupt` with what a function raised for the whole program."""
        self._instructions, self._on_read = instructions, on_read
        self._on_interrupt = on_interrupt
        self.was_read = False
        """Has the CLI listed the tools?"""
        self._grants = Grants(asked)
        self._tools = {tool.declared.name: tool for tool in offered}
        self._running: set[asyncio.Future[tuple[str, bool]]] = set()

    async def answer(self, body: bytes) -> bytes | None:
        request_id = None
        try:
            message = mcp.message_of(body)
            request_id = message.id
            if request_id is None:
                return None
            return mcp.answered(request_id, await self._handle(message))
        except Refusal as refusal:
            return mcp.refused(request_id, refusal)
        except RecursionError:  # It can be read, but not be worked with.
            return mcp.refused(request_id, Refusal(mcp.INVALID_PARAMS, "nested too deeply"))

    def allow_once(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Allows this call, which `decide` approved."""
        if (tool := self._tools.get(name)) is not None:
            self._grants.leave(name, mcp.sent_arguments(tool.declared, arguments))

    def ask_at_call(self, name: str, ask: Ask) -> None:
        """Asks `decide` when the call comes: until then its arguments are not known."""
        self._grants.postpone(name, ask)

    def cancel(self) -> None:
        """Ends every call that runs, and forgets what was allowed; the agent hears that it was
        cancelled."""
        self._grants.revoke()
        for call in self._running:
            call.cancel()

    async def _handle(self, message: Message) -> Any:
        match message.method:
            case "initialize":
                return mcp.welcome(message.params, self._instructions)
            case "ping":
                return {}
            case "tools/list":
                self.was_read = True
                self._on_read()
                return mcp.listing([tool.declared for tool in self._tools.values()])
            case "tools/call":
                return await self._call_tool(message.params)
            case method:
                raise Refusal(mcp.NO_SUCH_METHOD, f"no method {method!r}")

    async def _call_tool(self, params: Mapping[str, Any]) -> Any:
        tool, arguments = self._tools.get(str(params.get("name"))), params.get("arguments") or {}
        if tool is None or not isinstance(arguments, dict):
            raise Refusal(mcp.INVALID_PARAMS, f"no tool {params.get('name')!r}")
        sent = mcp.sent_arguments(tool.declared, arguments)
        if (why := await self._grants.consume(tool.declared.name, sent)) is not None:
            return mcp.outcome(why, failed=True)
        return await self._run(tool, sent)

    async def _run(self, tool: Served, arguments: dict[str, Any]) -> Any:
        # A task of its own, so that it can be cancelled and the question still be answered.
        call = asyncio.ensure_future(self._run_guarded(tool, arguments))
        self._running.add(call)
        try:
            await asyncio.wait([call])
        finally:
            self._running.discard(call)
            call.cancel()
        if call.cancelled():
            return mcp.outcome("the call was cancelled", failed=True)
        text, went_well = call.result()
        return mcp.outcome(text, failed=not went_well)

    async def _run_guarded(self, tool: Served, arguments: dict[str, Any]) -> tuple[str, bool]:
        try:
            return await tool.call(arguments)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                self._on_interrupt(error)
            return error_message(error), False
