"""Bytes at the loopback server, HTTP and the MCP request in it, to answers."""

from __future__ import annotations

import asyncio

from fuzz.soundness import Unsound
from fuzz.target import Target
from fuzz.waiting import answered
from geminorum.tools import Tool
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.callbacks.tool_server import ToolServer, to_served

_HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: @host\r\nAuthorization: Bearer @token\r\n"
    b"Content-Type: application/json\r\nContent-Length: @size\r\n\r\n"
)
_BODIES = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"gemini-cli","version":"0.61.0"}}}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}',
    b'{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"add","arguments":'
    b'{"a":1,"b":[2,3],"wait_for_previous":true},"_meta":{"progressToken":1}}}',
    b'{"jsonrpc":"2.0","id":3,"method":"ping"}',
)
_WORDS = (
    b"\r\n\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"@host",
    b"@size",
)
_MAX_WAIT_SECONDS = 20.0


def run(data: bytes) -> None:
    answered(_exchanged(data))


async def add(a: int, b: list[int]) -> int:
    """Adds numbers."""
    return a + sum(b)


async def _exchanged(data: bytes) -> None:
    server = ToolServer([to_served(Tool.of(add))])
    async with Loopback({"/mcp": server.answer}) as loopback:
        head, blank, body = data.partition(b"\r\n\r\n")
        filled = head.replace(b"@host", loopback.host.encode()).replace(
            b"@token", loopback.token_for("/mcp").encode()
        )
        sent = filled.replace(b"@size", str(len(body)).encode()) + blank + body
        reply = await _reply(loopback.port, sent)
    if reply and not reply.startswith(b"HTTP/1.1 "):
        raise Unsound(f"no answer of HTTP: {reply[:200]!r}")


async def _reply(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(_MAX_WAIT_SECONDS):
            writer.write(sent)
            writer.write_eof()
            return await reader.read()
    except ConnectionError:
        return b""  # The server does not have to read to the end what it refuses.
    finally:
        writer.transport.abort()


TARGET = Target("mcp-request", run, tuple(_HEAD + body for body in _BODIES), words=_WORDS)
