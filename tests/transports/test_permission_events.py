"""A permission request is in the stream while it is open; the decision follows with the same id."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Allow,
    Api,
    Cli,
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
from shared_acp import Sessions, SharedAcp, having, on_shared, private_options, shared_acp
from shared_run import Once

SHELL = "run_shell_command"
MODEL = "gemini-2.5-flash"
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


@dataclass
class Told:
    """What a run told: to whom read at once, and what was left for a late reader."""

    cwd: Path
    read: list[PermissionRequest] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    status: str = ""


@pytest.fixture(scope="module")
def once() -> Once:
    return Once()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    """One process for all warm sessions of this module."""
    transport = Acp(executable=real_transport.executable, decide=lambda request: False)
    async with shared_acp(transport, tmp_path_factory.mktemp("process"), timeout=60) as shared:
        yield shared


@pytest.mark.gemini_cli
class TestTheRealCli:
    @pytest.fixture(params=["cli", "acp"])
    def kind(self, request) -> str:
        return request.param

    @pytest.fixture
    def told(self, once, kind, real_transport, request, tmp_path_factory):
        """One run of each transport: two requests that somebody reads while they are open, two
        while nobody reads, and on `Cli` one of a subagent."""

        process = None if kind == "cli" else request.getfixturevalue("process")

        async def made() -> Told:
            told = Told(tmp_path_factory.mktemp("workspace"))
            if process is None:
                with FakeGemini() as fake:
                    options = private_options(fake, told.cwd, timeout=60)
                    await self.listen(told, fake, options, real_transport, has_subagent=True)
            else:
                shared = process.afresh(told.cwd)
                await self.listen(told, shared.fake, shared.options, shared.via())
            return told

        return lambda: once(kind, made)

    async def listen(
        self,
        told: Told,
        fake: FakeGemini,
        options: Options,
        via: Cli | Sessions,
        has_subagent: bool = False,
    ) -> None:
        people = {"touch a": Person(Allow()), "touch b": Person(Deny("not now"))}
        of_subagent = Person(Deny())

        async def decide(request: PermissionRequest) -> Allow | Deny:
            command = request.input["command"]
            if command in ("touch one", "touch two"):
                return Allow()
            return await people.get(command, of_subagent).decide(request)

        fake.call(SHELL, command="touch a").call(SHELL, command="touch b")
        if has_subagent:
            people["touch made"] = of_subagent
            fake.call("invoke_agent", agent_name="generalist", prompt="Touch it")
            fake.call(SHELL, command="touch made")
            fake.call("complete_task", result={"response": "I could not."})
        fake.call(SHELL, command="touch one").call(SHELL, command="touch two").say("Done.")
        async with run("Go", options, via=having(via, decide=decide)) as live:
            for command, person in people.items():
                request = await read_until_asked(live, told.events)
                assert not person.may_answer.is_set()
                assert (request.name, request.input["command"]) == (SHELL, command)
                assert request.decision is None
                told.read.append(request)
                person.may_answer.set()
            async with asyncio.timeout(30):
                while not (told.cwd / "two").exists():
                    await asyncio.sleep(0.02)
            told.late = [event async for event in live]
            told.events += told.late
        told.status = live.result.status

    @on_shared
    async def test_the_request_comes_when_it_is_asked_and_the_decision_when_it_is_answered(
        self, told
    ):
        seen = await told()
        requests = seen.read[:2]
        decisions = [event for event in seen.events if isinstance(event, PermissionDecision)][:2]
        results = [event for event in seen.events if isinstance(event, ToolResult)][:2]
        expected = [("allow", None), ("deny", "not now")]
        assert [(one.decision, one.reason) for one in decisions] == expected
        for request, decision, result in zip(requests, decisions, results, strict=True):
            assert decision.id == request.id == result.id
            assert decision.name == SHELL
            assert decision.timestamp >= request.timestamp > 0
            places = [seen.events.index(one) for one in (request, decision, result)]
            assert places == sorted(places)
        assert (seen.cwd / "a").exists()
        assert not (seen.cwd / "b").exists()

    @on_shared
    async def test_a_reader_that_comes_late_finds_every_pair_in_order(self, told):
        seen = await told()
        commands = {"touch one", "touch two"}
        uses = [
            event.id
            for event in seen.late
            if isinstance(event, ToolUse) and event.input.get("command") in commands
        ]
        assert len(uses) == 2
        pairs = [(type(event), event.id) for event in permissions_in(seen.late) if event.id in uses]
        assert pairs == [(kind, call_id) for call_id in uses for kind in PERMISSION]
        others = [event for event in permissions_in(seen.late) if event.id not in uses]
        # The answer to what was read last: it was given while nobody read.
        assert [(type(event), event.id) for event in others] == [
            (PermissionDecision, seen.read[-1].id)
        ]

    @pytest.mark.parametrize("kind", ["cli"])
    @on_shared
    async def test_a_subagent_s_request_is_told_while_it_is_open(self, told):
        """Its calls are not in the stream; the question is."""
        seen = await told()
        *_, request = seen.read
        about = [event for event in permissions_in(seen.events) if event.id == "subagent-1"]
        asked, decision = about
        assert asked == request
        assert request.input == {"command": "touch made"}
        assert isinstance(decision, PermissionDecision)
        assert (decision.name, decision.decision) == (SHELL, "deny")
        assert not (seen.cwd / "made").exists()
        assert seen.status == "success"

    @on_shared
    async def test_a_cancel_answers_the_open_request_with_no(self, process, tmp_path):
        """In a warm CLI; another is cancelled so in `test_decide_cli.py`."""
        shared = process.afresh(tmp_path / "workspace")
        shared.fake.call(SHELL, command="touch made").say("Never said.")
        person = Person(Allow())
        async with run("Go", shared.options, via=shared.via(decide=person.decide)) as live:
            request = await read_until_asked(live)
            await live.cancel()
            rest = [event async for event in live]
        (decision,) = permissions_in(rest)
        assert (decision.id, decision.decision) == (request.id, "deny")
        assert isinstance(rest[-1], Done)
        assert not (shared.options.cwd / "made").exists()


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
