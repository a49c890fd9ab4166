"""The page on a socket of this machine, and somebody who uses it."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from geminorum.apps.web.serving import address_of, listening, serve
from geminorum.web import WebApp, app

TOKEN = "correct-horse-battery-staple"
_CSRF = re.compile(r'name="csrf" value="(\w+)"')


class Sent(NamedTuple):
    """One event of a stream."""

    id: str | None
    event: str
    data: Any


class Visitor:
    """A browser without JavaScript: keeps cookies, follows redirects, sends forms."""

    def __init__(self, page: WebApp, address: str, client: httpx.AsyncClient) -> None:
        self.app, self.address, self.client = page, address, client

    @property
    def link(self) -> str:
        """What `geminorum web` would print."""
        return self.app.link(self.address)

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def csrf(self) -> str:
        found = _CSRF.search((await self.get("/runs")).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        """Sends a form of the page; it carries its token."""
        headers = {"origin": self.address}
        data = {"csrf": await self.csrf(), **fields}
        return await self.client.post(path, data=data, headers=headers)

    async def start(self, prompt: str, via: str, **fields: Any) -> str:
        """Starts a run by the form; returns its id."""
        answer = await self.post("/runs", prompt=prompt, via=via, **fields)
        assert answer.status_code == 200, answer.text
        return answer.url.path.rpartition("/")[2]

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """Waits for a run to get there; returns its facts."""
        async with asyncio.timeout(15):
            while (run := (await self.get(f"/api/runs/{id}")).json())["status"] not in statuses:
                await asyncio.sleep(0.02)
        return run

    async def stream(self, path: str, last: int | None = None) -> AsyncGenerator[Sent, None]:
        """Server-sent events, as they come; `last` is where a connection was lost."""
        headers = {} if last is None else {"last-event-id": str(last)}
        async with self.client.stream("GET", path, headers=headers, timeout=30) as answer:
            assert answer.status_code == 200, await answer.aread()
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "data" in fields:
                    yield Sent(fields.get("id"), fields["event"], json.loads(fields["data"]))
                    fields = {}
                else:
                    fields = {}

    async def log_in(self) -> None:
        await self.get(f"/runs?token={TOKEN}")


@asynccontextmanager
async def served(port: int = 0, **settings: Any) -> AsyncIterator[Visitor]:
    """The page with these settings, on a free port, and a visitor who is logged in."""
    page = app(**{"token": TOKEN, **settings})
    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    with listening("127.0.0.1", port) as socket:
        task = asyncio.create_task(serve(page, socket, ready.set_result))
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        address = address_of(socket)
        try:
            # A connection that is used again may be closed by the server at that very moment.
            limits = httpx.Limits(max_keepalive_connections=0)
            async with httpx.AsyncClient(
                base_url=address, follow_redirects=True, limits=limits
            ) as client:
                visitor = Visitor(page, address, client)
                await visitor.log_in()
                yield visitor
        finally:
            page.end()
            if ready.done():
                ready.result().should_exit = True
            await task


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Visitor]:
    """The same without a socket, for tests that look at requests and answers only."""
    page = app(**{"token": TOKEN, **settings})
    address = "http://127.0.0.1:8765"
    transport = httpx.ASGITransport(app=page)
    async with page.running(), httpx.AsyncClient(transport=transport, base_url=address) as client:
        client.follow_redirects = True
        visitor = Visitor(page, address, client)
        await visitor.log_in()
        yield visitor


def stranger(visitor: Visitor, **more: Any) -> httpx.AsyncClient:
    """Somebody at the same page who is not logged in."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=visitor.app), base_url=visitor.address, **more
    )
