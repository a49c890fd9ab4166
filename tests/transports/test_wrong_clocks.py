"""A clock that is wrong or steps: ids tell what belongs to a run, never the time."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Api,
    Cli,
    Done,
    Options,
    Text,
    ToolResult,
    ToolUse,
    UserMessage,
    ask,
    connect,
    run,
)
from geminorum.cost import cost_of
from geminorum.testing import Tokens as Told
from geminorum.transports.acp.session_file import AcpSessionFileFeed
from geminorum.transports.launch.resuming import guard_load
from geminorum.transports.turns.session_file import SessionFileFeed
from geminorum.views.transcript import transcript_of
from geminorum.wire.genai.verdict import refusal
from geminorum.wire.stream_json.frames import usage_of
from shared_acp import Sessions, SharedAcp, on_shared, shared_acp

MODEL = "gemini-2.5-flash"
SESSION = "abcdefgh-1"
HOUR = 3600 * 10**9
ODD_STAMPS = [
    "",
    "yesterday",
    "0001-01-01T00:00:00.000+23:59",
    "1970-01-01T00:00:00.000Z",
    "2099-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59.999Z",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    """One process for all warm sessions; headless runs find its home, so either resumes both."""
    transport = Acp(executable=real_transport.executable)
    folder = tmp_path_factory.mktemp("process")
    async with shared_acp(transport, folder, approval="yolo") as shared:
        yield shared


@pytest.fixture
def shared(process, tmp_path) -> SharedAcp:
    return process.afresh(tmp_path / "work")


@pytest.fixture(params=["cli", "acp"])
def transport(request, real_transport, shared) -> Cli | Sessions:
    """Both ways to the real CLI."""
    return real_transport if request.param == "cli" else shared.via()


def step_our_clock(monkeypatch: pytest.MonkeyPatch, nanoseconds: int) -> None:
    """Ours says this much more than the CLI's, as after a step in the other direction."""
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + nanoseconds)
    monkeypatch.setattr(time, "time", lambda: right() + nanoseconds / 1e9)


@on_shared
async def test_the_budget_holds_when_the_clock_steps_back(shared, transport, monkeypatch):
    """Each request costs $0.30: the first one is past the budget, a fourth never comes."""
    call = ("run_shell_command", {"command": "true"})
    shared.fake.calls(call, tokens=Told(prompt=1_000_000), delay=0.5).always()
    step_our_clock(monkeypatch, HOUR)
    limited = shared.options.changed(max_budget_usd=0.25)
    async with run("Go", limited, via=transport) as live:
        *_, done = [event async for event in live]
    assert done.status == "max_budget"
    assert done.cost.usd == Decimal("0.30") * len(done.usage.requests)
    assert 1 <= len(shared.fake.requests) <= 3


@on_shared
async def test_a_turn_is_billed_for_its_own_requests_only_when_the_clock_was_ahead_before(
    shared, real_transport, monkeypatch
):
    """What was written first is stamped later than the next turns begin: of a chat, of a warm
    process that loads the session of another, and of a history that is imported."""
    for number in range(1, 5):
        shared.fake.say("So.", tokens=Told(prompt=1000 * number, output=10))
    async with connect(shared.options, via=real_transport) as chat:
        session = (await chat.ask("Hi")).session_id
        step_our_clock(monkeypatch, -HOUR)
        second = await chat.ask("More")
    loaded = await ask("More", shared.options.changed(resume=session), via=shared.via())
    (file,) = Path(shared.fake.home).glob(f".gemini/tmp/*/chats/session-*{session[:8]}.jsonl")
    stamps_to(file, "2099-01-01T00:00:00.000Z")
    importing = replace(real_transport, extra_args=("--session-file", str(file)))
    imported = await ask("More", shared.options, via=importing)
    for number, result in enumerate((second, loaded, imported), 2):
        assert [request.input for request in result.usage.requests] == [1000 * number]
        assert (result.usage.input, result.usage.exact) == (1000 * number, True)


def stamps_to(file: Path, stamp: str) -> None:
    """All messages of a log as if they had been written at that moment."""
    records = [json.loads(line) for line in file.read_text().splitlines()]
    moved = [{**one, "timestamp": stamp} if "timestamp" in one else one for one in records]
    file.write_text("".join(json.dumps(one) + "\n" for one in moved))


