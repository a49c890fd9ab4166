"""Sessions on the page: listed, searched, read, exported, forked, deleted."""

import json
import os
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from markup import Markup
from saved_home import EVIL, FIX, HOSTILE, TOUR, fill
from served import TOKEN, Visitor, opened
from starlette.applications import Starlette
from starlette.routing import Mount

from geminorum import Options, events, sessions
from geminorum.sessions.lock import SessionLock
from geminorum.web import app
from saved_sessions import Store, answer, prompt

pytestmark = pytest.mark.asyncio(loop_scope="module")
AT = "2026-01-01T10:00:00.000Z"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("sessions")
    (folder / "code").mkdir()
    return fill(folder / "home", folder / "code")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(store: Store) -> AsyncIterator[Visitor]:
    async with page_over(store.home, store.cwd) as visitor:
        yield visitor


def page_over(home: Path, folder: Path, **settings):
    options = Options(cwd=folder, home=home)
    return opened(db=f"sqlite:///{home.parent}/web.db", options=options, **settings)


async def read(visitor: Visitor, path: str, status: int = 200) -> Markup:
    answer = await visitor.get(path)
    assert answer.status_code == status, answer.text
    page = Markup(answer.text)
    assert not page.has_foreign_markup()
    return page


def titles(page: Markup) -> list[str]:
    return [one.text for one in page.all("p", class_="session-title")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def many(tmp_path_factory) -> AsyncIterator[Visitor]:
    folder = tmp_path_factory.mktemp("many")
    store = Store(folder / "home", folder)
    for number in range(120):
        path = store.save(f"{number:08}-0000", f"Question {number}")
        os.utime(path, (number, number))
    async with page_over(store.home, folder) as visitor:
        yield visitor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def long(tmp_path_factory) -> AsyncIterator[Visitor]:
    folder = tmp_path_factory.mktemp("long")
    store = Store(folder / "home", folder)
    calls = [{"id": str(n), "name": "ls", "args": {}} for n in range(5000)]
    store.write(
        FIX,
        prompt("x" * 3_000_000, AT, "u1"),
        answer("It is long.", AT, "g1", *calls),
        prompt("And now?", AT, "u2"),
        *(answer("y" * 400_000, AT, f"h{number}") for number in range(8)),
    )
    async with page_over(store.home, folder) as visitor:
        yield visitor


class TestTheList:
    async def test_has_all_sessions_the_latest_first(self, visitor, store):
        page = await read(visitor, "/sessions")
        first, second, third = titles(page)
        assert first == "Why does `test_queue.py` fail now and then? Please fix it."
        assert second == "Question 0 about the river"
        assert third == "<script>alert(1)</script>\\u202e␛[31m"
        assert page.all("li", class_="session")[0].text.count(store.cwd.name) == 1
        assert "3 sessions" in page.all("p", role="status")[0].text

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("q=RIVER", [TOUR]),
            ("q=no+lock", [FIX]),
            ("q=%3Cscript%3E", [HOSTILE]),
            ("q=nobody+said+this", []),
            ("q=+", [FIX, TOUR, HOSTILE]),
            ("project=nowhere", []),
            ("page=2", []),
            ("page=-1", [FIX, TOUR, HOSTILE]),
            ("page=" + "9" * 30, []),
        ],
    )
    async def test_is_searched_and_filtered(self, visitor, query, found):
        page = await read(visitor, f"/sessions?{query}")
        links = [one["href"] for one in page.all("a") if one["href"].startswith("/sessions/")]
        assert links == [f"/sessions/{name}" for name in found]

    async def test_shows_the_words_around_a_find(self, visitor):
        page = await read(visitor, "/sessions?q=NO+LOCK")
        assert page.one("mark").text == "no lock"
        found = page.one("p", class_="find").text
        assert found.startswith("Gemini: Two threads take the same item")

    async def test_is_filtered_by_project_and_days(self, visitor, store):
        page = await read(visitor, "/sessions")
        options = {one.text: one["value"] for one in page.all("option")}
        assert options[f"{store.cwd} (3)"] == str(store.cwd)
        today = datetime.now().astimezone()
        day = (today - timedelta(days=6)).date()
        chosen = {"project": str(store.cwd), "until": str(day)}
        page = Markup((await visitor.get("/sessions", params=chosen)).text)
        assert titles(page) == ["<script>alert(1)</script>\\u202e␛[31m"]
        yesterday = str((today - timedelta(days=1)).date())
        page = Markup((await visitor.get("/sessions", params={"since": yesterday})).text)
        assert len(titles(page)) == 1

    @pytest.mark.parametrize("wrong", ["tomorrow", "2026-13-01", "<b>"])
    async def test_says_at_its_field_that_a_day_is_none(self, visitor, wrong):
        answer = await visitor.get("/sessions", params={"since": wrong})
        page = Markup(answer.text)
        assert answer.status_code == 422
        assert page.one("p", id="since-error").text.endswith("write it as 2026-11-30")
        assert page.one("input", id="since")["aria-describedby"] == "since-error"
        assert len(titles(page)) == 3

    async def test_comes_without_the_page_around_it_for_a_script(self, visitor):
        answer = await visitor.get("/sessions?q=river", headers={"hx-request": "true"})
        page = Markup(answer.text)
        assert (page.all("html"), titles(page)) == ([], ["Question 0 about the river"])


