"""The warm CLI: one process for many turns, somebody who is asked, and whatever goes wrong."""

import asyncio
import json
import os
import random
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Allow,
    AllowAlways,
    Cli,
    Deny,
    Done,
    Error,
    Init,
    Options,
    PermissionDecision,
    PermissionRequest,
    Policy,
    Rule,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Unknown,
    UserMessage,
    ask,
    connect,
    errors,
    run,
    sync,
)
from geminorum.testing import FakeGemini, Tokens
from geminorum.transports.acp.session_file import AcpSessionFileFeed
from geminorum.transports.turns import stop_checks as watch
from geminorum.wire.acp.decoder import NOBODY_TO_ASK
from shared_acp import MODEL, SharedAcp, on_shared, shared_acp, shared_connections

BOGUS = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def options(fake_gemini: FakeGemini, tmp_path: Path) -> Options:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model=MODEL, env=fake_gemini.env, home=fake_gemini.home)


@pytest.fixture
def transport(real_transport: Cli) -> Acp:
    return Acp(executable=real_transport.executable)


@pytest.fixture
def acp(real_transport: Cli) -> Any:
    """Transports with something special about them."""
    return lambda **how: Acp(executable=real_transport.executable, **how)


def nobody(request: PermissionRequest) -> Deny:
    raise AssertionError(f"asked about {request.name}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport: Cli, tmp_path_factory: Any) -> AsyncIterator[SharedAcp]:
    """One process for all tests that need nothing special."""
    plain = Acp(executable=real_transport.executable)
    async with shared_acp(plain, tmp_path_factory.mktemp("process")) as shared:
        yield shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asking_process(real_transport: Cli, tmp_path_factory: Any) -> AsyncIterator[SharedAcp]:
    """One for all that want to be asked."""
    asks = Acp(executable=real_transport.executable, decide=nobody)
    async with shared_acp(asks, tmp_path_factory.mktemp("asking")) as shared:
        yield shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def odd_process(real_transport: Cli, tmp_path_factory: Any) -> AsyncIterator[SharedAcp]:
    """One with instructions, effort, settings and a mode that belong to a whole process."""
    settings = {"model": {"name": "gemini-2.5-pro"}, "general": {"maxAttempts": 1}}
    odd = Acp(executable=real_transport.executable, settings=settings, decide=nobody)
    chosen = {
        "system_prompt": "Speak like a pirate",
        "effort": "low",
        "disallowed_tools": ["glob"],
        "approval": "auto_edit",
    }
    async with shared_acp(odd, tmp_path_factory.mktemp("odd"), **chosen) as shared:
        yield shared


@pytest.fixture
def shared(process: SharedAcp, tmp_path: Path) -> SharedAcp:
    return process.afresh(tmp_path / "work")


@pytest.fixture
def asking(asking_process: SharedAcp, tmp_path: Path) -> SharedAcp:
    return asking_process.afresh(tmp_path / "work")


@pytest.fixture
def odd(odd_process: SharedAcp, tmp_path: Path) -> SharedAcp:
    return odd_process.afresh(tmp_path / "work")


async def told(live: Any) -> list[Any]:
    async with asyncio.timeout(60), live:
        return [event async for event in live]


def of(kind: type, events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def last(events: list[Any]) -> Done:
    """The Done; there is one, and it is the last."""
    assert [type(event) for event in events].count(Done) == 1
    assert isinstance(events[-1], Done)
    return events[-1]


def agents(fake: FakeGemini) -> list[psutil.Process]:
    """The CLI's processes that talk to this API."""
    mine = fake.env["GOOGLE_GEMINI_BASE_URL"]
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "--acp" in process.cmdline() and mine in process.environ().values():
                found.append(process)
        except psutil.Error:
            continue
    return found


def history(fake: FakeGemini) -> str:
    """All that the model was told in the last request."""
    return json.dumps(fake.requests[-1].body["contents"])


# ---- side by side


def scripted(fake: FakeGemini) -> None:
    """Text, a thought, a write, a shell command, a denied tool, an unknown tool."""
    # Counts of its own: the two transports send different instructions to the model.
    counts = {"tokens": Tokens(prompt=1000, cached=200, output=10, thoughts=25)}

    def step(*said: str, tool: str, thoughts: list[str] | None = None, **args: Any) -> None:
        part = {"functionCall": {"name": tool, "args": args}}
        fake.say(*said, part, thoughts=thoughts or [], **counts)

    step("I write. ", tool="write_file", file_path="a.txt", content="hi", thoughts=["**Plan** Do"])
    step(tool="run_shell_command", command="touch b.txt; echo hello", description="Greets")
    step(tool="run_shell_command", command="git push", description="Sends it away")
    step(tool="read_file", file_path="missing.txt")
    step(tool="no_such_tool", x=1)
    fake.say("All ", "done.", **counts)


def essence(events: list[Any]) -> list[Any]:
    """What the two transports agree in: everything but ids, times, frames and process numbers."""
    names: dict[str, str] = {}
    return [shape for event in events if (shape := _shape(event, names)) is not None]


def _shape(event: Any, names: dict[str, str]) -> Any:
    match event:
        case Init():
            return "init", event.model, event.cwd
        case UserMessage() | Text() | Thinking() | TextDelta():
            return event.type, event.text
        case ToolUse():
            return "tool_use", event.name, event.input
        case ToolResult():
            content = re.sub(r"PGID: \d+", "PGID: N", event.content or "")
            return "tool_result", event.name, event.status, event.output, content
        case Done():
            usage = event.usage
            counts = (usage.input, usage.output, usage.cached, usage.thoughts, usage.total)
            return "done", event.status, counts, usage.tool_calls, usage.exact, event.cost.usd
        case _:
            return event.type


def without_differences(events: list[Any]) -> list[Any]:
    """Without what docs/acp.md says is different: when a thought is told, the words of a failure,
    and what is known of a tool that does not exist."""
    kept = []
    for shape in essence(events):
        match shape:
            case ("tool_use", "no_such_tool", _):
                kept.append(shape[:2])
            case ("tool_result", _, "error" | "denied", *_):
                kept.append(shape[:3])
            case ("thinking", _):
                pass
            case _:
                kept.append(shape)
    return kept


async def test_one_conversation_through_both_transports(
    fake_gemini, options, real_transport, transport, tmp_path
):
    """S0-34, B-15: `Cli` and `Acp` give equal events except for the differences in docs/acp.md;
    usage and cost are exact on both."""
    careful = options.changed(
        policy=Policy("allow", "allow", rules=(Rule("run_shell_command", "deny", "git push"),))
    )
    streams = []
    for via in (real_transport, transport):
        (cwd := tmp_path / type(via).__name__ / "same").mkdir(parents=True)
        scripted(fake_gemini)
        events = await told(run("Do it all", careful.changed(cwd=cwd), via=via))
        plain = json.dumps(without_differences(events), default=str)
        streams.append(json.loads(plain.replace(str(cwd), "CWD")))
        assert not fake_gemini.unused
        assert (cwd / "b.txt").exists()
        assert last(events).usage.exact
        assert [event.text for event in of(Thinking, events)] == ["Plan: Do"]
    cli, warm = streams
    assert warm == cli


def test_what_only_the_file_tells_waits_for_what_the_wire_has_still_to_tell(tmp_path):
    """The file may be ahead of the wire: the answer about an unknown tool is told after the call
    that came before it, and not after calls of earlier turns, which the file repeats."""
    project = tmp_path / ".gemini" / "tmp" / "same"
    log = project / "chats" / "session-2025-01-01T00-00-abcdefgh.jsonl"
    log.parent.mkdir(parents=True)
    (project / ".project_root").write_text(str(tmp_path))
    log.write_text(json.dumps({"sessionId": "abcdefgh-1", "projectHash": "x"}) + "\n")

    def record(name: str, kind: str, content: Any = "", **more: Any) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"id": name, "type": kind, "content": content, **more}) + "\n")

    def answered(*names: str) -> list[Any]:
        return [
            {"functionResponse": {"id": name, "name": name, "response": {"error": "no"}}}
            for name in names
        ]

    calls = [{"id": "past", "name": "glob"}]
    record("1", "gemini", toolCalls=calls)
    ledger = AcpSessionFileFeed(tmp_path, tmp_path, "abcdefgh-1")
    ledger.begin()
    record("1", "gemini", toolCalls=[*calls, {"id": "read_file", "name": "read_file"}])
    record("2", "user", answered("read_file"))
    record("3", "user", answered("no_such_tool"))
    ledger.read(thoroughly=True)
    assert ledger.answers(lambda call: False) == []
    assert [answer.id for answer in ledger.answers(lambda call: call == "read_file")] == [
        "no_such_tool"
    ]
    assert ledger.answers() == []


