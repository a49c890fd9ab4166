"""The page inside of a program of somebody else, below a prefix."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser

import httpx
import pytest
import pytest_asyncio
from played import settings
from served import TOKEN, Visitor, served
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from geminorum import web

pytestmark = pytest.mark.asyncio(loop_scope="module")
ADDRESS = "http://127.0.0.1:8765"


@asynccontextmanager
async def mounted(page: web.WebApp, *, is_run: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """A program with the page below /team/agents."""

    async def home(request):
        return PlainTextResponse("ours")

    @asynccontextmanager
    async def lifespan(_):
        async with page.running():
            yield

    inner = Starlette(routes=[Mount("/agents", page), Route("/", home)])
    site = Starlette(routes=[Mount("/team", inner)], lifespan=lifespan)
    transport = httpx.ASGITransport(app=site)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        client.follow_redirects = True
        if not is_run:
            yield client
            return
        async with lifespan(site):
            yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    page = web.app(token=TOKEN, **settings(tmp_path_factory.mktemp("embedded")))
    async with mounted(page) as client:
        answer = await client.get(page.link(f"{ADDRESS}/team/agents"))
        assert answer.url.path == "/team/agents/runs"
        yield Visitor(page, ADDRESS, client)


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag, attrs):
        names = ("href", "src", "action", "hx-post", "hx-get", "data-live")
        self.found |= {value for name, value in attrs if name in names and value}


async def test_every_address_on_every_page_is_below_the_prefix(visitor):
    form = {"prompt": "Use pi", "via": "quick", "csrf": await _csrf(visitor)}
    run = await visitor.client.post("/team/agents/runs", data=form)
    assert run.url.path.startswith("/team/agents/runs/")
    for path in ("/runs", f"/runs/{run.url.path.rpartition('/')[2]}", "/inbox", "/nowhere"):
        page = _Addresses()
        page.feed((await visitor.get(f"/team/agents{path}")).text)
        outside = {one for one in page.found if not one.startswith(("/team/agents/", "#"))}
        assert outside == set()
        for address in page.found:
            if "/static/" in address:
                assert (await visitor.get(address)).status_code == 200
    async with asyncio.timeout(30):
        while (found := await _run(visitor, run))["ended"] is None:
            await asyncio.sleep(0.05)
    assert found["status"] == "success", found


async def test_the_session_is_for_the_page_and_not_for_the_program_around_it(visitor):
    [cookie] = [one for one in visitor.client.cookies.jar if one.name.startswith("geminorum_")]
    assert cookie.path == "/team/agents"
    assert (await visitor.get("/team/")).text == "ours"


async def test_the_api_says_where_it_is(visitor):
    document = (await visitor.get("/team/agents/api/openapi.json")).json()
    assert document["servers"] == [{"url": "/team/agents"}]
    assert (await visitor.get("/team/agents/api/runs")).status_code == 200
    assert (await visitor.get("/team/agents/api/nowhere")).json()["error"]["code"] == "HTTP_404"


async def test_the_program_may_say_who_comes_in(tmp_path):
    async def is_anna(request) -> bool:
        return request.headers.get("x-login") == "anna"

    page = web.app(authorize=is_anna, **settings(tmp_path))
    async with mounted(page) as client:
        assert (await client.get("/team/agents/runs")).status_code == 401
        headers = {"x-login": "bob"}
        assert (await client.get("/team/agents/runs", headers=headers)).status_code == 401
        client.headers["x-login"] = "anna"
        assert (await client.get("/team/agents/runs")).status_code == 200
        form = {"prompt": ""}
        assert (await client.post("/team/agents/runs", data=form)).status_code == 403
        form["csrf"] = await _csrf(Visitor(page, ADDRESS, client))
        assert (await client.post("/team/agents/runs", data=form)).status_code == 422


async def test_who_is_logged_out_of_the_program_is_out_here_too(tmp_path):
    logged_in = {"anna"}
    page = web.app(authorize=lambda request: "anna" in logged_in, **settings(tmp_path))
    async with mounted(page) as client:
        assert (await client.get("/team/agents/runs")).status_code == 200
        assert client.cookies
        logged_in.clear()
        assert (await client.get("/team/agents/runs")).status_code == 401
        await client.get(page.link(f"{ADDRESS}/team/agents"))  # The token is enough.
        assert (await client.get("/team/agents/runs")).status_code == 200


async def test_who_is_logged_out_of_the_program_sees_no_more_of_a_stream(tmp_path, monkeypatch):
    monkeypatch.setattr("geminorum.apps.web.security.visit._ASK_AGAIN_SECONDS", 0.0)
    for room in ("live.stream", "api.event_stream"):
        monkeypatch.setattr(f"geminorum.apps.web.{room}.HEARTBEAT_SECONDS", 0.1)
    logged_in = {"anna"}
    parts = {**settings(tmp_path), "authorize": lambda request: "anna" in logged_in}
    async with served(**parts) as page, httpx.AsyncClient(base_url=page.address) as anna:
        for path in ("/live", "/api/events"):
            async with asyncio.timeout(30), anna.stream("GET", path) as stream:
                assert stream.status_code == 200
                logged_in.clear()
                async for _ in stream.aiter_bytes():
                    pass
            assert (await anna.get("/runs")).status_code == 401
            logged_in.add("anna")


async def test_a_login_that_fails_lets_nobody_in(tmp_path):
    page = web.app(authorize=lambda request: "no", **settings(tmp_path))
    async with mounted(page) as client:
        assert (await client.get("/team/agents/runs")).status_code == 401


async def test_a_page_that_nobody_opened_says_what_to_write(tmp_path):
    page = web.app(token=TOKEN, **settings(tmp_path))
    async with mounted(page, is_run=False) as client:
        answer = await client.get(page.link(f"{ADDRESS}/team/agents"))
        assert answer.status_code == 503
        assert "async with page.running()" in answer.text


async def test_what_it_takes_is_checked():
    with pytest.raises(TypeError, match="reed_only"):
        web.app(reed_only=True)


async def _csrf(visitor: Visitor) -> str:
    [token] = re.findall(
        r'name="csrf" value="(\w+)"', (await visitor.get("/team/agents/runs")).text
    )
    return token


async def _run(visitor: Visitor, run: httpx.Response) -> dict:
    return (await visitor.get(f"/team/agents/api/runs/{run.url.path.rpartition('/')[2]}")).json()