class TestALongList:
    async def test_has_pages_that_lead_to_each_other(self, many):
        page = await read(many, "/sessions")
        seen = titles(page)
        while older := page.all("a", rel="next"):
            page = await read(many, older[0]["href"])
            seen += titles(page)
        assert seen == [f"Question {number}" for number in range(119, -1, -1)]
        assert page.one("a", rel="prev")["href"] == "/sessions?page=2"

    async def test_keeps_its_filters_on_every_page(self, many):
        page = await read(many, "/sessions?q=question&until=2026-12-01")
        assert page.one("a", rel="next")["href"] == "/sessions?q=question&until=2026-12-01&page=2"


class TestASession:
    async def test_is_a_transcript_with_folded_tools_and_coloured_diffs(self, visitor):
        page = await read(visitor, f"/sessions/{FIX}")
        assert page.one("h1").text == "Why does `test_queue.py` fail now and then? Please fix it."
        names = [one.text.split()[0] for one in page.all("details", class_="call")]
        shell = "run_shell_command"
        assert names == ["grep_search", "read_file", "replace", shell, shell]
        assert [one.text for one in page.all("strong")] == ["no lock"]
        assert "+ with self._lock:" in [one.text for one in page.all("span", class_="came")]
        assert "- return self._items.pop()" in [one.text for one in page.all("span", class_="went")]
        facts = page.one("dl", class_="facts").text
        assert "gemini-2.5-flash" in facts
        assert "47,365" in facts
        assert FIX in facts

    async def test_has_a_timeline_of_its_tools(self, visitor):
        page = await read(visitor, f"/sessions/{FIX}")
        (bars,) = page.all("ol", class_="bars")
        assert bars.text.count("run_shell_command") == 2
        rows = [one for one in page.all("li") if "data-status" in one.attributes]
        assert [one["data-status"] for one in rows] == ["success"] * 4 + ["denied"]
        assert [one.text.split()[-2:] for one in rows][3] == ["14.0", "s"]
        widths = [float(one["width"]) for one in page.all("rect")]
        assert max(widths) == widths[3] > 5 * widths[2]
        targets = {one["href"] for one in page.all("a", class_="bar-name")}
        assert targets <= {f"#{one['id']}" for one in page.all("article")}

    async def test_of_many_messages_is_read_in_parts(self, visitor):
        page = await read(visitor, f"/sessions/{TOUR}")
        asked = []
        while True:
            asked += [one.text for one in page.all("article", class_="user")]
            later = page.all("a", rel="next")
            if not later:
                break
            page = await read(visitor, later[0]["href"])
        assert [text.split("UTC")[1] for text in asked] == [
            f"Question {number} about the river" for number in range(80)
        ]
        assert "of 161" in page.all("nav", class_="pager")[0].text
        page = await read(visitor, f"/sessions/{TOUR}?from=99999999")
        assert "Messages 161 to 161 of 161" in page.all("nav", class_="pager")[0].text

    async def test_that_is_too_long_for_one_answer_is_read_as_lines(self, visitor, monkeypatch):
        path = f"/api/sessions/{TOUR}/messages"
        assert (await visitor.get(path)).status_code == 200
        monkeypatch.setattr("geminorum.apps.web.api.sessions.MAX_DOCUMENT_BYTES", 1_000)
        answer = await visitor.get(path)
        assert answer.status_code == 422
        assert "format=jsonl" in answer.json()["error"]["hint"]

    async def test_that_says_markup_is_text(self, visitor):
        page = await read(visitor, f"/sessions/{HOSTILE}")
        assert page.one("title").text.startswith("<script>alert(1)</script>")
        assert "\u202e" not in page.one("main").text
        links = [one["href"] for one in page.all("a", class_="image")]
        assert links == ["https://evil.example/x.png"]  # To follow, never loaded.

    async def test_is_found_by_the_beginning_of_its_id(self, visitor):
        answer = await visitor.get("/sessions/aaaaaaaa")
        assert answer.url.path == f"/sessions/{FIX}"

    @pytest.mark.parametrize(
        "name",
        [
            "00000000-dead",
            "..%2F..%2Fetc%2Fpasswd",
            "%2e%2e",
            "a" * 300,
            "%3Cscript%3E",
            "x%00y",
            "latest*",
        ],
    )
    @pytest.mark.parametrize("more", ["", "/export", "/delete"])
    async def test_that_is_not_there_is_a_clear_page(self, visitor, name, more):
        page = await read(visitor, f"/sessions/{name}{more}", 404)
        assert page.one("h1").text == "There is no such page"

    async def test_can_be_resumed_by_a_form(self, visitor, store):
        page = await read(visitor, f"/sessions/{FIX}")
        (link,) = [one["href"] for one in page.all("a") if one.text == "Resume"]
        form = await read(visitor, link)
        assert form.one("input", id="resume")["value"] == FIX
        assert form.one("input", id="folder")["value"] == str(store.cwd)


