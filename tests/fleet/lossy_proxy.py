"""A connection to PostgreSQL that breaks at the worst moment: after a commit, before its answer."""

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


async def _pass_on(reader, writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def lossy_proxy(url: str, words: bytes) -> AsyncIterator[tuple[str, LossyProxy]]:
    """Another address of the same database, and what loses an answer on the way."""
    parts = urlsplit(url)
    proxy = LossyProxy(str(Path(parse_qs(parts.query)["host"][0], _PORT_FILE)), words)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = await asyncio.start_unix_server(proxy.serve, Path(folder, _PORT_FILE))
        try:
            yield urlunsplit(parts._replace(query=f"host={folder}&port=5432")), proxy
        finally:
            server.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 5)
