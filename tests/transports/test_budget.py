"""What a run consumes, request by request, and the budget that stops it."""

import asyncio
import json
import time
from decimal import Decimal
from pathlib import Path

import pytest

from geminorum import Cli, Done, Error, Options, ask, errors, sync
from geminorum import run as start
from geminorum.cost import Price, PriceBook
from geminorum.events import ModelRequest, Tokens
from geminorum.testing import Tokens as Told
from geminorum.transports.turns.session_file import SessionFileFeed
from geminorum.wire.stream_json.frames import Stats, usage_of

MODEL = "gemini-2.5-flash"


@pytest.fixture
def options(fake_gemini, tmp_path):
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model=MODEL, env=fake_gemini.env, approval="yolo")


def loops(fake_gemini, tokens: Told, delay: float = 0.0) -> None:
    """A model that calls the shell again and again."""
    call = ("run_shell_command", {"command": "true"})
    fake_gemini.calls(call, tokens=tokens, delay=delay).always()


def test_the_cost_is_exact_per_request_and_model_and_a_resumed_run_pays_for_its_own(
    fake_gemini, options, real_transport
):
    """B-15, B-16: the cost equals a hand calculation with cached tokens, thoughts and tool tokens.

    S1-49: the session file has both turns, the bill of the second only what is its own. It keeps
    its budget while nobody reads.
    """
    call = ("run_shell_command", {"command": "true"})
    fake_gemini.calls(call, tokens=Told(prompt=1000, cached=400, output=10, thoughts=100))
    fake_gemini.say("Done", tokens=Told(prompt=2000, cached=1500, output=20, thoughts=0, tool=50))
    first = sync.ask("Go", options, via=real_transport)
    usage, bill = first.usage, first.cost
    assert usage.exact
    assert bill.exact
    assert usage.by_model[MODEL] == Tokens(3000, 30, 1900, 100, 50, 3180)
    assert [(one.input, one.thoughts, one.tool) for one in usage.requests] == [
        (1000, 100, 0),
        (2000, 0, 50),
    ]
    # 1,150 fresh at 0.30, 1,900 cached at 0.03, 130 out at 2.50 dollars per million.
    assert bill.usd == Decimal("0.000345") + Decimal("0.000057") + Decimal("0.000325")
    assert bill.billing == "api_key"
    loops(fake_gemini, Told(prompt=1_000_000), delay=0.5)
    again = options.changed(max_budget_usd=0.25, resume=first.session_id)
    with sync.run("Go on", again, via=real_transport) as live:
        wait_for_requests(fake_gemini, 3)
        assert 3 <= len(fake_gemini.requests) <= 4
        *_, done = live
    assert done.status == "max_budget"
    assert {one.input for one in done.usage.requests} == {1_000_000}


async def test_from_the_stream_alone_the_cost_is_an_estimate(stand_in):
    """B-15: the stream shows thoughts only as the rest of the total, which may include tool
    tokens."""
    share = {"total_tokens": 1110, "input_tokens": 1000, "output_tokens": 10, "cached": 400}
    via = stand_in(
        {"type": "init", "session_id": "s", "model": MODEL},
        {"type": "message", "role": "assistant", "content": "Hi"},
        {"type": "result", "status": "success", "stats": {**share, "models": {MODEL: share}}},
    )
    result = await ask("Hi", via=via)
    assert result.cost.usd == Decimal("0.000467")
    assert not result.usage.exact
    assert not result.cost.exact


def wait_for_requests(fake_gemini, count: int) -> None:
    """And a while longer: time for the requests that must not come."""
    deadline = time.monotonic() + 30
    while len(fake_gemini.requests) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2.5)


def test_the_budget_stops_a_model_that_loops_while_nobody_reads(
    fake_gemini, options, real_transport
):
    """S0-30, S0-33: each turn costs $0.30; the third exceeds the budget of 0.75, and no fifth is
    requested. The spending is followed by our own clock, not by the consumer's; for one that reads
    see test_wrong_clocks.py."""
    loops(fake_gemini, Told(prompt=1_000_000), delay=0.5)
    with sync.run("Go", options.changed(max_budget_usd=0.75), via=real_transport) as live:
        wait_for_requests(fake_gemini, 3)
        assert 3 <= len(fake_gemini.requests) <= 4
        *_, done = live
    assert isinstance(done, Done)
    assert done.status == "max_budget"
    assert Decimal("0.75") < done.cost.usd <= Decimal("1.20")
    assert 3 <= len(fake_gemini.requests) <= 4
    assert done.resume == live.session_id
    assert len(done.usage.requests) >= 3
    with pytest.raises(errors.BudgetExceeded, match="budget"):
        live.result.raise_on_failure()


async def test_a_budget_without_a_price_is_not_kept_blindly(fake_gemini, options, real_transport):
    """B-16: a budget for a model without a known price is an error, not unlimited."""
    loops(fake_gemini, Told(prompt=1000), delay=0.3)
    limited = options.changed(model="gemini-my-own", max_budget_usd=5.0)
    with pytest.raises(errors.BudgetExceeded, match="price is not known") as caught:
        await ask("Go", limited, via=real_transport)
    assert "PriceBook" in caught.value.hint
    assert caught.value.result.cost is None
    assert caught.value.result.cost_note == "there is no price for 'gemini-my-own'"


