"""The bill over all saved sessions: each request once, at its own price, on its own day."""

import json
import os
import shutil
import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from geminorum import Options, ask, sessions, usage
from geminorum.cost import Price, PriceBook
from geminorum.errors import InvalidOptions
from geminorum.events import Tokens, total_of
from geminorum.sessions.places import files_in, projects_of
from geminorum.testing import Tokens as Spent

RECORDINGS = Path(__file__).parents[1] / "recordings" / "sessions"
NOON = "2026-11-15T12:00:00.000Z"
ONE_TOKEN_ONE_DOLLAR = PriceBook({"m": Price(*[Decimal(1_000_000)] * 3)})


def spent(input=0, output=0, cached=0, thoughts=0, tool=0) -> dict[str, int]:
    total = input + output + thoughts + tool
    return to_builtins(Tokens(input, output, cached, thoughts, tool, total))


def answer(name, when=NOON, model="gemini-2.5-flash", **tokens) -> dict[str, object]:
    told = {"id": name, "timestamp": when, "type": "gemini", "content": "Hm.", "model": model}
    return {**told, "tokens": spent(**(tokens or {"input": 1}))}


def top(session_id, when=NOON, **more) -> dict[str, object]:
    return {"sessionId": session_id, "projectHash": "0", "startTime": when, **more}


class Store:
    """A home with sessions in it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def chats(self, project: str) -> Path:
        folder = self.home / ".gemini" / "tmp" / project / "chats"
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / ".project_root").write_text(f"/code/{project}")
        return folder

    def log(self, *records, project="app", name="session-2026-11-15T12-00-aaaaaaaa.jsonl") -> Path:
        path = self.chats(project) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    def report(self, **how) -> usage.Report:
        return usage.report(home=self.home, **{"tz": "UTC", **how})

    def counts(self, **how) -> dict[str, int]:
        return {row.key: row.requests for row in self.report(**how).rows}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def two_projects(store) -> Store:
    store.log(
        top("one"),
        answer("a", input=1000, cached=400, output=10, thoughts=100),
        answer("b", "2026-11-16T09:00:00.000Z", "gemini-2.5-pro", input=100_000, output=1000),
        answer("c", "2026-11-16T09:01:00.000Z", "gemini-2.5-pro", input=200_001, output=1000),
    )
    store.log(top("two", "2026-11-16T10:00:00.000Z"), project="web")
    store.log(
        top("two", "2026-11-16T10:00:00.000Z"),
        answer("d", "2026-11-16T10:00:01.000Z", input=500, output=20, tool=100),
        project="web",
        name="session-2026-11-16T10-00-two.jsonl",
    )
    return store


# By hand, in dollars per million tokens:
A = Decimal("0.000467")  # 600 · 0.30 + 400 · 0.03 + 110 · 2.50
B = Decimal("0.135")  # 100,000 · 1.25 + 1,000 · 10
C = Decimal("0.5150025")  # 200,001 · 2.50 + 1,000 · 15: the dearer step, for this one alone
D = Decimal("0.00023")  # 600 · 0.30 + 20 · 2.50: a built-in tool's tokens are read


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("day", {"2026-11-15": (1, A), "2026-11-16": (3, B + C + D)}),
        ("project", {"/code/app": (3, A + B + C), "/code/web": (1, D)}),
        ("session", {"one": (3, A + B + C), "two": (1, D)}),
        ("model", {"gemini-2.5-flash": (2, A + D), "gemini-2.5-pro": (2, B + C)}),
    ],
)
def test_a_report_is_what_one_would_work_out_by_hand(two_projects, by, expected):
    """B-16: cached inside input, thoughts as output, the step by each request's own length."""
    report = two_projects.report(by=by)
    assert {row.key: (row.requests, row.cost) for row in report.rows} == expected
    total = report.total
    assert (total.key, total.requests, total.cost) == ("total", 4, A + B + C + D)
    assert total.tokens == Tokens(301_501, 2030, 400, 100, 100, 303_731)
    assert total.exact
    assert report.by == by


def test_a_request_has_the_price_of_its_own_day(store):
    """B-16: this model asks 2 dollars for a million tokens, and from December on 4."""
    dear, model = "2026-12-01T00:00:00.000Z", "gemini-4-argon"
    store.log(
        top("one"),
        answer("a", "2026-11-30T23:59:59.999Z", model, input=1_000_000),
        answer("b", dear, model, input=1_000_000),
    )
    costs = {row.key: row.cost for row in store.report().rows}
    assert costs == {"2026-11-30": Decimal(2), "2026-12-01": Decimal(4)}


