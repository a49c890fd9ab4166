"""Who gets in, from where, and what they may change: attacks on the page."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from markup import Markup
from served import TOKEN, Visitor, opened, served, stranger
from starlette.routing import Route

from geminorum.apps.web.security.headers import SERVER
from geminorum.apps.web.security.origin import is_loopback
from geminorum.apps.web.serving import _IDLE_CONNECTIONS

on_shared = pytest.mark.asyncio(loop_scope="module")
pytestmark = on_shared
PAGES = ["/", "/runs", "/runs/0123456789abcdef", "/live", "/api/runs", "/api/openapi.json"]
ELSEWHERE = ["https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8765", ""]
ELSEWHERE += ["http://[", "http://127.0.0.1:8765@evil.example"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """Somebody who is logged in, at a page that all tests here share."""
    folder = tmp_path_factory.mktemp("page")
    async with opened(db=f"sqlite:///{folder}/web.db") as visitor:
        yield visitor


class TestWithoutTheToken:
    @pytest.mark.parametrize("path", PAGES)
    async def test_nothing_is_shown(self, visitor, path):
        async with stranger(visitor) as client:
            answer = await client.get(path)
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
            assert "csrf" not in answer.text

    async def test_the_page_says_where_the_link_is(self, visitor):
        async with stranger(visitor) as client:
            assert "geminorum web" in (await client.get("/runs")).text

    async def test_only_styles_and_scripts_are_public(self, visitor):
        async with stranger(visitor) as client:
            assert (await client.get("/static/page.css")).status_code == 200
            for path in ("/static/../application.py", "/static/%2e%2e/application.py", "/static/"):
                assert (await client.get(path)).status_code in (401, 404)
            assert (await client.post("/static/page.css")).status_code == 401

    async def test_a_stale_link_gets_a_page_that_says_so(self, visitor):
        async with stranger(visitor) as client:
            answer = await client.get("/runs?token=that-of-yesterday")
            assert answer.status_code == 403
            assert "out of date" in answer.text
            assert "that-of-yesterday" not in answer.text
            assert "set-cookie" not in answer.headers

    @pytest.mark.parametrize(
        "change", [lambda s: s[:-1], lambda s: "x" + s, lambda s: ".", str.upper]
    )
    async def test_a_forged_session_is_none(self, visitor, change):
        [(name, session)] = visitor.client.cookies.items()
        async with stranger(visitor, cookies={name: change(session)}) as client:
            assert (await client.get("/runs")).status_code == 401

    async def test_the_session_of_another_page_is_none(self, visitor, tmp_path):
        async with opened(db=f"sqlite:///{tmp_path}/web.db", token="another " * 3) as other:
            [(_, session)] = other.client.cookies.items() or [("", "")]
            [(name, _)] = visitor.client.cookies.items()
            async with stranger(visitor, cookies={name: session}) as client:
                assert (await client.get("/runs")).status_code == 401


class TestStrangers:
    async def test_use_up_few_connections_however_many_they_open(self, tmp_path):
        async with served(db=f"sqlite:///{tmp_path}/web.db") as visitor:
            host, _, port = visitor.address.removeprefix("http://").partition(":")
            async with visitor.client.stream("GET", "/live") as stream:
                chunks = stream.aiter_bytes()
                await anext(chunks)
                opened = [
                    await asyncio.open_connection(host, int(port))
                    for _ in range(_IDLE_CONNECTIONS + 50)
                ]
                assert (await visitor.get("/runs")).status_code == 200
                async with asyncio.timeout(30):
                    for reader, _ in opened[:50]:
                        assert await reader.read() == b""
                assert not opened[-1][0].at_eof()
                visitor.app.end()  # What somebody looks at goes on to its end.
                assert b"event: over" in b"".join([chunk async for chunk in chunks])
            for _, writer in opened:
                writer.close()


class TestTheLink:
    async def test_becomes_a_session_without_the_token_in_the_address(self, visitor):
        async with stranger(visitor) as client:
            answer = await client.get(f"/runs?before=7&token={TOKEN}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/runs?before=7")
            cookie = answer.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert TOKEN not in cookie
            assert (await client.get("/runs")).status_code == 200

    async def test_leads_to_no_other_host(self, visitor):
        async with stranger(visitor) as client:
            request = client.build_request("GET", "/x")
            request.url = request.url.copy_with(raw_path=f"//evil.example/?token={TOKEN}".encode())
            assert (await client.send(request)).headers["location"] == "/evil.example/"

    async def test_works_from_elsewhere_too(self, visitor):
        """Browsers keep a strict cookie from a link in a mail; a page of ours leads on."""
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        async with stranger(visitor) as client:
            answer = await client.get("/runs?before=7", headers=headers)
            assert answer.status_code == 200
            assert 'http-equiv="refresh" content="0; url=/runs?before=7"' in answer.text
            headers["sec-fetch-site"] = "same-origin"
            assert (await client.get("/runs", headers=headers)).status_code == 401

    @pytest.mark.parametrize(
        "path", ["/%5Cevil.example/", "//evil.example/", "/%09/evil.example", "/%0A%2Fevil.example"]
    )
    async def test_from_elsewhere_leads_to_no_other_host_either(self, visitor, path):
        """Browsers read a backslash as a slash, and leave tabs and line ends out."""
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        async with stranger(visitor, headers=headers) as client:
            request = client.build_request("GET", "/x")
            request.url = request.url.copy_with(raw_path=path.encode())
            address = Markup((await client.send(request)).text).one("a")["href"]
        assert re.match(r"/[^/\\\s]", address)


class TestByWhichName:
    @pytest.mark.parametrize(
        "host",
        ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "[::1", "a b"],
    )
    async def test_a_rebound_name_reaches_nothing(self, visitor, host):
        answer = await visitor.get("/runs", headers={"host": host})
        assert answer.status_code == 421
        assert "--allow-host" in answer.text

    @pytest.mark.parametrize(
        "host", ["localhost:8765", "LOCALHOST", "127.0.0.1", "[::1]:8765", "192.168.1.7:80"]
    )
    async def test_localhost_and_addresses_are_ours(self, visitor, host):
        assert (await visitor.get("/runs", headers={"host": host})).status_code == 200

    async def test_a_name_can_be_allowed(self, tmp_path):
        settings = {"db": f"sqlite:///{tmp_path}/web.db", "allowed_hosts": ("agents.example",)}
        async with opened(**settings) as visitor:
            assert (
                await visitor.get("/runs", headers={"host": "agents.example"})
            ).status_code == 200

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            ("127.0.0.1", True),
            ("::1", True),
            ("localhost", True),
            ("0.0.0.0", False),
            ("10.0.0.1", False),
            ("example.com", False),
        ],
    )
    async def test_loopback_is_this_machine(self, host, expected):
        assert is_loopback(host) is expected


class TestChanges:
    async def test_need_the_token_of_the_form(self, visitor):
        headers = {"origin": visitor.address}
        for data in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
            answer = await visitor.client.post(
                "/runs", data={"prompt": "x", **data}, headers=headers
            )
            assert answer.status_code == 403
            assert "reload" in answer.text

    async def test_need_the_token_of_this_session(self, visitor):
        async with stranger(visitor, follow_redirects=True) as client:
            await client.get(f"/runs?token={TOKEN}")
            answer = await client.post("/runs", data={"csrf": await visitor.csrf(), "prompt": "x"})
            assert answer.status_code == 403

    async def test_the_token_counts_in_no_address(self, visitor):
        token = await visitor.csrf()
        assert (await visitor.client.post(f"/runs?csrf={token}")).status_code == 403
        assert (await visitor.client.post(f"/runs?token={TOKEN}")).status_code == 403

    @pytest.mark.parametrize(
        "kind", ["multipart/form-data; boundary=x", "text/plain", "application/json", ""]
    )
    async def test_other_forms_need_it_in_a_header(self, visitor, kind):
        body = f"csrf={await visitor.csrf()}&prompt=x"
        headers = {"content-type": kind}
        assert (
            await visitor.client.post("/runs", content=body, headers=headers)
        ).status_code == 403

    @pytest.mark.parametrize("origin", ELSEWHERE)
    async def test_come_from_no_other_page(self, visitor, origin):
        data = {"csrf": await visitor.csrf(), "prompt": ""}
        answer = await visitor.client.post("/runs", data=data, headers={"origin": origin})
        assert answer.status_code == 403
        assert "another page" in answer.text.lower()

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    async def test_another_port_of_this_machine_is_another_page(self, visitor, site):
        data = {"csrf": await visitor.csrf(), "prompt": ""}
        answer = await visitor.client.post("/runs", data=data, headers={"sec-fetch-site": site})
        assert answer.status_code == 403

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    async def test_no_other_page_can_load_anything(self, visitor, site):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
        for path in ("/runs", "/api/runs", "/static/page.js"):
            assert (await visitor.get(path, headers=headers)).status_code == 403

    async def test_every_one_of_them_is_guarded(self, visitor):
        guarded = [
            (method, route.path.replace("{id}", "0123456789abcdef"))
            for route in visitor.app.routes
            if isinstance(route, Route)
            for method in (route.methods or set()) - {"GET", "HEAD"}
        ]
        assert len(guarded) >= 6
        for method, path in guarded:
            answer = await visitor.client.request(method, path, headers={"origin": visitor.address})
            assert answer.status_code == 403, (method, path)

    async def test_a_link_changes_nothing(self, visitor):
        for path in ("/runs/0123456789abcdef/stop", "/runs/0123456789abcdef/remove"):
            assert (await visitor.get(path)).status_code == 405

    async def test_too_much_is_refused_before_it_is_kept(self, visitor):
        long = "x" * 10_000_000
        assert (await visitor.client.post("/runs", data={"prompt": long})).status_code == 413
        for name, value in (
            ("x-csrf-token", await visitor.csrf()),
            ("authorization", f"Bearer {TOKEN}"),
        ):
            answer = await visitor.client.post(
                "/api/runs", json={"prompt": long}, headers={name: value}
            )
            assert answer.status_code == 413


class TestScripts:
    async def test_the_token_in_a_header_is_enough(self, visitor):
        async with stranger(visitor, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            assert (await client.get("/api/runs")).json() == {"runs": []}
            answer = await client.post("/api/runs", json={"prompt": ""})
            assert answer.status_code == 422

    @pytest.mark.parametrize(
        "value", ["Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer "]
    )
    async def test_any_other_is_not(self, visitor, value):
        async with stranger(visitor, headers={"authorization": value}) as client:
            answer = await client.get("/api/runs")
            assert answer.status_code == 401
            assert "Bearer" in answer.json()["error"]["hint"]

    async def test_a_session_needs_the_token_of_the_page(self, visitor):
        body = {"prompt": ""}
        assert (await visitor.client.post("/api/runs", json=body)).status_code == 403
        headers = {"x-csrf-token": await visitor.csrf()}
        answer = await visitor.client.post("/api/runs", json=body, headers=headers)
        assert answer.status_code == 422


class TestReadOnly:
    async def test_nothing_can_be_changed(self, tmp_path):
        async with opened(db=f"sqlite:///{tmp_path}/web.db", read_only=True) as visitor:
            page = await visitor.get("/runs")
            assert "<form" not in page.text
            assert "read-only" in page.text
            bearer = {"authorization": f"Bearer {TOKEN}"}
            for path in ("/runs", "/api/runs"):
                answer = await visitor.client.post(path, json={"prompt": "x"}, headers=bearer)
                assert answer.status_code == 403
                assert "--read-only" in answer.text


class TestBehindAProxy:
    async def test_its_header_lets_people_in(self, tmp_path):
        settings = {"db": f"sqlite:///{tmp_path}/web.db", "proxy_header": "X-Forwarded-User"}
        async with opened(**settings) as visitor, stranger(visitor) as client:
            assert (await client.get("/runs")).status_code == 401
            assert (await client.get("/runs", headers={"x-forwarded-user": " "})).status_code == 401
            anna = {"x-forwarded-user": "anna"}
            page = await client.get("/runs", headers=anna)
            assert page.status_code == 200
            assert (
                await client.post("/runs", headers=anna, data={"prompt": ""})
            ).status_code == 403
            proxied = Visitor(visitor.app, visitor.address, client)
            client.headers.update(anna)
            assert (await proxied.post("/runs", prompt="")).status_code == 422

    async def test_whoever_it_no_longer_names_is_out(self, tmp_path):
        settings = {"db": f"sqlite:///{tmp_path}/web.db", "proxy_header": "X-Forwarded-User"}
        async with opened(**settings) as visitor, stranger(visitor) as client:
            anna = Visitor(visitor.app, visitor.address, client)
            client.headers["x-forwarded-user"] = "anna"
            csrf = await anna.csrf()
            assert await anna.csrf() == csrf
            del client.headers["x-forwarded-user"]
            assert client.cookies
            assert (await client.get("/runs")).status_code == 401
            assert (await client.post("/runs", data={"csrf": csrf})).status_code == 401

    async def test_a_link_in_a_mail_leaves_the_forms_of_open_pages_alone(self, tmp_path):
        """Browsers keep the session from it; another one in its place would end that one."""
        settings = {"db": f"sqlite:///{tmp_path}/web.db", "proxy_header": "X-Forwarded-User"}
        anna = {"x-forwarded-user": "anna"}
        link = {**anna, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        async with opened(**settings) as visitor, stranger(visitor, headers=link) as client:
            answer = await client.get("/inbox")
            assert answer.status_code == 200
            assert "set-cookie" not in answer.headers
            assert 'content="0; url=/inbox"' in answer.text

    @pytest.mark.parametrize(("told", "is_secure"), [("https", True), ("http", False)])
    async def test_a_session_that_came_by_tls_goes_by_tls_only(self, visitor, told, is_secure):
        async with stranger(visitor, headers={"x-forwarded-proto": told}) as client:
            cookie = (await client.get(f"/runs?token={TOKEN}")).headers["set-cookie"].lower()
            assert ("; secure" in cookie) is is_secure

    async def test_without_being_told_so_it_lets_nobody_in(self, visitor):
        async with stranger(visitor, headers={"x-forwarded-user": "anna"}) as client:
            assert (await client.get("/runs")).status_code == 401


class TestWhatTheTerminalShows:
    async def test_of_a_failure_cannot_act_there(self, visitor, caplog):
        async def boom(request: Any) -> None:
            raise RuntimeError("said by a model: \x1b]0;owned\x07")

        visitor.app.router.routes.insert(0, Route("/boom/{name}", boom))
        answer = await visitor.get("/boom/%1b%5d0;owned%07%0a%e2%80%ae")
        del visitor.app.router.routes[0]
        assert answer.status_code == 500
        assert "\\u001b]0;owned" in caplog.text
        assert not {"\x1b", "\x07", "\u202e"} & {*caplog.text}


class TestHeaders:
    @pytest.mark.parametrize(
        "path", ["/runs", "/nowhere", "/api/runs", "/static/page.css", "/boom"]
    )
    async def test_are_on_every_answer(self, visitor, path):
        async def boom(request: Any) -> None:
            raise RuntimeError("a secret")

        visitor.app.router.routes.insert(0, Route("/boom", boom))
        answer = await visitor.get(path)
        del visitor.app.router.routes[0]
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["server"] == SERVER
        assert "access-control-allow-origin" not in answer.headers
        assert "a secret" not in answer.text
        if path != "/static/page.css":
            assert answer.headers["cache-control"] == "no-store"
