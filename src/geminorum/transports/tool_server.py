"""Python functions as tools of the CLI: an MCP server in this very process, for one block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from geminorum import tools
from geminorum.tools import Tool
from geminorum.wire import mcp
from geminorum.wire.mcp import Declared, Message, Refusal

Call: TypeAlias = Callable[[dict[str, Any]], Awaitable[tuple[str, bool]]]
"""Arguments to the text for the model, and whether it went well."""


class Served(msgspec.Struct, frozen=True):
    """A tool that can be called from outside."""

    declared: Declared
    call: Call


def served(tool: Tool) -> Served:
    """A function of the caller's."""

    async def called(arguments: dict[str, Any]) -> tuple[str, bool]:
        outcome = await tools.call(tool, arguments)
        return outcome.text, outcome.status == "success"

    return Served(mcp.declared(tool.name, tool.description, tool.schema), called)


class ToolServer:
    """Answers MCP messages; `answer` is a handler for a `Loopback`."""

    def __init__(self, offered: Sequence[Served]) -> None:
        self._tools = {tool.declared.name: tool for tool in offered}
        self._running: set[asyncio.Future[tuple[str, bool]]] = set()

    async def answer(self, body: bytes) -> bytes | None:
        request_id = None
        try:
            message = mcp.message_of(body)
            request_id = message.id
            if request_id is None:
                return None
            return mcp.answered(request_id, await self._result(message))
        except Refusal as refusal:
            return mcp.refused(request_id, refusal)

    def cancel(self) -> None:
        """Ends every call that runs; the agent hears that it was cancelled."""
        for call in self._running:
            call.cancel()

    async def _result(self, message: Message) -> Any:
        match message.method:
            case "initialize":
                return mcp.welcome(message.params)
            case "ping":
                return {}
            case "tools/list":
                return mcp.listing([tool.declared for tool in self._tools.values()])
            case "tools/call":
                return await self._called(message.params)
            case method:
                raise Refusal(mcp.NO_SUCH_METHOD, f"no method {method!r}")

    async def _called(self, params: Mapping[str, Any]) -> Any:
        tool, arguments = self._tools.get(str(params.get("name"))), params.get("arguments") or {}
        if tool is None or not isinstance(arguments, dict):
            raise Refusal(mcp.INVALID_PARAMS, f"no tool {params.get('name')!r}")
        # A task of its own, so that it can be cancelled and the question still be answered.
        sent = mcp.sent_arguments(tool.declared, arguments)
        call = asyncio.ensure_future(tool.call(sent))
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