async def test_the_budget_of_the_api_holds_whatever_the_clock_says(fake_gemini, monkeypatch):
    """The clock goes back by an hour with each look at it."""

    def again() -> str:
        return "and again"

    fake_gemini.calls(("again", {}), tokens=Told(prompt=1_000_000)).always()
    began, looks = time.time_ns(), iter(range(10**6))
    monkeypatch.setattr(time, "time_ns", lambda: began - next(looks) * HOUR)
    limited = Options(model=MODEL, max_budget_usd=0.75, env=fake_gemini.env)
    async with run("Go", limited, via=Api(tools=[again])) as live:
        *_, done = [event async for event in live]
    assert done.status == "max_budget"
    assert (done.cost.usd, len(fake_gemini.requests)) == (Decimal("0.90"), 3)
    assert done.duration >= 0


# ---- what stands in a session file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    project = tmp_path / ".gemini" / "tmp" / "work"
    (project / "chats").mkdir(parents=True)
    (project / ".project_root").write_text(str(tmp_path))
    file = project / "chats" / "session-2026-11-16T00-00-abcdefgh.jsonl"
    file.write_text(json.dumps({"sessionId": SESSION, "projectHash": "x", "kind": "main"}) + "\n")
    return file


def write(log: Path, name: str, stamp: str, kind: str = "gemini", **counts: int) -> None:
    said = {"id": name, "timestamp": stamp, "type": kind, "content": "Words"}
    told = {"model": MODEL, "tokens": counts} if counts else {}
    with log.open("a") as file:
        file.write(json.dumps(said | told) + "\n")


@pytest.mark.parametrize("stamp", ODD_STAMPS)
def test_a_headless_run_counts_and_prices_requests_with_odd_stamps(tmp_path, log, stamp):
    write(log, "old", stamp, input=1, total=1)
    ledger = SessionFileFeed(tmp_path, tmp_path, SESSION)
    write(log, "old", stamp, input=1, total=1)
    write(log, "new", stamp, input=1_000_000, total=1_000_000)
    found = ledger.requests(SESSION, thoroughly=True)
    assert [one.input for one in found] == [1_000_000]
    assert cost_of(usage_of(None, 0, found)).usd == Decimal("0.30")


@pytest.mark.parametrize("stamp", ODD_STAMPS)
def test_a_warm_turn_counts_and_prices_requests_with_odd_stamps(tmp_path, log, stamp):
    write(log, "old", stamp, input=1, total=1)
    ledger = AcpSessionFileFeed(tmp_path, tmp_path, SESSION)
    ledger.begin()
    write(log, "old", stamp, input=1, total=1)
    write(log, "question", stamp, "user")
    write(log, "new", stamp, input=1_000_000, total=1_000_000)
    ledger.read(thoroughly=True)
    assert [one.input for one in ledger.requests] == [1_000_000]
    assert cost_of(usage_of(None, 0, ledger.requests)).usd == Decimal("0.30")
    assert len(ledger.rounds) == 1


@pytest.mark.parametrize("minutes", [0, 1, 90])
async def test_a_session_named_by_a_minute_to_come_is_not_overwritten(tmp_path, log, minutes):
    """The clock was set back since; a warm CLI loads it in the minute of its name, or soon."""
    write(log, "question", "", "user")
    born = datetime.now(UTC) + timedelta(minutes=minutes)
    named = log.rename(log.with_name(f"session-{born:%Y-%m-%dT%H-%M}-abcdefgh.jsonl"))
    async with guard_load(tmp_path, tmp_path, SESSION):
        (found,) = log.parent.iterdir()
    assert found.name < named.name


def test_what_is_said_after_a_tool_is_the_next_answer_though_the_clock_went_back():
    events = [
        UserMessage("Count", timestamp=HOUR),
        ToolUse("glob", "1", timestamp=HOUR + 1),
        ToolResult(id="1", name="glob", output="two", timestamp=HOUR + 2),
        Text("Two files.", timestamp=5),
        Done("success", timestamp=6),
    ]
    kinds = [type(entry).__name__ for entry in transcript_of(events).entries]
    assert kinds == ["UserMessage", "TranscriptAnswer", "TranscriptAnswer"]


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_a_date_to_try_again_counts_from_the_date_of_the_answer(zone):
    """RFC 9110: both come from the server's clock, whatever ours says."""
    headers = {
        "date": f"Fri, 31 Dec 1999 23:59:00 {zone}",
        "retry-after": "Fri, 31 Dec 1999 23:59:07 GMT",
    }
    assert refusal(503, "Service Unavailable", headers, b"").retry_after == 7


def test_a_date_to_try_again_without_another_counts_from_now():
    later = datetime.now(UTC) + timedelta(hours=1)
    headers = {"retry-after": f"{later:%a, %d %b %Y %H:%M:%S} GMT"}
    assert 3500 < refusal(503, "Service Unavailable", headers, b"").retry_after <= 3600