@on_shared
async def test_turns_of_a_conversation_share_a_process_and_a_memory(shared):
    """S0-34: each turn of a warm conversation has its own Init and Done."""
    fake_gemini = shared.fake
    fake_gemini.say("Noted").say("Seven")
    async with connect(shared.options, via=shared.warm) as chat:
        first = await told(chat.turn("Remember seven"))
        (process,) = agents(fake_gemini)
        second = await told(chat.turn("Which number?"))
        assert agents(fake_gemini) == [process]
    assert last(first).resume == last(second).resume == of(Init, second)[0].session_id
    assert "Remember seven" in history(fake_gemini)
    assert [type(event) for event in second] == [Init, UserMessage, TextDelta, Text, Done]


def test_code_that_does_not_await_has_the_warm_transport_too(options, stand_in_acp):
    with sync.connect(options, via=stand_in_acp("well_behaved")) as chat:
        assert [chat.ask("1").text, chat.ask("2").text] == ["Hello", "Hello"]


@on_shared
async def test_sessions_of_one_process_have_a_folder_a_model_and_a_mode_each(
    shared, tmp_path, stand_in_acp
):
    """S0-25, S1-21: sessions of one process with different settings run at the same time. What
    belongs to the process cannot differ between them."""
    fake_gemini, options, warm = shared.fake, shared.options, shared.warm
    folders = {name: tmp_path / name for name in ("a", "b")}
    for name, folder in folders.items():
        folder.mkdir()
        fake_gemini.when(f"in {name}").call("write_file", file_path="f", content=name).say("Done")
    one = connect(options.changed(cwd=folders["a"], approval="yolo"), via=warm)
    other = options.changed(cwd=folders["b"], model="gemini-2.5-pro", approval="default")
    async with one as first, connect(other, via=warm) as second:
        results = await asyncio.gather(first.ask("in a"), told(second.turn("in b")))
    assert len(agents(fake_gemini)) == 1
    await what_belongs_to_the_process_cannot_differ(options, warm, tmp_path)
    async with stand_in_acp("well_behaved").warm(options) as ended:
        await ask("x", options, via=ended)
    with pytest.raises(errors.GeminorumError, match="not open"):
        await ask("x", options, via=ended)
    assert (folders["a"] / "f").read_text() == "a"
    assert not (folders["b"] / "f").exists()
    assert of(ToolResult, results[1])[0].status == "denied"
    assert {request.model for request in fake_gemini.requests} == {MODEL, "gemini-2.5-pro"}


