"""The fleet on the page: workers, tenants and jobs; one job's events; cancel and retry."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from fleet_parts import new_database, working
from markup import Markup
from played import ANSWER, RESULT, WORK
from served import Visitor, opened

from geminorum import Options, fleet
from geminorum.apps.web.fleet.limit_bars import bars_of
from stand_in import StandIn

pytestmark = pytest.mark.asyncio(loop_scope="module")
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(server: str) -> str:
    return await new_database(server)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(url: str, folder: Path) -> AsyncIterator[Visitor]:
    async with opened(db=url, options=Options(cwd=folder)) as visitor:
        yield visitor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def jobs(url: str, folder: Path) -> dict[str, str]:
    """One that succeeded, one that failed, one that waits, by name; their ids."""
    stand_in, options = StandIn(folder), Options(home=folder)
    async with fleet.Fleet(url) as client:
        done = await client.submit("Use pi", options, tenant="geometry")
        async with working(url, {"cli": stand_in(*WORK, RESULT)}, name="first"):
            await done.wait()
        failed = await client.submit(EVIL, options, max_attempts=1)
        async with working(url, {"cli": stand_in(*WORK[:2], exit=1)}, name="second"):
            await failed.wait()
        waits = await client.submit("Wait for a worker", options, tenant="geometry", priority=3)
    return {"done": done.id, "failed": failed.id, "waits": waits.id}


async def read(visitor: Visitor, path: str, status: int = 200) -> Markup:
    answer = await visitor.get(path)
    assert answer.status_code == status, answer.text
    page = Markup(answer.text)
    assert not page.has_foreign_markup()
    return page


class TestTheFleet:
    async def test_shows_workers_tenants_and_jobs(self, visitor, jobs, url, folder):
        registered = asyncio.Event()
        how = {"tenants": ["nobody"], "on_report": lambda report: registered.set()}
        async with working(url, {"cli": StandIn(folder)()}, name="third", slots=3, **how):
            await asyncio.wait_for(registered.wait(), 30)
            page = await read(visitor, "/fleet")
        workers = page.one("section", aria_labelledby="workers").text
        assert "third ready 0 0 of 3" in workers
        assert "nobody" in workers
        tenants = page.one("section", aria_labelledby="tenants-title").text
        assert "geometry" in tenants
        assert "default" in tenants
        links = [one["href"] for one in page.all("a") if "/fleet/jobs/" in one["href"]]
        assert links == [f"/fleet/jobs/{jobs[name]}" for name in ("waits", "failed", "done")]

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("state=done", ["failed", "done"]),
            ("state=queued", ["waits"]),
            ("tenant=geometry", ["waits", "done"]),
            ("tenant=geometry&state=done", ["done"]),
            ("tenant=nobody", []),
            ("state=nonsense", ["waits", "failed", "done"]),
        ],
    )
    async def test_shows_the_jobs_that_are_asked_for(self, visitor, jobs, query, found):
        page = await read(visitor, f"/fleet?{query}")
        links = [one["href"] for one in page.all("a") if "/fleet/jobs/" in one["href"]]
        assert links == [f"/fleet/jobs/{jobs[name]}" for name in found]

    async def test_comes_without_the_page_around_it_for_a_script(self, visitor, jobs):
        answer = await visitor.get("/fleet", headers={"hx-request": "true"})
        assert Markup(answer.text).all("html") == []
        assert "geometry" in answer.text

    async def test_is_in_the_navigation(self, visitor):
        page = await read(visitor, "/runs")
        assert "Fleet" in [one.text for one in page.all("a")]


class TestLimits:
    @pytest_asyncio.fixture(loop_scope="module")
    async def limited(self, visitor, url, jobs) -> AsyncIterator[Visitor]:
        async with fleet.Fleet(url) as client:
            await client.set_limit("usd_per_day", "2.50", tenant="geometry")
            await client.set_limit("requests_per_minute", 600)
            yield visitor
            await client.remove_limit("usd_per_day", tenant="geometry")
            await client.remove_limit("requests_per_minute")

    async def test_are_bars_with_their_words(self, limited):
        page = await read(limited, "/fleet")
        shown = page.one("section", aria_labelledby="limits").text
        assert shown.index("$2.5 per day for tenant geometry") < shown.index("600 requests")
        labels = [one["aria-label"] for one in page.all("svg", role="img")]
        assert labels[0].endswith("% of $2.5 per day for tenant geometry")

    async def test_that_are_budgets_are_on_the_page_of_usage(self, limited):
        page = await read(limited, "/usage")
        shown = page.one("section", aria_labelledby="budgets").text
        assert "$2.5 per day for tenant geometry" in shown
        assert "600 requests" not in shown

    @pytest.mark.parametrize(
        ("used", "share", "level"), [("0", 0.0, "ok"), ("8", 0.8, "warn"), ("12", 1.0, "fail")]
    )
    async def test_have_the_colour_of_what_is_left(self, used, share, level):
        limit = fleet.LimitInfo(
            kind="usd_per_day", amount=Decimal(10), used=Decimal(used), waiting=0
        )
        assert bars_of([limit]) == [(limit, share, level)]


class TestAJob:
    async def test_shows_its_facts_and_events(self, visitor, jobs):
        page = await read(visitor, f"/fleet/jobs/{jobs['done']}")
        text = page.one("main").text
        assert page.one("h1").text == "Use pi"
        assert "success on first" in text
        assert "I look around." in text
        assert ANSWER.splitlines()[0].strip("# ") in [one.text for one in page.all("h5")]
        assert [one.text.split()[0] for one in page.all("details", class_="call")] == ["replace"]
        assert page.all("form") == []

    async def test_that_says_markup_is_text(self, visitor, jobs):
        page = await read(visitor, f"/fleet/jobs/{jobs['failed']}")
        assert page.one("h1").text == EVIL

    async def test_that_failed_is_run_again(self, visitor, jobs):
        answer = await visitor.post(f"/fleet/jobs/{jobs['failed']}/retry")
        new = answer.url.path.rpartition("/")[2]
        assert new != jobs["failed"]
        page = Markup(answer.text)
        assert page.all("span", class_="badge")[0].text == "queued"
        page = Markup((await visitor.post(f"/fleet/jobs/{new}/cancel")).text)
        assert page.all("span", class_="badge")[0].text == "interrupted"

    async def test_that_succeeded_is_not_run_again(self, visitor, jobs):
        answer = await visitor.post(f"/fleet/jobs/{jobs['done']}/retry")
        assert answer.status_code == 400
        assert "has succeeded" in answer.text

    @pytest.mark.parametrize(
        "name", ["nonsense", "00000000-0000-4000-8000-000000000000", "%3Cb%3E", "..%2F.."]
    )
    async def test_that_is_not_there_is_a_clear_page(self, visitor, name):
        await read(visitor, f"/fleet/jobs/{name}", 404)

    @pytest.mark.parametrize("after", ["1-2", "x", "99999999999-1", "1-2-3"])
    async def test_is_read_from_any_place(self, visitor, jobs, after):
        await read(visitor, f"/fleet/jobs/{jobs['done']}?after={after}")


async def test_a_page_to_read_cancels_nothing(url, jobs, folder):
    async with opened(db=url, options=Options(cwd=folder), read_only=True) as visitor:
        page = await read(visitor, f"/fleet/jobs/{jobs['waits']}")
        assert page.all("form") == []


async def test_without_a_fleet_the_page_says_how_to_have_one(tmp_path):
    async with opened(db=f"sqlite:///{tmp_path}/web.db", options=Options(cwd=tmp_path)) as visitor:
        page = await read(visitor, "/fleet", 404)
        assert "There is no fleet here" in page.one("main").text
        assert "Fleet" not in [one.text for one in page.all("a")]
        await read(visitor, "/fleet/jobs/x", 404)


async def test_a_database_that_is_away_is_a_clear_page(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMINORUM_DB", "postgresql://127.0.0.1:1/nothing")
    async with opened(db=f"sqlite:///{tmp_path}/web.db", options=Options(cwd=tmp_path)) as visitor:
        page = await read(visitor, "/fleet", 503)
        assert page.one("h1").text == "That did not work"
        assert (await visitor.get("/runs")).status_code == 200
