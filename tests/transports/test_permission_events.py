"""A permission request is in the stream while it is open; the decision follows with the same id."""

import asyncio
from dataclasses import replace

import pytest

from geminorum import (
    Acp,
    Allow,
    Api,
    Deny,
    Done,
    Error,
    Event,
    Options,
    PermissionDecision,
    PermissionRequest,
    Run,
    ToolResult,
    ToolUse,
    UserMessage,
    run,
)
from geminorum.contracts.agent_adapter.events import envelope
from geminorum.contracts.local_adapter.transcript import build_transcript
from geminorum.events import decode
from geminorum.testing import FakeGemini
from geminorum.views.markdown import document

SHELL = "run_shell_command"
PERMISSION = (PermissionRequest, PermissionDecision)


def permissions_in(events: list[Event]) -> list[PermissionRequest | PermissionDecision]:
    return [event for event in events if isinstance(event, PERMISSION)]


async def read_until_asked(live: Run, seen: list[Event] | None = None) -> PermissionRequest:
    """The next request; what comes with it and before it is added to `seen`."""
    async with asyncio.timeout(30):
        async for event in live:
            if seen is not None:
                seen.append(event)
            if isinstance(event, PermissionRequest):
                return event
    raise AssertionError("the run ended without a request")


class Person:
    """Somebody who thinks until the test lets them answer."""

    def __init__(self, answer: Allow | Deny) -> None:
        self._answer, self.may_answer = answer, asyncio.Event()

    async def decide(self, request: PermissionRequest) -> Allow | Deny:
        await self.may_answer.wait()
        return self._answer


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model="gemini-2.5-flash", timeout=60)


@pytest.mark.gemini_cli
class TestTheRealCli:
    async def test_the_request_comes_when_it_is_asked_and_the_decision_when_it_is_answered(
        self, fake_gemini, options, any_transport
    ):
        fake_gemini.call(SHELL, command="touch a").call(SHELL, command="touch b").say("Done.")
        people = {"touch a": Person(Allow()), "touch b": Person(Deny("not now"))}

        async def decide(request: PermissionRequest) -> Allow | Deny:
            return await people[request.input["command"]].decide(request)

        requests = []
        async with run("Go", options, via=replace(any_transport, decide=decide)) as live:
            events = []
            for command, person in people.items():
                request = await read_until_asked(live, events)
                assert not person.may_answer.is_set()
                assert (request.name, request.input["command"]) == (SHELL, command)
                assert request.decision is None
                requests.append(request)
                person.may_answer.set()
            events += [event async for event in live]
        decisions = [event for event in events if isinstance(event, PermissionDecision)]
        results = [event for event in events if isinstance(event, ToolResult)]
        expected = [("allow", None), ("deny", "not now")]
        assert [(one.decision, one.reason) for one in decisions] == expected
        for request, decision, result in zip(requests, decisions, results, strict=True):
            assert decision.id == request.id == result.id
            assert decision.name == SHELL
            assert decision.timestamp >= request.timestamp > 0
            assert events.index(request) < events.index(decision) < events.index(result)

    async def test_a_cancel_answers_the_open_request_with_no(
        self, fake_gemini, options, real_transport
    ):
        """In a warm CLI; another is cancelled so in `test_decide_cli.py`."""
        fake_gemini.call(SHELL, command="touch made").say("Never said.")
        person = Person(Allow())
        transport = Acp(executable=real_transport.executable, decide=person.decide)
        async with run("Go", options, via=transport) as live:
            request = await read_until_asked(live)
            await live.cancel()
            rest = [event async for event in live]
        (decision,) = permissions_in(rest)
        assert (decision.id, decision.decision) == (request.id, "deny")
        assert isinstance(rest[-1], Done)
        assert not (options.cwd / "made").exists()

    async def test_a_reader_that_comes_late_finds_every_pair_in_order(
        self, fake_gemini, options, any_transport
    ):
        for name in ("one", "two"):
            fake_gemini.call(SHELL, command=f"touch {name}")
        fake_gemini.say("Done.")
        transport = replace(any_transport, decide=lambda request: Allow())
        async with run("Go", options, via=transport) as live:
            async with asyncio.timeout(30):
                while not (options.cwd / "two").exists():
                    await asyncio.sleep(0.02)
            events = [event async for event in live]
        uses = [event.id for event in events if isinstance(event, ToolUse)]
        pairs = [(type(event), event.id) for event in permissions_in(events)]
        assert pairs == [(kind, call_id) for call_id in uses for kind in PERMISSION]

    async def test_a_subagent_s_request_is_told_while_it_is_open(
        self, fake_gemini, options, real_transport
    ):
        """Its calls are not in the stream; the question is."""
        fake_gemini.call("invoke_agent", agent_name="generalist", prompt="Touch it")
        fake_gemini.call(SHELL, command="touch made")
        fake_gemini.call("complete_task", result={"response": "I could not."}).say("Done.")
        person = Person(Deny())
        async with run("Go", options, via=replace(real_transport, decide=person.decide)) as live:
            request = await read_until_asked(live)
            person.may_answer.set()
            rest = [event async for event in live]
        (decision,) = permissions_in(rest)
        assert decision.id == request.id == "subagent-1"
        assert (decision.name, decision.decision) == (SHELL, "deny")
        assert not (options.cwd / "made").exists()
        assert live.result.status == "success"