def test_prices_of_one_s_own(store):
    store.log(top("one"), answer("a", model="m", input=3))
    assert store.report(prices=ONE_TOKEN_ONE_DOLLAR).total.cost == 3


def test_one_folder_s_sessions(two_projects):
    """The sum over all folders is the whole."""
    assert two_projects.report(cwd="/code/web").total.cost == D
    assert two_projects.report(cwd="/code/app").total.cost == A + B + C
    assert two_projects.report(cwd="/code/nothing").total.requests == 0


def test_nothing_saved_costs_nothing(store):
    report = store.report()
    assert (report.rows, report.total.requests, report.total.cost) == ((), 0, Decimal(0))
    assert report.exact


def test_the_home_is_the_cli_s_own(store, monkeypatch):
    store.log(top("one"), answer("a"))
    assert usage.report().total.requests == 0
    monkeypatch.setenv("GEMINI_CLI_HOME", str(store.home))
    assert usage.report().total.requests == 1


# Each request once


def test_a_message_that_is_written_again_counts_once(store):
    """B-5: when its tools have answered, and in a checkpoint without its tokens."""
    first = answer("a", input=10)
    bare = {key: first[key] for key in ("id", "timestamp", "type", "content")}
    store.log(
        *(top("one"), {**first, "tokens": None}, first, {**first, "toolCalls": []}),
        {"$set": {"messages": [bare, answer("b", input=5)]}},
        *(bare, answer("b", input=5)),
    )
    total = store.report().total
    assert (total.requests, total.tokens.input) == (2, 15)


def test_what_was_taken_back_was_paid_all_the_same(store):
    """B-5: a rewind, or a history that was compressed into a summary, gives no money back."""
    store.log(
        *(top("one"), answer("a", input=10), answer("b", input=20)),
        *({"$rewindTo": "b"}, answer("c", input=40)),
        {"$set": {"messages": [{"id": "s", "type": "user", "content": "A summary"}]}},
        answer("d", input=80),
    )
    assert store.report().total.tokens.input == 150
    (info,) = sessions.list(home=store.home)
    assert [request.input for request in sessions.load(info).requests] == [80]


def test_two_answers_with_the_same_figures_are_two(store):
    store.log(top("one"), answer("a", input=10), answer("b", input=10))
    assert store.report().total.requests == 2


def test_a_fork_shares_its_history_and_the_original_has_it(store):
    """What the fork adds is its own; a subagent's work belongs to the session that asked for it."""
    store.log(top("mmmm", lastUpdated=NOON), answer("a"), answer("b"))
    store.log(top("sub", kind="subagent"), answer("s"), name="mmmm/sub.jsonl")
    for new_id in ("aaaa", "zzzz"):
        fork = sessions.fork("mmmm", new_id=new_id, home=store.home)
        with fork.path.open("a") as file:
            file.write(json.dumps(answer(new_id, "2026-11-16T09:00:00.000Z")) + "\n")
    assert len(list(store.chats("app").glob("*/sub.jsonl"))) == 3
    assert store.counts(by="session") == {"mmmm": 3, "aaaa": 1, "zzzz": 1}


def test_a_copy_in_another_project_counts_where_it_was_made(store):
    store.log(top("one", "2026-11-15T11:00:00.000Z"), answer("a"), project="new")
    store.log(top("two", "2026-11-15T12:00:00.000Z"), answer("a"), answer("b"), project="app")
    assert store.counts(by="project") == {"/code/new": 1, "/code/app": 1}
    assert store.report(cwd="/code/app").total.requests == 1


def test_the_folder_of_an_older_cli_and_its_copy_count_once(store):
    """B-3, B-4: a newer CLI copies the folder with a hash for a name; there may be no `chats`."""
    import hashlib

    path = store.log(top("one"), answer("a"))
    old = store.home / ".gemini" / "tmp" / hashlib.sha256(b"/code/app").hexdigest()
    old.mkdir()
    shutil.copy(path, old / path.name)
    other = path.with_name("session-2026-11-15T12-00-bbbbbbbb.json")
    other.write_text(json.dumps({**top("two"), "messages": [answer("b")]}, indent=2))
    other.rename(old / other.name)
    assert store.counts(by="project") == {"/code/app": 2}