async def test_a_price_book_on_the_transport_prices_the_run(fake_gemini, options, real_transport):
    """And a budget that was not reached leaves no word."""
    book = PriceBook({"gemini-my-own": Price(Decimal(2), Decimal(10), Decimal(1))})
    fake_gemini.say("Cheap", tokens=Told(prompt=1000, cached=500, output=100))
    transport = Cli(executable=real_transport.executable, prices=book)
    own = options.changed(model="gemini-my-own", max_budget_usd=5.0)
    async with start("Hi", own, via=transport) as live:
        assert not [event async for event in live if isinstance(event, Error)]
    assert (live.result.text, live.result.status) == ("Cheap", "success")
    assert live.result.cost.usd == Decimal("0.0025")


async def test_a_cancelled_run_still_tells_what_it_had_consumed(
    fake_gemini, options, real_transport
):
    """Nothing that arrived is lost: neither are the tokens."""
    call = ("run_shell_command", {"command": "sleep 300"})
    fake_gemini.calls(call, tokens=Told(prompt=1000, output=10))
    async with start("Go", options, via=real_transport) as live:
        async for event in live:
            if event.type == "tool_use":
                break
        # The CLI writes down what a request has consumed a moment after it begins the call.
        async with asyncio.timeout(30):
            while live.used() is None:
                await asyncio.sleep(0.01)
    usage = live.result.usage
    assert live.result.status == "interrupted"
    assert (usage.input, usage.output, usage.exact) == (1000, 10, False)
    assert live.result.cost.usd == Decimal("0.000325")


def record(number: int, **counts: int) -> str:
    stamp = "2026-11-16T00:00:01.000Z"
    told = {"id": f"m{number}", "timestamp": stamp, "type": "gemini", "model": MODEL}
    return json.dumps({**told, "tokens": counts}) + "\n"


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    project = tmp_path / ".gemini" / "tmp" / "work"
    (project / "chats").mkdir(parents=True)
    (project / ".project_root").write_text(str(tmp_path))
    return project / "chats"


TOP = json.dumps({"sessionId": "abcdefgh-1", "projectHash": "x", "kind": "main"}) + "\n"


def test_a_ledger_counts_each_answer_once_as_it_is_written(tmp_path, chats):
    file = chats / "session-2026-11-16T00-00-abcdefgh.jsonl"
    ledger = SessionFileFeed(tmp_path, tmp_path)
    assert ledger.requests("abcdefgh-1", thoroughly=True) == []
    whole = TOP + record(1, input=5, total=5) + record(1, input=5, total=5)
    file.write_text(whole + record(2, input=7, total=7)[:-9])
    assert [one.input for one in ledger.requests("abcdefgh-1", thoroughly=True)] == [5]
    file.write_text(whole + record(2, input=7, total=7))
    assert [one.input for one in ledger.requests("abcdefgh-1", thoroughly=True)] == [5, 7]
    file.unlink()
    assert [one.input for one in ledger.requests("abcdefgh-1", thoroughly=True)] == [5, 7]


def test_a_ledger_leaves_out_what_came_before_and_what_is_another_s(tmp_path, chats):
    other = TOP.replace("abcdefgh-1", "abcdefgh-2")
    file = chats / "session-1-abcdefgh.jsonl"
    file.write_text(TOP + record(1, input=1))
    ledger = SessionFileFeed(tmp_path, tmp_path, "abcdefgh-1")
    file.write_text(TOP + record(1, input=1) + record(2, input=2))
    (chats / "session-2-abcdefgh.jsonl").write_text(other + record(3, input=4))
    assert [one.input for one in ledger.requests("abcdefgh-1", thoroughly=True)] == [2]


def test_a_ledger_counts_subagents_and_old_documents(tmp_path, chats):
    """B-5: requests of subagents count, also in the rewritten documents of CLIs before 0.39."""
    message = json.loads(record(1, input=1))
    document = {"sessionId": "abcdefgh-1", "messages": [message]}
    file = chats / "session-1-abcdefgh.json"
    file.write_text(json.dumps(document, indent=2))
    (chats / "abcdefgh-1").mkdir()
    sub = json.dumps({"sessionId": "sub", "projectHash": "x", "kind": "subagent"}) + "\n"
    (chats / "abcdefgh-1" / "sub.jsonl").write_text(sub + record(2, input=2))
    ledger = SessionFileFeed(tmp_path, tmp_path)
    assert sorted(one.input for one in ledger.requests("abcdefgh-1", thoroughly=True)) == [1, 2]
    document["messages"].append(json.loads(record(3, input=4)))
    file.write_text(json.dumps(document))
    assert sorted(one.input for one in ledger.requests("abcdefgh-1", thoroughly=True)) == [1, 2, 4]


def test_a_file_that_does_not_fit_the_sums_is_not_believed():
    """A damaged file must not turn an estimate into an exact bill."""
    share = Stats(total_tokens=130, input_tokens=100, output_tokens=10)
    stats = Stats(total_tokens=130, input_tokens=100, output_tokens=10, models={MODEL: share})
    alien = ModelRequest(input=500, total=500, model=MODEL)
    usage = usage_of(stats, 0, [alien])
    assert (usage.exact, usage.requests, usage.thoughts) == (False, (), 20)
    own = ModelRequest(input=100, output=10, thoughts=15, tool=5, total=130, model=MODEL)
    usage = usage_of(stats, 0, [own])
    assert (usage.exact, usage.thoughts, usage.tool) == (True, 15, 5)
