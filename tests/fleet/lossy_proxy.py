"""Connections to PostgreSQL that break at the worst moment, or fall silent."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

_PORT_FILE = ".s.PGSQL.5432"


class LossyProxy:
    """Loses the answer to the first commit after a statement with `words`, and the connection."""

    def __init__(self, server: str, words: bytes) -> None:
        self._server, self._words = server, words
        self.losses = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(self._server)
        try:
            async with asyncio.TaskGroup() as group:
                back = group.create_task(_pass_on(answers, writer))
                await self._forward(reader, requests, answers, back)
        finally:
            for each in (writer, requests):
                each.close()

    async def _forward(self, reader, requests, answers, back) -> None:
        has_written = False
        while data := await reader.read(65536):
            has_written |= self._words in data
            if has_written and b"COMMIT" in data and not self.losses:
                self.losses += 1
                back.cancel()
                await asyncio.wait([back])
                requests.write(data)
                await answers.read(65536)  # It is committed.
                return
            requests.write(data)
        back.cancel()


class SilentProxy:
    """Passes nothing on any more once it has seen a statement with `words`: a network that is cut.
    Neither end hears of it."""

    def __init__(self, server: str, words: bytes) -> None:
        self._server, self._words = server, words
        self.is_silent = asyncio.Event()
        self._is_over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(self._server)
        ways = [self._pass_on(reader, requests), self._pass_on(answers, writer)]
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (writer, requests):
            each.close()

    async def _pass_on(self, reader, writer) -> None:
        while not self.is_silent.is_set() and (data := await reader.read(4096)):
            if not self.is_silent.is_set():
                writer.write(data)
            if self._words in data:
                self.is_silent.set()
        if self.is_silent.is_set():
            await self._is_over.wait()

    def end(self) -> None:
        self._is_over.set()


async def _pass_on(reader, writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def lossy_proxy(url: str, words: bytes) -> AsyncIterator[tuple[str, LossyProxy]]:
    """Another address of the same database, and what loses an answer on the way."""
    proxy = LossyProxy(_socket_of(url), words)
    async with _served(url, proxy) as address:
        yield address, proxy


@asynccontextmanager
async def silent_proxy(url: str, words: bytes) -> AsyncIterator[tuple[str, SilentProxy]]:
    """Another address of the same database, which falls silent."""
    proxy = SilentProxy(_socket_of(url), words)
    async with _served(url, proxy) as address:
        try:
            yield address, proxy
        finally:
            proxy.end()


def _socket_of(url: str) -> str:
    return str(Path(parse_qs(urlsplit(url).query)["host"][0], _PORT_FILE))


@asynccontextmanager
async def _served(url: str, proxy: LossyProxy | SilentProxy) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = await asyncio.start_unix_server(proxy.serve, Path(folder, _PORT_FILE))
        try:
            yield urlunsplit(urlsplit(url)._replace(query=f"host={folder}&port=5432"))
        finally:
            server.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 5)