async def what_belongs_to_the_process_cannot_differ(
    options: Options, warm: Any, tmp_path: Path
) -> None:
    (strange := tmp_path / "strange" / ".gemini").mkdir(parents=True)
    (strange / ".env").write_text("SOMETHING_NEW=1\n")
    with pytest.raises(errors.Unsupported, match="disallowed_tools, env"):
        await ask("x", options.changed(env={}, disallowed_tools=["glob"]), via=warm)
    with pytest.raises(errors.Unsupported, match="approval"):
        await ask("x", options.changed(approval="auto_edit"), via=warm)
    with pytest.raises(errors.Unsupported, match="SOMETHING_NEW"):
        await ask("x", options.changed(cwd=strange.parent), via=warm)


@on_shared
async def test_what_belongs_to_the_process_reaches_the_model(odd):
    """The same settings as on the Cli transport: instructions, effort, tools that are not there."""
    odd.fake.say("Aye")
    await ask("Hello", odd.options, via=odd.warm)
    (request,) = odd.fake.requests
    assert "Speak like a pirate" in json.dumps(request.body)
    assert request.body["generationConfig"]["thinkingConfig"]["thinkingBudget"] > 0
    assert "glob" not in request.tools
    assert "read_file" in request.tools
    assert request.model == MODEL


async def test_an_untrusted_folder_refuses_what_needs_trust(fake_gemini, options, transport):
    doubtful = options.changed(trust_workspace=False, approval="yolo")
    with pytest.raises(errors.TrustError, match="yolo"):
        await ask("Hello", doubtful, via=transport)


# ---- somebody who is asked


@on_shared
async def test_a_command_that_is_refused_does_not_run_and_the_turn_goes_on(asking):
    """S0-30, S0-32: the model receives the refusal; the CLI would run this `echo` without
    asking."""
    asked: list[PermissionRequest] = []
    fake_gemini, options = asking.fake, asking.options

    async def decide(request: PermissionRequest) -> Deny:
        asked.append(request)
        return Deny("not on a Sunday")

    fake_gemini.call("run_shell_command", command="touch x", description="Makes x")
    fake_gemini.call("run_shell_command", command="echo hello").say("Then not.")
    events = await told(run("Go", options, via=asking.via(decide=decide)))
    assert [one.input["command"] for one in asked] == ["touch x", "echo hello"]
    assert asked[0].input["description"] == "Makes x"
    assert [one.decision for one in of(PermissionDecision, events)] == ["deny", "deny"]
    assert [use.name for use in of(ToolUse, events)] == ["run_shell_command"] * 2
    for result in of(ToolResult, events):
        assert (result.status, result.output) == ("denied", "not on a Sunday")
        assert "canceled by the user" in result.content
    assert "canceled by the user" in history(fake_gemini)
    assert (last(events).status, of(Text, events)[0].text) == ("success", "Then not.")
    assert not (Path(options.cwd) / "x").exists()


@on_shared
async def test_what_is_allowed_runs_and_always_is_asked_once(asking):
    asked = []
    fake_gemini, options = asking.fake, asking.options

    def decide(request: PermissionRequest) -> Allow | AllowAlways:
        asked.append(request.name)
        return AllowAlways() if request.name == "write_file" else Allow()

    for number in range(2):
        fake_gemini.call("write_file", file_path=f"{number}.txt", content="hi")
    fake_gemini.call("run_shell_command", command="touch made").say("Done")
    events = await told(run("Go", options, via=asking.via(decide=decide)))
    assert asked == ["write_file", "run_shell_command"]
    decisions = [one.decision for one in of(PermissionDecision, events)]
    assert decisions == ["allow_always", "allow", "allow"]
    assert of(ToolUse, events)[0].input == {"file_path": "0.txt", "content": "hi"}
    assert {path.name for path in Path(options.cwd).iterdir()} == {"0.txt", "1.txt", "made"}
    assert not of(Unknown, events)


@on_shared
async def test_whatever_goes_wrong_with_the_answer_is_a_no(asking):
    """A question that is answered too late was answered with no."""
    fake_gemini, options = asking.fake, asking.options

    async def raises() -> None:
        raise RuntimeError("my mistake")

    async def sleeps() -> None:
        await asyncio.sleep(60)

    async def answers_nonsense() -> str:
        return "perhaps"

    ways = iter([raises, sleeps, answers_nonsense])
    transport = asking.via(decide=lambda request: next(ways)(), decide_timeout=0.3)
    async with connect(options, via=transport) as chat:
        for words in ("my mistake", "nobody answered", "returned"):
            fake_gemini.call("write_file", file_path="a.txt", content="hi").say("Well")
            events = await told(chat.turn("Go"))
            (result,) = of(ToolResult, events)
            assert result.status == "denied"
            assert words in result.output
            assert last(events).status == "success"
    assert not (Path(options.cwd) / "a.txt").exists()


