"""Usage on the page: tokens and dollars in figures, a table and the points of a chart."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
import pytest_asyncio
from markup import Markup
from saved_home import FIX, HOSTILE, TOUR, fill
from served import Visitor, opened

from geminorum import Options, usage
from geminorum.apps.web.usage.figures import lines_of, points_of
from geminorum.apps.web.usage.query import UsageQuery
from geminorum.events import Tokens
from geminorum.usage import Report, Row

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("usage")
    (folder / "code").mkdir()
    return fill(folder / "home", folder / "code")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(store) -> AsyncIterator[Visitor]:
    options = Options(cwd=store.cwd, home=store.home)
    async with opened(db=f"sqlite:///{store.home}/web.db", options=options) as visitor:
        yield visitor


async def read(visitor: Visitor, path: str, status: int = 200) -> Markup:
    answer = await visitor.get(path)
    assert answer.status_code == status, answer.text
    page = Markup(answer.text)
    assert not page.has_foreign_markup()
    return page


def rows(page: Markup) -> list[str]:
    return [one.text for one in page.all("th", scope="row")]


class TestThePage:
    @pytest.mark.parametrize("by", ["day", "model", "project", "session"])
    async def test_has_a_table_that_needs_no_script(self, visitor, store, by):
        page = await read(visitor, f"/usage?by={by}&days=all")
        report = usage.report(home=store.home, by=by)
        assert rows(page)[-1] == "Total"
        assert len(rows(page)) == len(report.rows) + 1
        cells = [one.text for one in page.all("td", data_label="Tokens")]
        assert sorted(cells[:-1]) == sorted(f"{row.tokens.total:,}" for row in report.rows)
        assert cells[-1] == f"{report.total.tokens.total:,}"

    async def test_leads_from_a_row_to_its_sessions(self, visitor, store):
        page = await read(visitor, "/usage?by=session&days=all")
        links = {one["href"]: one.text for one in page.all("a")}
        assert links[f"/sessions/{TOUR}"] == "Question 0 about the river"
        assert {f"/sessions/{FIX}", f"/sessions/{HOSTILE}"} <= links.keys()
        page = await read(visitor, "/usage?by=project&days=all")
        (link,) = [one["href"] for one in page.all("a") if one.text == str(store.cwd)]
        assert "3 sessions" in (await read(visitor, link)).one("main").text

    async def test_has_the_points_of_a_chart(self, visitor):
        page = await read(visitor, "/usage?days=7")
        points = json.loads(page.one("div", class_="chart")["data-chart"])
        assert len(points["days"]) == len(points["usd"]) == len(points["tokens"]) == 7
        assert points["days"][-1] == str(date.today())
        assert sum(points["tokens"]) > 90_000

    async def test_says_what_is_not_in_the_numbers(self, visitor):
        page = await read(visitor, "/usage?days=all")
        missing = page.one("section", aria_labelledby="missing").text
        assert "There is no price for <script>alert(1)</script>\\u202e␛[31m: 10 tokens." in missing
        assert "+ ?" in page.one("dl", class_="figures").text

    async def test_of_some_days_counts_only_those(self, visitor):
        today = datetime.now(UTC).date()
        first, last = today - timedelta(days=9), today - timedelta(days=6)
        page = await read(visitor, f"/usage?since={first}&until={last}&by=model")
        assert rows(page) == ["<script>alert(1)</script>\\u202e␛[31m", "Total"]

    async def test_without_usage_says_so(self, visitor):
        page = await read(visitor, "/usage?since=2001-01-01&until=2001-01-02")
        assert "Nothing was used in that time" in page.one("main").text

    @pytest.mark.parametrize("folder", ["%00", "~nobody-of-this-name"])
    @pytest.mark.parametrize("path", ["/api/usage", "/api/sessions"])
    async def test_of_what_is_no_folder_is_refused(self, visitor, path, folder):
        answer = await visitor.get(f"{path}?folder={folder}")
        assert answer.status_code == 422
        assert "is no folder" in answer.json()["error"]["message"]

    @pytest.mark.parametrize(
        ("query", "field", "told"),
        [
            ("since=soon", "since", "write it as 2026-11-30"),
            ("until=%3Cb%3E", "until", "write it as 2026-11-30"),
            ("since=2026-11-02&until=2026-11-01", "until", "swap the two"),
        ],
    )
    async def test_says_at_its_field_what_is_wrong(self, visitor, query, field, told):
        page = await read(visitor, f"/usage?{query}", 422)
        assert told in page.one("p", id=f"{field}-error").text
        assert page.one("input", id=field)["aria-describedby"] == f"{field}-error"

    @pytest.mark.parametrize("query", ["by=hour", "days=365", "days=-1", "until=9999-12-31"])
    async def test_takes_what_it_does_not_know_for_the_usual(self, visitor, query):
        await read(visitor, f"/usage?{query}")


def row(key: str, cost: str | None, tokens: int = 1) -> Row:
    return Row(key, 1, Tokens(total=tokens), None if cost is None else Decimal(cost))


def report(by: str, *rows: Row) -> Report:
    return Report(by=by, timezone="local", rows=rows, total=row("total", "1"), exact=True)


async def test_rows_are_sorted_by_what_they_cost_and_days_by_their_date():
    made = lines_of(report("model", row("a", "1"), row("b", None, 99), row("c", "4")))
    assert [(line.row.key, line.share) for line in made] == [("c", 1.0), ("a", 0.25), ("b", 0.0)]
    days = lines_of(report("day", row("2026-01-01", "9"), row("2026-01-02", "1")))
    assert [line.row.key for line in days] == ["2026-01-02", "2026-01-01"]


async def test_where_nothing_has_a_price_tokens_are_compared():
    made = lines_of(report("model", row("a", None, 10), row("b", None, 40)))
    assert [(line.row.key, line.share) for line in made] == [("b", 1.0), ("a", 0.25)]


async def test_a_chart_has_every_day_also_those_without_usage():
    told = report("day", row("2026-01-02", "2"), row("unknown", "9"))
    points = points_of(told, date(2026, 1, 1), date(2026, 1, 3))
    assert points.days == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert points.usd == [0.0, 2.0, 0.0]


async def test_a_date_that_is_centuries_away_makes_no_endless_chart():
    told = report("day", row("1970-01-02", "2"), row("9998-01-02", "2"))
    assert len(points_of(told, None, date(2026, 1, 3)).days) < 4000


async def test_the_last_day_is_included():
    query = UsageQuery.read({"since": "2026-11-01", "until": "2026-11-30"})
    assert query.days(date(2026, 12, 24)) == (date(2026, 11, 1), date(2026, 12, 1))
    week = UsageQuery.read({"days": "7"})
    assert week.days(date(2026, 12, 24)) == (date(2026, 12, 18), None)
    assert UsageQuery.read({"days": "all"}).days(date(2026, 12, 24)) == (None, None)