def test_two_sessions_that_share_a_file_are_told_apart(store):
    """Their ids begin alike and they were begun in the same minute."""
    store.log(top("run-0001"), answer("a"), top("run-0002"), answer("b"), answer("c"))
    assert store.counts(by="session") == {"run-0001": 1, "run-0002": 2}


def test_the_recorded_sessions_of_every_version(store):
    """B-5: 35 requests, counted by hand; one file was damaged by runs within its minute."""
    for version in RECORDINGS.iterdir():
        for path in version.glob("*.json*"):
            name = path.name if path.name.startswith("session-") else f"session-{path.name}"
            shutil.copy(path, store.chats(f"v{version.name}") / name)
    shutil.copytree(RECORDINGS / "0.61.0" / "subagent", store.chats("agents"), dirs_exist_ok=True)
    report = store.report(by="project")
    assert {row.key.removeprefix("/code/"): row.requests for row in report.rows} == {
        "v0.11.3": 5,
        "v0.29.0": 5,
        "v0.40.1": 5,
        "v0.61.0": 16,
        "agents": 4,
    }
    assert report.total.tokens == total_of([Tokens(100, 10, 20, 20, 0, 130)] * 35)
    assert report.problems == ()
    parents = store.counts(by="session", cwd="/code/agents")
    assert parents == {"86c3ef34-a699-41b4-93a7-cf32248c5c8b": 4}


@pytest.mark.gemini_cli
async def test_runs_resumed_runs_and_forks_of_the_real_cli(fake_gemini, real_transport, tmp_path):
    """The report is the sum of what the runs themselves have told."""
    cwd = tmp_path / "work"
    cwd.mkdir()
    (cwd / "a.txt").write_text("hello")
    options = Options(cwd=cwd, model="gemini-2.5-flash", env=fake_gemini.env)
    call = ("read_file", {"file_path": "a.txt"})
    fake_gemini.calls(call, tokens=Spent(prompt=1000, output=30, thoughts=40))
    for number in range(3):
        fake_gemini.say("Yes.", tokens=Spent(prompt=1100 + number, output=8, cached=100))
    first = await ask("What is in a.txt?", options, via=real_transport)
    second = await ask("And now?", options.changed(resume=first.session_id), via=real_transport)
    fork = sessions.fork(first.session_id, home=fake_gemini.home)
    third = await ask("In the fork?", options.changed(resume=fork.id), via=real_transport)
    runs = (first, second, third)
    report = usage.report(home=fake_gemini.home, by="session")
    assert len(files_in(projects_of(fake_gemini.home, cwd)[0])) >= 2
    assert report.total.tokens == total_of([run.usage for run in runs])
    assert report.total.cost == sum(run.cost.usd for run in runs)
    assert {row.key: row.requests for row in report.rows} == {first.session_id: 3, fork.id: 1}
    assert report.total.exact
    today = usage.report(home=fake_gemini.home, tz="UTC", cwd=cwd)
    assert today.total == report.total


# When


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("UTC", {"2026-11-15": 2}),
        ("Asia/Tokyo", {"2026-11-15": 1, "2026-11-16": 1}),
        ("America/Los_Angeles", {"2026-11-14": 1, "2026-11-15": 1}),
        (timezone(timedelta(hours=-1)), {"2026-11-14": 1, "2026-11-15": 1}),
    ],
)
def test_the_zone_decides_which_day_it_was(store, zone, days):
    store.log(
        top("one"),
        answer("a", "2026-11-15T00:59:59.999Z"),
        answer("b", "2026-11-15T20:00:00.000Z"),
    )
    assert store.counts(tz=zone) == days


def test_without_a_zone_it_is_this_machine_s(store, monkeypatch):
    store.log(top("one"), answer("a", "2026-11-15T20:00:00.000Z"))
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert store.counts(tz=None) == {"2026-11-16": 1}
        assert store.counts(tz=None, since=date(2026, 11, 16)) == {"2026-11-16": 1}
        assert store.counts(tz=None, until=date(2026, 11, 16)) == {}
        assert store.report(tz=None).timezone == "local"
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("Africa/Cairo", date(2026, 4, 24), 23),  # begins at 01:00: midnight is left out
        ("America/Havana", date(2026, 11, 1), 25),  # midnight comes twice
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
    ],
)
def test_a_day_on_which_the_clocks_change_is_shorter_or_longer(store, zone, day, hours):
    """Its row and the range of that one day hold the same requests."""
    start = datetime.combine(day, datetime.min.time(), UTC) - timedelta(days=1)
    stamps = [start + timedelta(minutes=30) * number for number in range(4 * 48)]
    store.log(top("one"), *(answer(str(at), at.isoformat()) for at in stamps))
    expected = sum(at.astimezone(ZoneInfo(zone)).date() == day for at in stamps)
    assert expected == hours * 2
    assert store.counts(tz=zone)[day.isoformat()] == expected
    only = store.counts(tz=zone, since=day, until=day + timedelta(days=1))
    assert only == {day.isoformat(): expected}