class TestALongSession:
    """A hundred megabytes are the same to it as these three: see `benchmarks`."""

    async def test_is_a_bounded_page_that_says_what_is_left_out(self, long):
        start, seen = f"/sessions/{FIX}", []
        while start:
            answer = await long.get(start)
            assert len(answer.text) < 400_000
            page = Markup(answer.text)
            seen += [one.text for one in page.all("span", class_="left-out")]
            start = (page.all("a", rel="next") or [{"href": ""}])[0]["href"]
        assert seen[0] == "… 2,980,000 more characters are left out here; an export has them."
        assert "… 4,801 more parts of this answer are left out here; an export has them." in seen
        assert sum("380,000 more characters" in one for one in seen) == 8

    async def test_draws_some_of_its_calls_and_counts_the_rest(self, long):
        pages = [(await long.get(f"/sessions/{FIX}?from={n}")).text for n in range(3)]
        (drawn,) = [text for text in pages if "5,000 calls" in text][:1]
        assert "4,800 more calls are not drawn" in drawn


class TestAnExport:
    @pytest.mark.parametrize(
        ("format", "suffix", "beginning"),
        [("markdown", "md", "# Why does"), ("html", "html", "<!doctype html>")],
    )
    async def test_is_a_file_to_keep(self, visitor, format, suffix, beginning):
        answer = await visitor.get(f"/sessions/{FIX}/export?format={format}")
        name = f"attachment; filename*=utf-8''session-aaaaaaaa.{suffix}"
        assert answer.headers["content-disposition"] == name
        assert answer.text.startswith(beginning)
        assert "no lock" in answer.text

    async def test_as_json_has_every_event(self, visitor, store):
        answer = await visitor.get(f"/sessions/{FIX}/export?format=jsonl")
        told = [events.decode(line) for line in answer.text.splitlines()]
        assert told == list(sessions.load(FIX, home=store.home).events())

    async def test_in_a_format_that_nobody_knows_is_refused(self, visitor):
        page = await read(visitor, f"/sessions/{FIX}/export?format=pdf", 422)
        assert "one of markdown, html, jsonl" in page.one("main").text