@on_shared
async def test_where_nobody_is_asked_what_needs_a_yes_is_refused(shared):
    """S0-32: without `decide`, "ask" means no, and the stream says so once."""
    fake_gemini = shared.fake
    for number in range(2):
        fake_gemini.call("write_file", file_path=f"{number}.txt", content="hi")
    fake_gemini.say("I may not.")
    events = await told(run("Go", shared.options, via=shared.warm))
    assert [result.status for result in of(ToolResult, events)] == ["denied", "denied"]
    (warning,) = of(Error, events)
    assert (warning.code, warning.recoverable) == (NOBODY_TO_ASK, True)
    assert "decide" in warning.hint
    assert last(events).status == "success"


@on_shared
@pytest.mark.filterwarnings("ignore:decide is never called")
async def test_a_mode_that_allows_is_not_asked_about(asking, odd):
    for approval, process in (("auto_edit", odd), ("yolo", asking)):
        process.fake.call("write_file", file_path="a.txt", content=approval)
        if approval == "yolo":
            process.fake.call("run_shell_command", command="touch b.txt")
        process.fake.say("Done")
        chosen = process.options.changed(approval=approval)
        events = await told(run("Go", chosen, via=process.warm))
        assert {result.status for result in of(ToolResult, events)} == {"success"}


# ---- stopping


@on_shared
async def test_cancel_while_a_decision_is_pending_ends_the_turn_and_the_tool_never_runs(asking):
    """S0-27, S0-28: a later yes changes nothing, also from somebody who does not take no for an
    answer, and the session can be used again."""
    pending, too_late = asyncio.Event(), []
    fake_gemini, options = asking.fake, asking.options

    async def decide(request: PermissionRequest) -> Allow:
        file = Path(request.input["file_path"]).name
        pending.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if file == "polite.txt":
                raise
        finally:
            too_late.append(file)
        return Allow()

    files = ["polite.txt", "stubborn.txt"]
    async with connect(options, via=asking.via(decide=decide)) as chat:
        for number, file in enumerate(files, 1):
            pending.clear()
            fake_gemini.call("write_file", file_path=file, content="hi")
            async with chat.turn("Go") as live:
                await pending.wait()
                await live.cancel()
                events = [event async for event in live]
            assert last(events).status == "interrupted"
            (decision,) = of(PermissionDecision, events)
            why = "cancelled before it was decided"
            assert (decision.decision, decision.reason) == ("deny", why)
            assert len(fake_gemini.requests) == number
        assert too_late == files
        fake_gemini.say("Here")
        assert (await chat.ask("Still there?")).status == "success"
        assert len(agents(fake_gemini)) == 1
    assert [*Path(options.cwd).iterdir()] == []


@on_shared
async def test_a_turn_that_ends_early_leaves_the_session_usable(shared):
    """S0-27, S0-28: by a cancel or by leaving; what had arrived is kept.

    B-11: cancelling ends the running shell and its children. B-37: no other turn begins before; the
    CLI would abort the first one.
    """
    fake_gemini, options, warm = shared.fake, shared.options, shared.warm
    await a_turn_ends_early(fake_gemini, options, warm)
    await a_cancel_ends_a_command(fake_gemini, options.changed(approval="yolo"), warm)
    await a_turn_ends_with_its_chat(fake_gemini, options, warm)


async def a_turn_ends_early(fake_gemini: FakeGemini, options: Options, warm: Any) -> None:
    fake_gemini.hang("Once upon").hang("There was").say("Another")
    async with connect(options, via=warm) as chat:
        async with chat.turn("Tell me") as live:
            with pytest.raises(errors.SessionBusy, match="still running"):
                await chat.ask("Tell me too")
            async for event in live:
                if isinstance(event, TextDelta):
                    await live.cancel()
        assert (live.result.status, live.result.text) == ("interrupted", "Once upon")
        async with chat.turn("Tell me more") as live:
            async for event in live:
                if isinstance(event, TextDelta):
                    break
        assert live.result.status == "interrupted"
        assert (await chat.ask("Again")).text == "Another"


async def a_cancel_ends_a_command(fake_gemini: FakeGemini, options: Options, warm: Any) -> None:
    fake_gemini.call("run_shell_command", command="touch begun; sleep 250; touch ended").say("Hm")
    begun = Path(options.cwd) / "begun"
    async with connect(options, via=warm) as chat:
        async with chat.turn("Sleep") as live:
            while not begun.exists():
                await asyncio.sleep(0.01)
            await live.cancel()
            assert live.result.status != "success"
        (agent,) = agents(fake_gemini)
        below = agent.children(recursive=True)
        assert not [one for one in below if "sleep 250" in " ".join(_command(one))]
        assert (await chat.ask("Well?")).text == "Hm"


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def test_time_limits_hold_for_the_whole_and_for_silence(options, stand_in_acp):
    """B-12: both time limits end a warm turn, and its partial text is kept."""
    async with asyncio.timeout(60):
        with pytest.raises(errors.Stalled) as silence:
            await ask("Hm", options, via=stand_in_acp("deaf", stall_timeout=2))
        with pytest.raises(errors.RunTimeout) as whole:
            await ask("Hm", options.changed(timeout=5), via=stand_in_acp("deaf"))
    assert silence.value.result.text == whole.value.result.text == "Once upon a time"