def test_a_range_has_its_beginning_and_not_its_end(store):
    store.log(
        top("one"),
        *(answer(str(hour), f"2026-11-15T{hour}:00:00.000Z", input=hour) for hour in (11, 12, 13)),
    )

    def read(**how) -> int:
        return store.report(**how).total.tokens.input

    noon = datetime(2026, 11, 15, 12)
    assert read(since=noon) == 25
    assert read(until=noon) == 11
    assert read(since=noon, until=noon + timedelta(hours=1)) == 12
    assert read(since=noon, until=noon) == 0
    assert read(since=noon, tz="Europe/Berlin") == 36  # noon there is 11:00 UTC
    assert read(since=noon.replace(tzinfo=UTC), tz="Europe/Berlin") == 25
    assert read(since=noon + timedelta(microseconds=1)) == 13
    assert read(since=date(2026, 11, 16)) == 0


def test_the_report_says_which_range_it_is(store):
    report = store.report(since=date(2026, 11, 15), tz="Europe/Berlin")
    assert report.to_dict()["since"] == "2026-11-15T00:00:00+01:00"
    assert (report.until, report.timezone) == (None, "Europe/Berlin")


def test_a_request_without_a_time_has_that_of_what_stands_before_it(store):
    store.log(top("one", "2026-11-14T12:00:00.000Z"), answer("a", "long ago"), answer("b"))
    assert store.counts() == {"2026-11-14": 1, "2026-11-15": 1}


def test_where_nothing_tells_the_day_is_unknown(store):
    store.log(answer("a", ""), answer("b", "9999-12-31T23:59:59.000Z"))
    assert store.counts(tz="Asia/Tokyo") == {"unknown": 2}
    assert store.report().total.requests == 2


# What is not known is not nothing


def test_a_model_without_a_price_is_named_beside_the_known_part(store):
    """B-16: never zero in silence."""
    store.log(
        *(top("one"), answer("a", input=1_000_000), answer("b", model="mine", input=7, output=1)),
        answer("c", "2026-11-16T12:00:00.000Z", "mine", input=2),
    )
    report = store.report()
    mixed, unknown = report.rows
    assert (mixed.cost, mixed.exact) == (Decimal("0.3"), False)
    assert mixed.unpriced == {"mine": Tokens(7, 1, total=8)}
    assert (unknown.cost, unknown.exact) == (None, False)
    assert report.total.cost == Decimal("0.3")
    assert report.total.unpriced == {"mine": Tokens(9, 1, total=10)}
    assert not report.exact
    table = report.table()
    assert "$0.300000 + ?" in table
    assert "unknown" in table
    assert "no price for mine: 10 tokens" in table


@pytest.mark.parametrize(
    ("model", "is_exact"),
    [
        ("gemini-2.5-pro", False),
        ("gemini-3.8-flash", False),
        ("gemini-3.1-pro-preview-customtools", False),
        ("gemini-2.5-flash-lite", True),
        ("mine", True),
    ],
)
def test_a_report_is_not_exact_where_requests_of_the_router_may_be_missing(store, model, is_exact):
    """S1-19: with `auto` a small model is asked first, and no file tells of it."""
    store.log(top("one"), answer("a", model=model, input=10))
    report = store.report(prices=PriceBook({}, fallback=ONE_TOKEN_ONE_DOLLAR["m"]))
    assert (report.exact, report.total.exact) == (is_exact, True)
    assert report.routed == (() if is_exact else (model,))
    assert (f"if `auto` chose {model}" in report.table()) is not is_exact


async def test_the_report_of_a_routed_run_is_not_exact(fake_gemini, tmp_path, real_transport):
    fake_gemini.say("Hi", tokens=Spent(prompt=1000, output=10))
    options = Options(cwd=tmp_path, env=fake_gemini.env, home=fake_gemini.home, model="auto")
    routed = await ask("Hi", options, via=real_transport)
    report = usage.report(home=fake_gemini.home)
    assert report.total.cost < routed.cost.usd
    assert not report.exact


