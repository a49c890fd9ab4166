"""What a conversation says about itself, and who decides in it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Allow,
    Api,
    Chat,
    Deny,
    Done,
    Options,
    Pool,
    Result,
    ToolCall,
    ToolResult,
    ToolUse,
    ask,
    connect,
    errors,
    sync,
)
from geminorum.testing import FakeGemini
from geminorum.views.result import KEPT_CALLS, result
from shared_acp import SharedAcp, on_shared, shared_acp

SHELL = "run_shell_command"


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model="gemini-2.5-flash", timeout=60)


def yes(request) -> Allow:
    return Allow()


def no(request) -> Deny:
    return Deny("not in this chat")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    transport = Acp(executable=real_transport.executable, decide=no)
    async with shared_acp(transport, tmp_path_factory.mktemp("process")) as shared:
        yield shared


async def knows_its_session(chat: Chat) -> Result:
    """From the first of two turns on, and when it is over. Gives the result of the first."""
    async with chat:
        assert chat.session_id is None
        first = await chat.ask("First")
        assert chat.session_id == first.session_id is not None
        turn = chat.turn("Second")
        assert chat.session_id == first.session_id
        async with turn:
            pass
    assert chat.session_id == first.session_id
    return first


class TestTheSession:
    @on_shared
    @pytest.mark.gemini_cli
    async def test_a_chat_knows_its_session_from_its_first_turn_on(self, process, tmp_path):
        """And it has a `decide` of its own, before that of its transport; on `Cli`, too: see
        test_decide_cli.py."""
        shared = process.afresh(tmp_path / "workspace")
        shared.fake.call(SHELL, command="touch made").say("One.").say("Two.")
        transport = shared.via(decide=no)
        first = await knows_its_session(connect(shared.options, via=transport, decide=yes))
        assert [call.status for call in first.tools] == ["success"]
        assert (shared.options.cwd / "made").exists()
        assert transport.decide is no

    async def test_a_chat_of_headless_runs_knows_it_too(self, stand_in):
        """What the real one resumes: test_running.py."""
        said = [
            {"type": "init", "session_id": "s-1", "model": "gemini-2.5-flash"},
            {"type": "result", "status": "success"},
        ]
        first = await knows_its_session(connect(via=stand_in(*said)))
        assert first.session_id == "s-1"

    def test_a_chat_without_await_knows_it_too(self):
        with FakeGemini(default="Hello.") as fake:
            options = Options(env=fake.env, session_id="mine")
            with sync.connect(options, via=Api()) as chat:
                chat.ask("Hi")
                assert chat.session_id == "mine"


class TestTheToolsOfAResult:
    def test_each_call_has_its_status_in_the_order_of_the_calls(self):
        events = [
            ToolUse("read_file", "1", {"file_path": "a"}),
            ToolUse("write_file", "2", {"file_path": "b"}),
            ToolUse("glob", "3"),
            ToolResult("2", "write_file", "denied"),
            ToolResult("1", "read_file"),
            Done("interrupted"),
        ]
        assert result(events).tools == [
            ToolCall("read_file", {"file_path": "a"}, "success", "1"),
            ToolCall("write_file", {"file_path": "b"}, "denied", "2"),
            ToolCall("glob", {}, None, "3"),
        ]

    def test_a_very_long_run_keeps_the_latest_calls_and_counts_the_others(self):
        """An answer that comes after its call was left out, or twice, changes nothing."""
        calls = [ToolUse("glob", str(number)) for number in range(KEPT_CALLS + 3)]
        answers = [ToolResult(id, "glob") for id in ("0", "5", "1002", "1002")]
        told = result([*calls, *answers])
        assert told.tools_left_out == 3
        assert [call.id for call in told.tools] == [call.id for call in calls[3:]]
        assert [call.id for call in told.tools if call.status] == ["5", "1002"]

    def test_a_run_that_repeats_an_id_keeps_the_latest_call_open(self):
        calls = [ToolUse("glob", "again") for _ in range(KEPT_CALLS + 1)]
        told = result([*calls, ToolResult("again", "glob")])
        assert [call.status for call in told.tools] == [None] * (KEPT_CALLS - 1) + ["success"]

    async def test_a_run_tells_which_tools_were_called(self):
        def add(a: int, b: int) -> int:
            return a + b

        async with FakeGemini() as fake:
            fake.call("add", a=2, b=3).say("Five.")
            done = await ask("2 + 3?", Options(env=fake.env), via=Api(tools=[add]))
        (call,) = done.tools
        assert (call.name, call.input, call.status) == ("add", {"a": 2, "b": 3}, "success")


class TestWhoDecides:
    async def test_the_api_asks_the_chat_too(self):
        def pay() -> str:
            return "paid"

        async with FakeGemini() as fake:
            fake.call("pay").say("Then not.")
            via = Api(tools=[pay], decide=yes)
            async with connect(Options(env=fake.env), via=via, decide=no) as chat:
                (call,) = (await chat.ask("Pay")).tools
        assert call.status == "denied"

    @on_shared
    @pytest.mark.gemini_cli
    async def test_chats_in_one_warm_process_have_each_their_own(self, process, tmp_path):
        shared = process.afresh(tmp_path / "workspace")
        shared.fake.when("one").call(SHELL, command="touch one").say("Done.")
        shared.fake.when("two").call(SHELL, command="touch two").say("Done.")
        async with (
            connect(shared.options, via=shared.warm, decide=yes) as one,
            connect(shared.options, via=shared.warm) as two,
        ):
            await asyncio.gather(one.ask("one"), two.ask("two"))
        assert {file.name for file in shared.options.cwd.iterdir()} == {"one"}

    @pytest.mark.parametrize("shared", [Pool(Acp()), Acp().warm(), sync.Pool(Acp())])
    def test_a_process_that_was_started_to_ask_nobody_refuses_one(self, shared):
        with pytest.raises(errors.Unsupported, match="nobody to ask") as caught:
            connect(via=shared, decide=yes)
        assert "Acp(decide=…)" in caught.value.hint

    def test_a_transport_that_cannot_ask_says_so(self):
        class Mute:
            def open(self, options):
                raise NotImplementedError

        with pytest.raises(errors.Unsupported, match="Mute has nobody to ask"):
            connect(via=Mute(), decide=yes)


class TestAWarmProcess:
    @on_shared
    @pytest.mark.gemini_cli
    async def test_it_is_ready_when_its_block_is_entered(self, process, tmp_path):
        assert process.was_ready
        shared = process.afresh(tmp_path / "workspace")
        shared.fake.say("Hello.")
        assert (await ask("Hi", shared.options, via=shared.warm)).text == "Hello."

    async def test_one_that_never_says_hello_is_refused_at_the_transport(
        self, stand_in_acp, options
    ):
        with pytest.raises(errors.StartTimeout, match="no hello"):
            async with stand_in_acp("silent", start_timeout=0.5).warm(options):
                raise AssertionError("it is not ready")

    async def test_one_that_dies_at_once_says_why(self, stand_in_acp, options):
        with pytest.raises(errors.ProtocolError, match="ended at its start"):
            async with stand_in_acp("dying at once", start_timeout=20).warm(options):
                raise AssertionError("it is not ready")