async def test_silence_has_a_limit_but_for_a_tool(options, stand_in_acp, monkeypatch):
    monkeypatch.setattr(watch, "DEFAULT_STALL_SECONDS", 0.6)
    with pytest.raises(errors.Stalled):
        await ask("Hm", options, via=stand_in_acp("deaf"))
    assert (await ask("Go", options, via=stand_in_acp("at_a_tool"))).text == "Built"


async def test_who_waits_for_a_person_does_not_stall(options, stand_in_acp):
    async def decide(request: PermissionRequest) -> Allow:
        await asyncio.sleep(4)
        return Allow()

    transport = stand_in_acp("asking", decide=decide, stall_timeout=1.5)
    result = await ask("Go", options, via=transport)
    assert json.loads(result.text) == {"outcome": "selected", "optionId": "proceed_once"}


@on_shared
async def test_a_limit_of_turns_is_each_prompt_s_own_and_a_budget_ends_a_turn(shared):
    """S0-21, S0-26: the turn limit counts per prompt, although the CLI counts per session."""
    await turns_are_limited(shared.fake, shared.options, shared.warm)
    await spending_is_limited(shared.fake, shared.options, shared.warm)


async def turns_are_limited(fake_gemini: FakeGemini, options: Options, warm: Any) -> None:
    for _ in range(2):
        fake_gemini.call("read_file", file_path="a").call("read_file", file_path="b").say("Done")
    for number in range(6):
        part = {"functionCall": {"name": "read_file", "args": {"file_path": f"{number}"}}}
        fake_gemini.say(part, delay=0.4)
    async with connect(options.changed(max_turns=3), via=warm) as chat:
        assert (await chat.ask("one")).text == "Done"
        assert (await chat.ask("two")).text == "Done"
        events = await told(chat.turn("three"))
    assert last(events).status == "max_turns"
    # The fourth question is withdrawn before it has an answer.
    assert len(of(ToolResult, events)) == len(last(events).usage.requests) == 3
    assert len(fake_gemini.requests) == 6 + 4


async def spending_is_limited(fake_gemini: FakeGemini, options: Options, warm: Any) -> None:
    tokens = Tokens(prompt=1_000_000, output=10)
    part = {"functionCall": {"name": "read_file", "args": {"file_path": "a"}}}
    fake_gemini.when("Spend").say(part, tokens=tokens).say("Never heard", delay=30)
    with pytest.raises(errors.BudgetExceeded) as caught:
        await ask("Spend", options.changed(max_budget_usd=0.1), via=warm)
    assert caught.value.result.cost.usd > 0.1


@on_shared
async def test_many_turns_with_cancels_at_any_moment(asking):
    """S0-34: each turn ends with one Done, every call has its result, and the session stays
    usable."""
    dice = random.Random(7)
    fake_gemini, options = asking.fake, asking.options

    async def decide(request: PermissionRequest) -> Allow | Deny:
        await asyncio.sleep(dice.choice([0, 0.02]))
        return dice.choice([Allow(), Deny("no")])

    async with connect(options, via=asking.via(decide=decide)) as chat:
        for number in range(20):
            # A prompt may be joined to one before it, which the model never answered.
            rule = fake_gemini.when(re.compile(rf"turn {number}\.$"))
            kind = dice.randrange(3)
            if kind == 0:
                rule.say("Slowly", delay=dice.random() * 0.2)
            elif kind == 1:
                rule.call("write_file", file_path=f"{number}", content="x").say("Written")
            else:
                rule.call("run_shell_command", command="sleep 0.05").say("Slept")
            async with chat.turn(f"turn {number}.") as live:
                reading = asyncio.create_task(_all(live))
                if dice.random() < 0.5:
                    await asyncio.sleep(dice.random() * 0.15)
                    await live.cancel()
                events = await reading
            assert last(events).status in ("success", "interrupted")
            used = {use.id for use in of(ToolUse, events)}
            assert used == {result.id for result in of(ToolResult, events)}
        fake_gemini.when("the last").say("Still here")
        assert (await chat.ask("the last")).text == "Still here"


async def _all(live: Any) -> list[Any]:
    return [event async for event in live]


# ---- what breaks


async def killed_in_mid_turn(fake: FakeGemini, options: Options, transport: Acp) -> list[Any]:
    async with run("Go", options, via=transport) as live:
        events = []
        async for event in live:
            events.append(event)
            if isinstance(event, TextDelta):
                os.kill(agents(fake)[0].pid, signal.SIGKILL)
        return events


async def killed_between_turns(fake: FakeGemini, options: Options, transport: Acp) -> list[Any]:
    async with connect(options, via=transport) as chat:
        await chat.ask("One")
        (process,) = agents(fake)
        process.kill()
        return await told(chat.turn("Two"))