class TestAChange:
    @pytest_asyncio.fixture(loop_scope="module")
    async def own(self, tmp_path) -> AsyncIterator[Visitor]:
        fill(tmp_path / "home", tmp_path)
        async with page_over(tmp_path / "home", tmp_path) as visitor:
            yield visitor

    async def test_a_fork_leads_to_the_copy(self, own, tmp_path):
        page = Markup((await own.post(f"/sessions/{FIX}/fork")).text)
        assert page.one("h1").text.startswith("Why does")
        assert "Forked from" in page.one("dl", class_="facts").text
        ids = {info.id for info in sessions.list(home=tmp_path / "home")}
        assert len(ids) == 4
        assert FIX in ids

    async def test_a_session_is_deleted_after_a_question(self, own, tmp_path):
        page = await read(own, f"/sessions/{FIX}/delete")
        assert page.one("h1").text == "Delete this session?"
        assert len(sessions.list(home=tmp_path / "home")) == 3
        page = Markup((await own.post(f"/sessions/{FIX}/delete")).text)
        assert "The session was deleted." in page.one("main").text
        assert FIX not in {info.id for info in sessions.list(home=tmp_path / "home")}
        await read(own, f"/sessions/{FIX}", 404)

    async def test_a_session_at_work_is_not_deleted(self, own, tmp_path):
        with SessionLock(tmp_path / "home", FIX):
            answer = await own.post(f"/sessions/{FIX}/delete")
        assert answer.status_code == 409
        assert FIX in {info.id for info in sessions.list(home=tmp_path / "home")}

    async def test_a_page_to_read_has_no_buttons_that_change(self, tmp_path):
        fill(tmp_path / "home", tmp_path)
        async with page_over(tmp_path / "home", tmp_path, read_only=True) as visitor:
            page = await read(visitor, f"/sessions/{FIX}")
            assert page.all("form") == []
            labels = {one.text for one in page.all("a", class_="button")}
            assert labels == {"Markdown", "HTML", "JSON"}


class TestABrokenStore:
    async def test_without_sessions_says_so(self, tmp_path):
        async with page_over(tmp_path / "nowhere", tmp_path) as visitor:
            page = await read(visitor, "/sessions")
            assert "There are no sessions yet" in page.one("main").text

    async def test_that_is_a_file_has_no_sessions(self, tmp_path):
        (tmp_path / ".gemini").mkdir()
        (tmp_path / ".gemini/tmp").write_text("in the way")
        async with page_over(tmp_path, tmp_path) as visitor:
            page = await read(visitor, "/sessions")
            assert "There are no sessions yet" in page.one("main").text

    async def test_lists_files_that_are_no_sessions_with_what_is_wrong(self, tmp_path):
        store = Store(tmp_path / "home", tmp_path)
        (store.chats / "session-broken.jsonl").write_text(EVIL)
        (store.chats / "session-pipe.jsonl").symlink_to("/dev/zero")
        top = {"sessionId": "../../evil", "startTime": AT}
        (store.chats / "session-evil.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in (top, prompt("Hi", AT, "u1")))
        )
        async with page_over(store.home, tmp_path) as visitor:
            page = await read(visitor, "/sessions")
            told = page.one("main").text
            assert "nothing in it is a record of a session" in told
            assert "is a link out of the store" in told
            assert "Hi" in told
            # Its id cannot stand in an address, so nothing leads there.
            links = [one for one in page.all("a") if one["href"].startswith("/sessions/")]
            assert links == []

    async def test_a_file_that_has_gone_is_a_clear_page(self, tmp_path):
        store = fill(tmp_path / "home", tmp_path)
        async with page_over(store.home, tmp_path) as visitor:
            await read(visitor, "/sessions")
            for path in store.chats.iterdir():
                path.unlink()
            await read(visitor, f"/sessions/{FIX}", 404)
            assert titles(await read(visitor, "/sessions")) == []


async def test_below_a_prefix_every_link_stays_below_it(tmp_path):
    fill(tmp_path / "home", tmp_path)
    options = Options(cwd=tmp_path, home=tmp_path / "home")
    page = app(token=TOKEN, db=f"sqlite:///{tmp_path}/web.db", options=options)
    site = Starlette(routes=[Mount("/gemini", page)])
    transport = httpx.ASGITransport(app=site)
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1")
    client.follow_redirects = True
    async with page.running(), client:
        await client.get(f"/gemini/runs?token={TOKEN}")
        pages = ["/sessions?q=lock", f"/sessions/{FIX}", f"/sessions/{TOUR}", "/usage?by=session"]
        for path in [*pages, f"/sessions/{FIX}/delete", "/agents", "/agents/new"]:
            answer = await client.get(f"/gemini{path}")
            assert answer.status_code == 200, path
            found = Markup(answer.text)
            addresses = [one.attributes.get("href") for one in found.all("a")]
            addresses += [one.attributes.get("action") for one in found.all("form")]
            astray = [one for one in addresses if one and not one.startswith(("/gemini/", "#"))]
            assert astray == [], path