def test_a_model_that_did_nothing_costs_nothing(store):
    store.log(top("one"), answer("a", model="mine", input=0))
    assert (store.report().total.cost, store.report().exact) == (Decimal(0), True)


def test_counts_that_cannot_be_have_no_cost(store):
    store.log(top("one"), answer("a", input=5, cached=50))
    assert (store.report().total.cost, store.report().exact) == (None, False)


# Bad input


def test_what_cannot_be_read_is_reported_and_the_rest_counts(store, tmp_path_factory):
    """A folder for a file, nothing, no session, links out of the store and into themselves."""
    store.log(top("one"), answer("a"))
    chats = store.chats("app")
    outside = tmp_path_factory.mktemp("outside") / "session-x.jsonl"
    outside.write_text(json.dumps(answer("x")) + "\n")
    (chats / "session-folder.jsonl").mkdir()
    (chats / "session-empty.jsonl").write_text("")
    (chats / "session-broken.json").write_text('{\n  "sessionId": "b",\n')
    (chats / "session-link.jsonl").symlink_to(outside)
    (chats / "session-circle.jsonl").symlink_to(chats / "session-circle.jsonl")
    (chats / "parent").symlink_to(outside.parent)
    report = store.report()
    assert report.total.requests == 1
    problems = {one.path.name: one.reason for one in report.problems}
    assert set(problems) == {f"session-{name}" for name in (
        "folder.jsonl", "empty.jsonl", "broken.json", "link.jsonl", "circle.jsonl", "x.jsonl"
    )}  # fmt: skip
    assert problems["session-link.jsonl"] == "a link leads out of the store"
    assert not report.exact
    assert "not counted:" in report.table()
    assert store.report(cwd="/code/web").problems == ()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is hidden from root")
def test_a_file_that_may_not_be_read_is_reported(store):
    store.log(top("one"), answer("a")).chmod(0)
    (problem,) = store.report().problems
    assert problem.reason == "Permission denied"


def test_a_broken_line_is_reported_and_one_that_is_being_written_is_not(store):
    path = store.log(top("one"), answer("a"))
    with path.open("a") as file:
        file.write('\n{"id": "t", "tok')
    assert store.report().problems == ()
    with path.open("a") as file:
        file.write("\n" + json.dumps(answer("b")) + "\n")
    report = store.report()
    assert report.total.requests == 2
    assert [one.reason for one in report.problems] == ["lines that cannot be read: 1"]


def test_odd_shapes_in_a_message_do_not_hide_the_others(store):
    odd = {**answer("x"), "tokens": "many"}
    store.log(
        *(top("one"), odd, {**answer("y"), "timestamp": 5, "content": {}}),
        {"$set": {"messages": [odd, 7, answer("z")]}},
        *(answer("a"), {"id": 5}),
    )
    assert store.report().total.requests == 3