async def killed_in_the_handshake(fake: FakeGemini, options: Options, transport: Acp) -> list[Any]:
    async with run("Go", options, via=transport) as live:
        while not (found := agents(fake)):
            await asyncio.sleep(0.005)
        found[0].kill()
        return [event async for event in live]


@pytest.mark.parametrize(
    ("kill", "habit"),
    [
        (killed_in_mid_turn, "deaf"),
        (killed_between_turns, "well_behaved"),
        (killed_in_the_handshake, "silent"),
    ],
)
async def test_a_process_that_is_killed_ends_its_turn_with_a_typed_error(
    fake_gemini, options, kill, habit, stand_in_acp
):
    """S0-34, B-10: the turn has one Done and an error with the cause, and no process is left."""
    # The first start of a process makes the server of its keepers, which stays.
    await ask("Hi", options, via=stand_in_acp("well_behaved"))
    before = _held()
    events = await kill(fake_gemini, options, stand_in_acp(habit))
    assert last(events).status == "error"
    assert last(events).exit_code == -signal.SIGKILL
    (error,) = of(Error, events)
    assert error.code == "MISSING_RESULT"
    assert "SIGKILL" in error.message
    if kill is killed_in_mid_turn:
        assert of(Text, events)[0].text == "Once upon a time"
    await _let_go(before)


async def test_nothing_is_left_of_a_conversation(fake_gemini, options, acp, stand_in_acp):
    """No process, no task, no descriptor, no overlay."""

    async def decide(request: PermissionRequest) -> Allow:
        return Allow()

    async def once() -> None:
        fake_gemini.call("run_shell_command", command="touch x").say("Hi").hang("Ho")
        async with connect(options, via=acp(decide=decide)) as chat:
            await chat.ask("One")
            async with chat.turn("Two") as live:
                async for event in live:
                    if isinstance(event, TextDelta):
                        break

    # What is made once, and kept, is made now.
    await ask("Hi", options, via=stand_in_acp("well_behaved"))
    before = _held()
    await once()
    assert agents(fake_gemini) == []
    await _let_go(before)


async def _let_go(before: tuple[int, int, int]) -> None:
    """The API of the test lives in this process; it learns a moment later who has hung up."""
    for _ in range(1000):
        if _held() == before:
            break
        await asyncio.sleep(0.02)
    assert _held() == before


def _held() -> tuple[int, int, int]:
    mine = psutil.Process()
    return mine.num_fds() - shared_connections(), len(mine.children()), len(asyncio.all_tasks())


@on_shared
async def test_a_session_is_busy_for_others_while_it_is_open(shared, real_transport):
    """B-37: resuming a session that a chat holds open raises `SessionBusy`; after the chat it
    works."""
    shared.fake.say("Hi").say("Again")
    async with connect(shared.options, via=shared.warm) as chat:
        first = await chat.ask("Hi")
        again = shared.options.changed(resume=first.session_id)
        with pytest.raises(errors.SessionBusy):
            await ask("Me too", again, via=real_transport)
    assert (await ask("Me too", again, via=shared.warm)).text == "Again"


async def test_a_line_that_is_no_message_is_told_and_passed_over(options, stand_in_acp):
    events = await told(run("Hi", options, via=stand_in_acp("garbled")))
    assert [error.code for error in of(Error, events)] == ["NDJSON_PARSE_ERROR"] * 3
    assert all(error.recoverable for error in of(Error, events))
    assert (last(events).status, of(Text, events)[0].text) == ("success", "Hello")


async def test_a_last_line_that_nobody_ended_is_heard(options, stand_in_acp):
    """As the stream of a headless run is: what stands in the pipe was said."""
    events = await told(run("Hi", options, via=stand_in_acp("interrupted")))
    assert [event.text for event in events if isinstance(event, Text)] == ["Once upon a time"]
    assert last(events).status == "error"


async def test_an_opening_that_is_cancelled_with_all_other_tasks_is_cancelled(
    stand_in_acp, options
):
    """As asyncio.run() does on its way out: an error of it would be printed as unhandled."""
    async with connect(options, via=stand_in_acp("silent")):
        await asyncio.sleep(0.1)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        # The handshake first: then the one who waits for it has two reasons to end.
        for task in sorted(others, key=lambda task: "_open()" in repr(task)):
            task.cancel()
        await asyncio.wait(others)
    assert len(others) > 1
    assert all(task.cancelled() for task in others)


async def test_a_warm_process_that_has_ended_is_named(stand_in_acp, options):
    async with stand_in_acp("interrupted").warm(options) as via:
        first = await told(run("Hi", options, via=via))
        assert last(first).status == "error"
        with pytest.raises(errors.MissingResult, match="the warm process has ended") as caught:
            await ask("Hi", options, via=via)
    assert "a Pool replaces" in caught.value.hint


async def test_what_nobody_has_heard_of_is_kept_and_what_was_not_offered_is_refused(
    options, stand_in_acp
):
    events = await told(run("Hi", options, via=stand_in_acp("strange")))
    kinds = [event.kind for event in of(Unknown, events)]
    assert kinds == ["weather_update", "fs/read_text_file"]
    assert of(Text, events)[0].text == "Method not found: fs/read_text_file"