class TestTheApi:
    @pytest.fixture
    async def fake(self):
        async with FakeGemini() as running:
            yield running

    @pytest.fixture
    def options(self, fake) -> Options:
        return Options(env=fake.env, model="gemini-3.8-flash", timeout=30)

    async def test_the_request_comes_when_it_is_asked_and_the_decision_when_it_is_answered(
        self, fake, options
    ):
        def pay(amount: int) -> str:
            return "paid"

        fake.call("pay", amount=5).say("Done.")
        person = Person(Deny("too much"))
        async with run("Go", options, via=Api(tools=[pay], decide=person.decide)) as live:
            request = await read_until_asked(live)
            assert (request.input, request.decision) == ({"amount": 5}, None)
            person.may_answer.set()
            rest = [event async for event in live]
        (decision,) = permissions_in(rest)
        assert (decision.id, decision.decision) == (request.id, "deny")
        assert decision.reason == "too much"

    async def test_a_cancel_answers_the_open_request_with_no(self, fake, options):
        def pay(amount: int) -> str:
            return "paid"

        fake.call("pay", amount=5).say("Never said.")
        person = Person(Allow())
        async with run("Go", options, via=Api(tools=[pay], decide=person.decide)) as live:
            request = await read_until_asked(live)
            await live.cancel()
            rest = [event async for event in live]
        (decision,) = permissions_in(rest)
        assert (decision.id, decision.decision) == (request.id, "deny")


ASKED = PermissionRequest("write_file", "w-1", {"file_path": "a"}, "writes a file", timestamp=5)
ANSWERED = PermissionDecision("write_file", "deny", "w-1", "not now", timestamp=9)
OLD = decode(
    b'{"type":"permission_request","name":"write_file","id":"w-1","reason":"writes a file",'
    b'"decision":"deny","timestamp":5}'
)


def test_an_export_shows_one_entry_for_a_request_and_its_decision():
    told = document([UserMessage("Go"), ASKED, Error("slow", recoverable=True), ANSWERED])
    assert told.count("May it use write_file? deny") == 1
    assert "not decided" not in told
    assert "not now" in told


def test_an_event_that_an_older_version_saved_keeps_its_decision():
    assert isinstance(OLD, PermissionRequest)
    assert OLD.decision == "deny"
    assert "May it use write_file? deny" in document([OLD])
    assert [entry.text for entry in build_transcript([OLD])] == [
        "write_file asks for permission: deny"
    ]


def test_a_request_that_nobody_answered_is_shown_as_open():
    assert "May it use write_file? not decided" in document([ASKED])


def test_local_adapter_tells_the_decision_of_a_request():
    texts = [entry.text for entry in build_transcript([ASKED, ANSWERED])]
    assert texts == ["write_file asks for permission", "write_file: deny (not now)"]


def test_agent_adapter_passes_the_decision_on_under_a_name_of_its_own():
    told = envelope(ANSWERED)
    assert told.type == "gemini:permission_decision"
    assert told.payload == {
        "toolName": "write_file",
        "toolUseId": "w-1",
        "decision": "deny",
        "reason": "not now",
    }
