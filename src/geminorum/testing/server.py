"""HTTP/1.1 on loopback in one thread: hands each request to a function, sends what it returns."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Self, TypeAlias

from msgspec import Struct

from geminorum.testing.answers import Ending

JSON = "application/json; charset=UTF-8"

_GREATEST_HEAD = 1 << 20
_LOOK_EVERY = 0.02
_THREAD_TIMEOUT_SECONDS = 10.0
_BROKEN_CHUNK = b'ff\r\ndata: {"candidates": [{"content"'


class HttpRequest(Struct, frozen=True, eq=False):
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class HttpReply(Struct, frozen=True):
    """What to send, and how it ends."""

    status: int = 200
    content_type: str = JSON
    pieces: tuple[bytes, ...] = ()
    streamed: bool = False
    """Each piece leaves as an HTTP chunk of its own; otherwise the length is announced."""
    delay: float = 0.0
    drip: float = 0.0
    ending: Ending = "whole"
    headers: Mapping[str, str] = {}


Respond: TypeAlias = Callable[[HttpRequest], HttpReply]
Abandoned: TypeAlias = Callable[[HttpRequest], None]


class Server:
    """Serves for one `with` block; after it neither thread nor socket is left."""

    def __init__(self, respond: Respond, abandoned: Abandoned) -> None:
        self._respond = respond
        self._abandoned = abandoned
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="FakeGemini", daemon=True)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._thread.start()
        if not self._ready.wait(_THREAD_TIMEOUT_SECONDS):
            raise RuntimeError("the server of FakeGemini did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_THREAD_TIMEOUT_SECONDS)

    def _run(self) -> None:
        # The selector loop on Windows too: only it has `add_reader`.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        with self._listener:
            # Not `start_server`: a connection that arrives while it closes is lost, with a
            # traceback and an open socket. Here a connection is ours as soon as it exists.
            self._loop.add_reader(self._listener, self._accept)
            self._ready.set()
            await self._stopping.wait()
            self._loop.remove_reader(self._listener)
        await self._close_connections()

    def _accept(self) -> None:
        try:
            wire, _ = self._listener.accept()
        except OSError:
            return
        task = self._loop.create_task(self._serve_connection(wire))
        self._connections[task] = wire
        task.add_done_callback(self._connections.pop)

    async def _close_connections(self) -> None:
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        # A task that had not begun has closed nothing.
        for wire in connections.values():
            wire.close()

    async def _serve_connection(self, wire: socket.socket) -> None:
        wire.setblocking(False)
        # asyncio forgets this for sockets that were accepted by hand, and the end of a short
        # answer would wait 40 ms for the client to acknowledge its beginning.
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = await asyncio.open_connection(sock=wire, limit=_GREATEST_HEAD)
        try:
            # Whatever the client does to its connection is its own affair: nothing to report.
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                while await self._answer(await _read_request(reader, writer), reader, writer):
                    pass
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection may serve another request."""
        try:
            return await _send(self._respond(request), request, reader, writer)
        except OSError:
            self._abandoned(request)
            return False


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _version = first.split(" ")
    headers = dict(_header(line) for line in lines)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return HttpRequest(method, target, headers, await _read_body(reader, headers))


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    pieces = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return b"".join(pieces)


async def _send(
    reply: HttpReply,
    request: HttpRequest,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    await _pause(reply.delay, reader)
    if reply.ending == "hang" and not reply.pieces:
        await _pause(None, reader)
    keep = request.headers.get("connection", "").lower() != "close" and reply.ending == "whole"
    writer.write(_head(reply, keep))
    for number, piece in enumerate(reply.pieces):
        await _pause(reply.drip if number else 0.0, reader)
        writer.write(_framed(piece) if reply.streamed else _cut(piece, reply.ending))
        await writer.drain()
    await _end(reply, reader, writer)
    return keep


async def _end(
    reply: HttpReply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    if reply.ending == "hang":
        await _pause(None, reader)
    elif reply.streamed:
        writer.write(b"0\r\n\r\n" if reply.ending == "whole" else _BROKEN_CHUNK)
    await writer.drain()


async def _pause(seconds: float | None, reader: asyncio.StreamReader) -> None:
    """Wait, forever if `seconds` is None, but no longer than the client does."""
    # `at_eof` is asked again and again because reading could swallow the next request.
    deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
    while not reader.at_eof():
        left = _LOOK_EVERY if deadline is None else deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return
        await asyncio.sleep(min(left, _LOOK_EVERY))
    raise ConnectionResetError("the client has gone")


def _head(reply: HttpReply, keep: bool) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}"]
    lines += [f"Content-Type: {reply.content_type}", "Server: FakeGemini"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    lines += _framing(reply)
    lines += [f"Connection: {'keep-alive' if keep else 'close'}", "", ""]
    return "\r\n".join(lines).encode()


def _framing(reply: HttpReply) -> Iterable[str]:
    if reply.streamed:
        return ("Transfer-Encoding: chunked",)
    return (f"Content-Length: {sum(map(len, reply.pieces))}",)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _framed(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _cut(body: bytes, ending: Ending) -> bytes:
    return body[: len(body) // 2] if ending == "drop" else body