async def test_a_turn_that_does_not_hear_the_cancel_loses_its_process(options, stand_in_acp):
    async with asyncio.timeout(30), connect(options, via=stand_in_acp("deaf")) as chat:
        async with chat.turn("Hi") as live:
            async for event in live:
                if isinstance(event, TextDelta):
                    await live.cancel()
        assert (live.result.status, live.result.text) == ("interrupted", "Once upon a time")
        events = await told(chat.turn("And now?"))
        assert (last(events).status, of(Error, events)[0].code) == ("error", "MISSING_RESULT")


@pytest.mark.parametrize(
    ("habit", "error"),
    [
        ("silent", errors.StartTimeout),
        ("of another time", errors.ProtocolError),
        ("without --acp", errors.CliTooOld),
        ("of the time before", errors.CliTooOld),
        ("dying at once", errors.AuthError),
        ("odd", errors.RunFailed),
        ("refusing", errors.InvalidAnswer),
    ],
)
async def test_a_program_with_a_bad_habit_gets_its_own_error(options, stand_in_acp, habit, error):
    """S0-34: each misbehaviour gives its own error with one Done, and `ask` raises it."""
    transport = stand_in_acp(habit, start_timeout=0.5 if habit == "silent" else 30)
    events = await told(run("Hi", options, via=transport))
    assert last(events).status == "error"
    (told_error,) = of(Error, events)
    assert errors.class_for(told_error.code) is error
    with pytest.raises(error):
        await ask("Hi", options, via=transport)


async def test_the_last_words_of_a_program_that_died_before_its_first_turn_are_kept(
    options, tmp_path
):
    program, is_said = tmp_path / "not-gemini", tmp_path / "said"
    program.write_text(f"#!/bin/sh\necho 'what is --acp?' >&2\n: >'{is_said}'\nexit 2\n")
    program.chmod(0o755)
    async with asyncio.timeout(60), connect(options, via=Acp(executable=program)) as chat:
        while not is_said.exists():
            await asyncio.sleep(0.01)
        with pytest.raises(errors.MissingResult, match="what is --acp") as caught:
            await chat.ask("Hi")
    assert caught.value.stderr == "what is --acp?\n"
    assert "Cli(executable=…) is the Gemini CLI" in caught.value.hint


async def test_a_cancel_before_the_program_is_ready(options, stand_in_acp):
    """S0-28: a run that is cancelled during the handshake ends with one `Done`, status
    interrupted."""
    async with run("Hi", options, via=stand_in_acp("silent")) as live:
        await live.cancel()
        events = [event async for event in live]
    assert [type(event) for event in events] == [Done]
    assert last(events).status == "interrupted"


async def test_a_cli_of_the_time_before_is_refused_before_it_is_started(tmp_path, options):
    package = tmp_path / "node_modules" / "@google" / "gemini-cli"
    package.mkdir(parents=True)
    (package / "index.js").write_text("require('fs').writeFileSync('started', '')")
    about = {"name": "@google/gemini-cli", "version": "0.29.0", "bin": {"gemini": "index.js"}}
    (package / "package.json").write_text(json.dumps(about))
    with pytest.raises(errors.CliTooOld, match=r"0\.29\.0.*too old for Acp"):
        await ask("Hi", options, via=Acp(executable=package / "index.js"))
    assert not (Path(options.cwd) / "started").exists()


async def test_what_the_transport_cannot_honour_is_refused_before_anything_starts(
    options, transport
):
    with pytest.raises(errors.Unsupported, match="session_id") as caught:
        await ask("Hi", options.changed(session_id=BOGUS), via=transport)
    assert caught.value.hint


def test_a_transport_that_cannot_be_meant_so_is_refused():
    for wrong in ({"grace": -1}, {"decide": "yes"}, {"settings": {"a": object()}}):
        with pytest.raises(errors.InvalidOptions):
            Acp(**wrong)


async def test_a_broken_policy_is_fatal(fake_gemini, options, transport):
    """The CLI would run on without it."""
    policies = Path(fake_gemini.home) / ".gemini" / "policies"
    policies.mkdir(parents=True)
    (policies / "mine.toml").write_text("[[rule]\nbroken")
    with pytest.raises(errors.ConfigError, match="mine"):
        await ask("Hi", options, via=transport)
    assert fake_gemini.requests == []


# ---- failures that the wire hides


@on_shared
async def test_an_answer_that_broke_is_no_success(odd):
    """B-10: a broken answer is an error even though ACP reports `end_turn`."""
    odd.fake.when("Speak").say("").always()
    odd.fake.when("Read").call("read_file", file_path="a").truncate("Half of an").always()
    for prompt in ("Speak", "Read"):
        with pytest.raises(errors.InvalidAnswer):
            await ask(prompt, odd.options, via=odd.warm)


