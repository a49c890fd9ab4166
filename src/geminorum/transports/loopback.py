"""HTTP/1.1 on loopback, in the loop of the run: only who knows the token is heard."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

Handler: TypeAlias = Callable[[bytes], Awaitable[bytes | None]]
"""A body to the JSON that answers it; None: taken note of."""

_GREATEST_HEAD = 64 * 1024
_GREATEST_BODY = 64 * 1024 * 1024
_JSON = "Content-Type: application/json\r\n"


class Loopback:
    """Answers POSTs by their path, for one block; after it neither task nor socket is left."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        self._routes = routes
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.token = secrets.token_urlsafe(24)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Loopback:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=_GREATEST_HEAD
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._tasks]
        for task in tasks:
            # Whatever they wait for, a function that never returns or a person: nobody waits on.
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # Whatever the client does to its connection is its own affair: nothing to report.
            with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                while await self._exchange(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # The block has ended; asyncio's own callback would complain of a cancelled task.
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection may serve another."""
        method, path, headers = _head(await reader.readuntil(b"\r\n\r\n"))
        known = f"Bearer {self.token}".encode()
        if not hmac.compare_digest(headers.get("authorization", "").encode(), known):
            # Before the body is read: strangers get no memory of ours.
            return await _send(writer, "401 Unauthorized", close=True)
        size = int(headers.get("content-length", 0))
        if size > _GREATEST_BODY or "transfer-encoding" in headers:
            return await _send(writer, "413 Content Too Large", close=True)
        body = await reader.readexactly(size)
        handler = self._routes.get(path)
        if handler is None or method != "POST":
            return await _send(writer, "405 Method Not Allowed" if handler else "404 Not Found")
        answer, close = await handler(body), headers.get("connection", "").lower() == "close"
        if answer is None:
            return await _send(writer, "202 Accepted", close=close)
        return await _send(writer, "200 OK", answer, close=close)


def _head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _version = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _send(
    writer: asyncio.StreamWriter, status: str, body: bytes = b"", *, close: bool = False
) -> bool:
    ending = "Connection: close\r\n" if close else ""
    head = f"HTTP/1.1 {status}\r\n{_JSON}{ending}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return not close
