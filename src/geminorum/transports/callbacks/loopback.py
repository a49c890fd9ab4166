"""HTTP/1.1 on loopback, in the loop of the run: each path hears only who knows its token."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

Handler: TypeAlias = Callable[[bytes], Coroutine[Any, Any, bytes | None]]
"""A body to the JSON that answers it; None: taken note of."""

_GREATEST_HEAD = 64 * 1024
_GREATEST_BODY = 64 * 1024 * 1024
_IDLE_SECONDS = 60.0
"""The CLI itself closes a connection that it has not used for four seconds."""
_MOST_STRANGERS = 64
"""Connections that have not shown a token yet: each holds a descriptor of this process."""
_JSON = "Content-Type: application/json\r\n"
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\0\r\n]*)")
_AT_MOST_ONCE = ("authorization", "content-length", "host", "transfer-encoding")
"""Two of these mean that two readers of one request could see two different requests."""


class Loopback:
    """Answers POSTs by their path, for one block; after it neither task nor socket is left."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        idle: float = _IDLE_SECONDS,
        *,
        revocable: Collection[str] = (),
    ) -> None:
        """`idle` bounds the seconds that a client takes for a request, not those for its answer.

        A handler of a `revocable` path is cancelled when its client hangs up; others go on.
        """
        self._routes, self._idle, self._revocable = routes, idle, revocable
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None
        # One for each path: who may ask a question may not, by that, call a function.
        self._tokens = {path: secrets.token_urlsafe(24) for path in routes}
        self.port = 0

    def token_for(self, path: str) -> str:
        return self._tokens[path]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def __aenter__(self) -> Loopback:
        self._server = await asyncio.start_server(
            self._on_connection, "127.0.0.1", 0, limit=_GREATEST_HEAD
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

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._strangers[writer] = None
        if len(self._strangers) > _MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        try:
            # Whatever the client does to its connection is its own affair, as is the time that it
            # lets pass: nothing to report.
            with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                while await self._exchange(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # The block has ended; asyncio's own callback would complain of a cancelled task.
        finally:
            self._tasks.discard(task)
            self._strangers.pop(writer, None)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection may serve another."""
        try:
            async with asyncio.timeout(self._idle):
                head = _parsed(await reader.readuntil(b"\r\n\r\n"))
                # Before the body is read: strangers get no memory of ours.
                handler = self._handler_for(head)
                self._strangers.pop(writer, None)
                body = await reader.readexactly(_size_of(head))
        except _Refused as refused:
            return await _send(writer, refused.status, close=True)
        if head.method != "POST":
            return await _send(writer, "405 Method Not Allowed")
        answer = await self._answer(head, handler(body), reader)
        close = head.headers.get("connection", "").lower() == "close"
        if answer is None:
            return await _send(writer, "202 Accepted", close=close)
        return await _send(writer, "200 OK", answer, close=close)

    async def _answer(
        self, head: _Head, handling: Coroutine[Any, Any, bytes | None], reader: asyncio.StreamReader
    ) -> bytes | None:
        if head.path not in self._revocable:
            return await handling
        answer = asyncio.ensure_future(handling)
        # These clients say nothing more: the next that comes is the end of the connection.
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise EOFError
            return answer.result()
        finally:
            answer.cancel()
            gone.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    def _handler_for(self, head: _Head) -> Handler:
        """Raises where a request is not meant for us, or comes from a stranger."""
        if head.headers.get("host") != self.host:
            # A web page under a name that leads here would send that name.
            raise _Refused("403 Forbidden")
        token = self._tokens.get(head.path)
        if token is None:
            raise _Refused("404 Not Found")
        sent = head.headers.get("authorization", "").encode()
        if not hmac.compare_digest(sent, f"Bearer {token}".encode()):
            raise _Refused("401 Unauthorized")
        return self._routes[head.path]


class _Refused(Exception):
    """A request that is answered with a status, and its connection closed."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class _Head(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]


def _parsed(head: bytes) -> _Head:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words, found = first.split(" "), [_HEADER.fullmatch(line) for line in lines]
    pairs = [(one[1].lower(), one[2].strip(" \t")) for one in found if one is not None]
    names = [name for name, _value in pairs]
    if len(words) != 3 or None in found or any(names.count(name) > 1 for name in _AT_MOST_ONCE):
        raise _Refused("400 Bad Request")
    return _Head(words[0], words[1], dict(pairs))


def _size_of(head: _Head) -> int:
    told = head.headers.get("content-length", "0")
    if "transfer-encoding" in head.headers or not re.fullmatch("[0-9]{1,15}", told):
        raise _Refused("400 Bad Request")
    if int(told) > _GREATEST_BODY:
        raise _Refused("413 Content Too Large")
    return int(told)


async def _send(
    writer: asyncio.StreamWriter, status: str, body: bytes = b"", *, close: bool = False
) -> bool:
    ending = "Connection: close\r\n" if close else ""
    head = f"HTTP/1.1 {status}\r\n{_JSON}{ending}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return not close