@on_shared
async def test_what_is_refused_has_its_type_and_the_session_goes_on(shared):
    """By the API; and of a prompt of five megabytes, the CLI reports a quiet end."""
    fake_gemini, options = shared.fake, shared.options
    kinds = {400: errors.ApiError, 401: errors.AuthError, 403: errors.AuthError}
    async with connect(options, via=shared.warm) as chat:
        for status, error in kinds.items():
            fake_gemini.fail(status, "No, thank you").say(f"Better than {status}")
            with pytest.raises(error) as caught:
                await chat.ask("Hi")
            assert caught.value.status == status
            assert (await chat.ask("Hi")).text == f"Better than {status}"
        fake_gemini.fail(400, "API key not valid.", reason="API_KEY_INVALID")
        with pytest.raises(errors.AuthError) as caught:
            await chat.ask("Hi")
        assert caught.value.message == "400 INVALID_ARGUMENT: API key not valid."
        assert (caught.value.status, caught.value.retryable) == (400, False)
        assert "GEMINI_API_KEY" in (caught.value.hint or "")
        with pytest.raises(errors.ContextOverflow):
            await chat.ask("word " * 1_048_576)
        fake_gemini.say("Short enough")
        assert (await chat.ask("Hi")).text == "Short enough"
    with pytest.raises(errors.InvalidPrompt):
        await ask("   ", options, via=shared.warm)


@on_shared
async def test_requests_that_the_cli_repeats_in_silence_end_with_an_error(shared):
    """Not after the three minutes that the CLI would take by itself."""
    shared.fake.fail(503, "Overloaded").always()
    with pytest.raises(errors.ServerError) as caught:
        await ask("Hi", shared.options, via=shared.warm)
    assert (caught.value.status, caught.value.retryable) == (503, True)
    assert len(shared.fake.requests) == 3


@on_shared
async def test_whatever_a_prompt_looks_like_it_reaches_the_model(shared):
    """Like a command, like a variable, or like nothing that an encoding has. One that was cancelled
    before its session was open is never asked; a command runs only where it may."""
    fake_gemini, options, warm = shared.fake, shared.options, shared.warm
    prompts = ["/about", "  /help", "$HOME is where?", "caf\udce9"]
    fake_gemini.say("A fine question").always()
    async with connect(options, via=warm) as chat:
        async with chat.turn("Not this") as live:
            await live.cancel()
            assert chat._conversation is not None
            await chat._conversation.wait_for_session()
            await asyncio.sleep(0.1)
        assert live.result.status == "interrupted"
        for prompt in prompts:
            assert (await chat.ask(prompt)).text == "A fine question"
            assert prompt.rstrip("\udce9") in fake_gemini.requests[-1].prompt
    assert "0.61.0" in (await ask("/about", options.changed(literal=False), via=warm)).text
    assert len(fake_gemini.requests) == len(prompts)


@on_shared
async def test_waiting_for_quota_is_no_network_failure(shared):
    shared.fake.fail(429, retry_delay=2).say("There")
    patient = shared.options.changed(network_timeout=1)
    assert (await ask("Hi", patient, via=shared.warm)).text == "There"


# ---- resuming


@on_shared
async def test_a_session_is_resumed_in_the_minute_of_its_birth(shared, real_transport):
    """S1-3, S1-49, B-37: `session/load` alone would destroy its file then. From one transport
    to the other and back, nothing is lost."""
    fake_gemini, options = shared.fake, shared.options
    for number in range(4):
        fake_gemini.say(f"Answer {number}")
    first = await ask("I am Ada", options, via=real_transport)
    async with connect(options.changed(resume="latest"), via=shared.warm) as chat:
        events = await told(chat.turn("And I am Grace"))
        assert [type(event) for event in events] == [Init, UserMessage, TextDelta, Text, Done]
        assert last(events).usage.exact
        await chat.ask("Margaret here")
        # The CLI begins a file of the same name at every load; it would cost both their lives.
        store = Path(fake_gemini.home) / ".gemini" / "tmp"
        assert len([*store.glob(f"*/chats/*{first.session_id[:8]}*")]) == 1
    again = options.changed(resume=first.session_id)
    second = await ask("Who was here?", again, via=real_transport)
    assert second.session_id == first.session_id
    for said in ("I am Ada", "Answer 0", "And I am Grace", "Answer 1", "Margaret here"):
        assert said in history(fake_gemini)


@on_shared
async def test_a_session_that_is_not_there_is_lost_or_replaced(shared):
    """S1-50, B-22: resuming an unknown session raises `SessionLost`; with `fresh_if_lost` a new one
    starts."""
    options = shared.options
    shared.fake.say("Fresh")
    with pytest.raises(errors.SessionLost):
        await ask("Hi", options.changed(resume=BOGUS), via=shared.warm)
    forgiving = shared.via(fresh_if_lost=True)
    events = await told(run("Hi", options.changed(resume=BOGUS), via=forgiving))
    assert events[0].code == "SESSION_LOST"
    assert events[0].recoverable
    assert last(events).status == "success"
    assert last(events).resume != BOGUS


async def a_turn_ends_with_its_chat(fake_gemini: FakeGemini, options: Options, warm: Any) -> None:
    fake_gemini.hang("Hello")
    async with connect(options, via=warm) as chat:
        live = chat.turn("Go")
        await live.__aenter__()
        while not any(isinstance(event, TextDelta) for event in await live.read()):
            pass
    events = []
    while batch := await live.read():
        events += batch
    await live.__aexit__()
    assert events[-1].status == "interrupted"


async def test_whoever_is_never_asked_is_told_so(options, acp):
    with pytest.warns(UserWarning, match="decide is never called"):
        acp(decide=lambda request: True).open(options.changed(approval="yolo"))