def test_a_document_with_an_empty_object_on_a_line_of_its_own(store):
    """Such a line would be a record, if the file were a log."""
    path = store.chats("app") / "session-2026-11-15T12-00-aaaaaaaa.json"
    messages = [{**answer("a"), "toolCalls": [{"result": [{}]}]}]
    path.write_text(json.dumps({**top("one"), "messages": messages}, indent=2))
    assert "\n            {}\n" in path.read_text()
    assert store.counts(by="session") == {"one": 1}


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        ({"by": "moon"}, "by='moon'", "day, project, session, model"),
        ({"tz": "Mars/Olympus"}, "no time zone 'Mars/Olympus'", "Europe/Berlin"),
        ({"tz": "../../etc/passwd"}, "no time zone", "Europe/Berlin"),
        ({"tz": "Europe"}, "no time zone", "Europe/Berlin"),
        ({"since": date(2026, 2, 1), "until": date(2026, 1, 1)}, "is later than", "swap"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_write(store, wrong, message, hint):
    with pytest.raises(InvalidOptions, match=message) as caught:
        store.report(**wrong)
    assert hint in caught.value.hint


# As data, JSON and a table


def test_rows_stand_in_the_order_of_their_first_request(store):
    store.log(top("one"), answer("b", "2026-11-17T12:00:00.000Z"), answer("a", "2026-11-16T12:00Z"))
    store.log(
        *(top("two", "2026-11-16T00:00:00.000Z"), answer("c", "2026-11-16T01:00:00.000Z")),
        name="session-2026-11-16T00-00-bbbbbbbb.jsonl",
    )
    assert list(store.counts()) == ["2026-11-16", "2026-11-17"]
    assert list(store.counts(by="session")) == ["two", "one"]


def test_a_report_as_data_and_json(two_projects):
    report = two_projects.report(by="session")
    data = report.to_dict()
    assert json.loads(report.to_json()) == data
    tokens = spent(input=500, output=20, tool=100)
    told = {"key": "two", "requests": 1, "cost": "0.00023", "unpriced": {}, "exact": True}
    assert data["rows"][1] == {**told, "tokens": tokens}
    assert data["total"]["cost"] == str(A + B + C + D)
    two_projects.chats("app").joinpath("session-empty.json").touch()
    (problem,) = json.loads(two_projects.report().to_json())["problems"]
    assert problem["path"].endswith("app/chats/session-empty.json")


def test_a_table_is_aligned(two_projects):
    assert two_projects.report(by="model").table() == TABLE


TABLE = """\
model             requests    input  output  cached  thoughts  tool    total       cost
---------------------------------------------------------------------------------------
gemini-2.5-flash         2    1,500      30     400       100   100    1,730  $0.000697
gemini-2.5-pro           2  300,001   2,000       0         0     0  302,001  $0.650002
---------------------------------------------------------------------------------------
total                    4  301,501   2,030     400       100   100  303,731  $0.650700
not counted: the CLI's routing requests, if `auto` chose gemini-2.5-flash, gemini-2.5-pro"""


# For any sessions

KINDS = ("day", "project", "session", "model")
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
ANSWERS = st.builds(
    lambda name, when, model, **tokens: answer(
        f"answer-{name}", when.isoformat(timespec="milliseconds") + "Z", model, **tokens
    ),
    st.integers(0, 30),
    MOMENTS,
    st.sampled_from(["m", "n", "mine"]),
    input=st.integers(0, 9999),
    output=st.integers(0, 99),
    thoughts=st.integers(0, 99),
)
LOGS = st.lists(
    st.tuples(st.sampled_from(["app", "web"]), st.lists(ANSWERS, max_size=6)), max_size=4
)
PRICES = PriceBook({name: Price(*map(Decimal, "123")) for name in ("m", "n")})


def money(rows) -> Decimal:
    return sum((row.cost for row in rows if row.cost is not None), Decimal(0))


@settings(max_examples=40)
@given(LOGS, st.lists(MOMENTS, min_size=1, max_size=3), st.sampled_from(["UTC", "Africa/Cairo"]))
def test_the_total_is_the_sum_of_the_rows_and_of_the_parts(logs, cuts, zone):
    """For every grouping, and wherever a range is cut; ids that recur count once."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for number, (project, answers) in enumerate(logs):
            store.log(top(f"s{number}"), *answers, project=project, name=f"session-{number}.jsonl")
        whole = store.report(tz=zone, prices=PRICES).total
        assert whole.requests == len({one["id"] for _, answers in logs for one in answers})
        bounds = [None, *sorted(cuts), None]
        parts = [
            store.report(tz=zone, prices=PRICES, since=since, until=until).total
            for since, until in pairwise(bounds)
        ]
        groups = [store.report(tz=zone, prices=PRICES, by=by).rows for by in KINDS]
    for rows in (parts, *groups):
        assert total_of([row.tokens for row in rows]) == whole.tokens
        assert sum(row.requests for row in rows) == whole.requests
        assert money(rows) == money([whole])


# ---- a ledger


def test_a_ledger_says_what_a_report_says_again_and_again(store):
    store.log(top("a"), answer("x", input=10))
    store.log(top("b"), answer("y", input=5), project="other")
    ledger = usage.Ledger(store.home)
    for by in ("day", "project", "session", "model"):
        assert ledger.report(by=by) == usage.report(home=store.home, by=by)
    assert ledger.reports(["day", "model"], cwd="/code/app") == [
        usage.report(home=store.home, by=by, cwd="/code/app") for by in ("day", "model")
    ]
    with pytest.raises(InvalidOptions, match="by='hour'"):
        ledger.report(by="hour")


def test_a_ledger_reads_a_file_again_once_it_has_changed(store):
    path = store.log(top("a"), answer("x", input=10))
    ledger = usage.Ledger(store.home)
    assert ledger.report().total.tokens.input == 10
    status, text = path.stat(), path.read_text()
    path.write_text(text.replace('"input": 10', '"input": 20'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert ledger.report().total.tokens.input == 10
    os.utime(path)
    assert ledger.report().total.tokens.input == 20
    path.unlink()
    assert ledger.report().total.tokens.input == 0
