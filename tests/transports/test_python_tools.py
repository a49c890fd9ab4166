"""Functions of this process as tools of the real CLI: called, answered, and gone with the run."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Allow,
    Cli,
    Deny,
    Done,
    Event,
    Options,
    PermissionRequest,
    Policy,
    Rule,
    Run,
    Tool,
    ToolResult,
    ToolUse,
    ask,
    connect,
    run,
    sync,
)
from geminorum.errors import InvalidOptions, RunTimeout, TrustError, Unsupported
from geminorum.testing import FakeGemini
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.callbacks.tool_server import ToolServer, to_served
from geminorum.wire.callbacks import mcp
from shared_acp import (
    MODEL,
    OnEitherWay,
    SharedAcp,
    having,
    on_shared,
    private_options,
    shared_acp,
)


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model=MODEL, timeout=60)


def named(*names: str) -> list[Tool]:
    """A process has to know the names of the functions that its sessions bring."""
    return [Tool.of(ring, name=name) for name in names]


ASKED_TO_PAY = Policy(rules=(Rule("mcp_geminorum_pay", "ask"),))
LISTED = ("put", "answer", "several", "stuck", "meet")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    """One process for all warm sessions, with a list of the functions that they may use. Somebody
    says no, but is asked about one of them only."""
    how = {"tools": named(*LISTED, "peek", "pay"), "decide": lambda request: False}
    transport = Acp(executable=real_transport.executable, **how)
    allowed = [f"mcp_geminorum_{name}" for name in (*LISTED, "pay")]
    chosen = {"allowed_tools": allowed, "policy": ASKED_TO_PAY}
    async with shared_acp(transport, tmp_path_factory.mktemp("process"), **chosen) as shared:
        yield shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def many_calls(real_transport, tmp_path_factory) -> SimpleNamespace:
    """One chat of headless runs that calls every function there is; its second turn is short.

    The user's choice of servers does not shut ours out. In yolo nobody is asked about any.
    """
    basket: dict[str, int] = {}
    meeting, seen = asyncio.Barrier(2), []

    async def divide(a: int, b: int) -> float:
        return a / b

    async def meet(name: str) -> str:
        await meeting.wait()
        return f"hello {name}"

    def here() -> str:
        return "here"

    def note(word: str) -> None:
        seen.append(word)

    with FakeGemini() as fake:
        fake.call("mcp_geminorum_put", fruit="fig", count=3)
        fake.call("mcp_geminorum_divide", a=1, b=0)
        fake.call("mcp_geminorum_divide", a=8, b=2, wait_for_previous=True)
        fake.calls(*[("mcp_geminorum_meet", {"name": name}) for name in ("Ada", "Bea")])
        fake.calls(("mcp_geminorum_here", {}), ("mcp_geminorum_note", {"word": "one"})).say("Oh.")
        fake.call("mcp_geminorum_note", word="two").say("Noted.")
        folder = tmp_path_factory.mktemp("many")
        options = private_options(fake, folder, timeout=60, approval="yolo")
        via = replace(
            real_transport,
            tools=[putting_into(basket), divide, meet, here, note],
            decide=lambda request: False,
            settings={"mcp": {"allowed": ["another"]}},
            spare=0,  # Functions of one that is started ahead: test_spares.py.
        )
        with pytest.warns(UserWarning, match="decide is never called"):
            live, events = await two_turns(options, via)
        results: dict[str, list[ToolResult]] = {}
        for event in events:
            if isinstance(event, ToolResult):
                results.setdefault(event.name, []).append(event)
        found = {"basket": basket, "seen": seen, "events": events, "requests": fake.requests}
        return SimpleNamespace(**found, results=results, result=live.result)


async def two_turns(options: Options, via: Cli) -> tuple[Run, list[Event]]:
    """The first turn of a chat, and what it told."""
    async with connect(options, via=via) as chat:
        async with chat.turn("Go") as live:
            events = [event async for event in live]
        await chat.ask("Second")
    return live, events


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm_call(process, tmp_path_factory) -> SimpleNamespace:
    """A turn of a warm session that calls a function."""
    basket: dict[str, int] = {}
    shared = process.afresh(tmp_path_factory.mktemp("warm"))
    shared.fake.call("mcp_geminorum_put", fruit="fig", count=3).say("Done.")
    via = shared.via(tools=[putting_into(basket)])
    async with run("Go", shared.options, via=via) as live:
        events = [event async for event in live]
    found = {"basket": basket, "events": events, "requests": shared.fake.requests}
    return SimpleNamespace(**found, result=live.result)


PAYMENTS = [("mcp_geminorum_pay", {"amount": amount}) for amount in (5, 50)]


def paying_into(paid: list[int]) -> Tool:
    def pay(amount: int) -> None:
        paid.append(amount)

    return Tool.of(pay)


def allow_little(request: PermissionRequest) -> Allow | Deny:
    return Allow() if request.input.get("amount", 50) < 10 else Deny("too much")


def assert_little_was_paid(results: list[ToolResult], paid: list[int]) -> None:
    assert sorted(one.status for one in results if one.name == "pay") == ["denied", "success"]
    assert paid == [5]


def noting(called: list[str], name: str) -> Tool:
    """A function that only notes that it was called."""

    def note() -> None:
        called.append(name)

    return Tool.of(note, name=name)


def putting_into(basket: dict[str, int]) -> Callable[..., dict]:
    def put(fruit: str, count: int = 1) -> dict:
        """Puts fruit into the basket."""
        basket[fruit] = basket.get(fruit, 0) + count
        return basket

    return put


@pytest.fixture
def touched(request) -> SimpleNamespace:
    return request.getfixturevalue("many_calls" if request.param == "cli" else "warm_call")


on_cli = pytest.mark.parametrize("place", [Cli], indirect=True, ids=["cli"])
on_acp = pytest.mark.parametrize("place", ["process"], indirect=True, ids=["acp"])
"""Where both transports share what is tested, one will do: each start of the CLI takes seconds."""


@on_shared
@pytest.mark.gemini_cli
class TestTheRealCli(OnEitherWay):
    @pytest.mark.parametrize("touched", ["cli", "acp"], indirect=True)
    async def test_a_function_touches_the_state_of_this_process(self, touched):
        """S0-13, S0-14: the function runs here, and its tool has the name that the caller wrote."""
        basket, events, requests = touched.basket, touched.events, touched.requests
        assert touched.result.status == "success"
        assert basket == {"fig": 3}
        (use,) = [event for event in events if isinstance(event, ToolUse) and event.name == "put"]
        (result,) = [one for one in events if isinstance(one, ToolResult) and one.id == use.id]
        assert (use.name, use.input) == ("put", {"fruit": "fig", "count": 3})
        assert (result.name, result.status, json.loads(result.output)) == ("put", "success", basket)
        assert "mcp_geminorum_put" in str(use.raw)
        declared = requests[0].body["tools"][0]["functionDeclarations"]
        (told,) = [tool for tool in declared if tool["name"] == "mcp_geminorum_put"]
        assert told["description"] == "Puts fruit into the basket."
        assert '"fig":3' in str(requests[1].tool_results[0].response)

    async def test_what_a_function_raises_is_told_to_the_model(self, many_calls):
        """And the argument that the CLI adds reaches no function."""
        results = many_calls.results["divide"]
        assert [result.status for result in results] == ["error", "success"]
        assert results[1].output == "4.0"
        told = str(many_calls.requests[2].tool_results[0].response)
        assert "ZeroDivisionError: division by zero" in told
        assert many_calls.result.text == "Oh."

    async def test_calls_at_once_run_at_once(self, many_calls):
        """Each waits for the other: one behind the other, neither would come back. A warm CLI runs
        them so."""
        assert many_calls.result.ok
        told = [str(one.response) for one in many_calls.requests[4].tool_results]
        assert ["hello Ada" in told[0], "hello Bea" in told[1]] == [True, True]

    async def test_every_turn_of_a_chat_reaches_the_function(self, many_calls):
        assert many_calls.seen == ["one", "two"]

    async def test_the_users_choice_of_servers_does_not_shut_ours_out(self, many_calls):
        assert [result.output for result in many_calls.results["here"]] == ["here"]

    @on_acp
    async def test_an_answer_that_looks_like_json_arrives(
        self, fake_gemini, options, any_transport
    ):
        """The CLI takes a bare `42` for structured content, and refuses it."""

        def answer() -> int:
            return 42

        def several() -> list[int]:
            return [1, 2]

        calls = [("mcp_geminorum_answer", {}), ("mcp_geminorum_several", {})]
        fake_gemini.calls(*calls).say("Done.")
        transport = having(any_transport, tools=[answer, several])
        async with run("Go", options, via=transport) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert [(result.status, result.output) for result in results] == [
            ("success", "42"),
            ("success", "[1,2]"),
        ]

    @on_cli
    async def test_the_lists_of_the_options_hold_for_functions_too(
        self, fake_gemini, options, any_transport
    ):
        """S0-24: and a function opens nothing else. Nobody is asked about what is listed, unless a
        rule says so."""
        called, paid, asked = [], [], []

        def decide(request):
            asked.append(request.name)
            return allow_little(request)

        tools = [noting(called, name) for name in ("peek", "poke", "prod")]
        calls = [(f"mcp_geminorum_{tool.name}", {}) for tool in tools]
        fake_gemini.calls(*calls, ("run_shell_command", {"command": "touch made"}))
        fake_gemini.calls(*PAYMENTS).say("Done.")
        lists = {"allowed_tools": ["peek", "prod", "pay"], "disallowed_tools": ["prod"]}
        chosen = options.changed(policy=ASKED_TO_PAY, **lists)
        via = having(any_transport, tools=[*tools, paying_into(paid)], decide=decide)
        async with run("Go", chosen, via=via) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert_little_was_paid(results, paid)
        found = {result.name: result.status for result in results if result.name != "pay"}
        assert found.pop("peek") == "success"
        assert set(found.values()) == {"denied"}
        assert len(found) == 3
        assert (called, {*asked}) == (["peek"], {"pay"})
        assert not (options.cwd / "made").exists()

    @on_acp
    async def test_a_list_holds_for_functions_in_a_warm_cli_too(
        self, fake_gemini, options, any_transport
    ):
        """Lists belong to a process."""
        called = []

        tools = [noting(called, name) for name in ("put", "peek")]
        calls = [(f"mcp_geminorum_{tool.name}", {}) for tool in tools]
        fake_gemini.calls(*calls, ("run_shell_command", {"command": "touch made"})).say("Done.")
        async with run("Go", options, via=having(any_transport, tools=tools)) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        found = {result.name: result.status for result in results}
        assert found == {"put": "success", "peek": "denied", "run_shell_command": "denied"}
        assert called == ["put"]
        assert not (options.cwd / "made").exists()

    @on_acp
    async def test_a_function_in_the_list_is_asked_about_where_a_rule_says_so(
        self, fake_gemini, options, any_transport
    ):
        """In a warm CLI; in another, above."""
        fake_gemini.calls(*PAYMENTS).say("Done.")
        paid: list[int] = []
        via = having(any_transport, tools=[paying_into(paid)], decide=allow_little)
        async with run("Go", options, via=via) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert_little_was_paid(results, paid)

    @pytest.mark.parametrize(
        ("place", "kind"), [(Cli, "thread"), ("process", "async")], indirect=["place"]
    )
    async def test_a_function_that_never_returns_does_not_hold_up_the_end(
        self, fake_gemini, options, any_transport, kind
    ):
        """S0-28: the run is cancelled while the function is at it."""
        begun, never = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        async def waits() -> None:
            begun.set()
            await asyncio.Event().wait()

        def blocks() -> None:
            loop.call_soon_threadsafe(begun.set)
            never.wait()

        tool = Tool.of(waits if kind == "async" else blocks, name="stuck")
        fake_gemini.call("mcp_geminorum_stuck").say("Never said.")
        tasks = asyncio.all_tasks()
        async with run("Go", options, via=having(any_transport, tools=[tool])) as live:
            await _until_used(live)
            async with asyncio.timeout(20):
                await begun.wait()
            await live.cancel()
            *_, done = [event async for event in live]
        assert isinstance(done, Done)
        assert done.status == "interrupted"
        assert asyncio.all_tasks() == tasks
        never.set()

    @on_acp
    async def test_a_time_limit_ends_a_run_whose_function_never_returns(
        self, fake_gemini, options, any_transport
    ):
        async def stuck() -> None:
            await asyncio.Event().wait()

        fake_gemini.call("mcp_geminorum_stuck").say("Never said.")
        with pytest.raises(RunTimeout):
            await ask("Go", options.changed(timeout=4), via=having(any_transport, tools=[stuck]))

    @on_cli
    async def test_code_that_does_not_await_can_be_called_too(
        self, fake_gemini, options, real_transport
    ):
        seen = []

        def note(word: str) -> None:
            seen.append(word)

        fake_gemini.call("mcp_geminorum_note", word="hey").say("Noted.")
        transport = Acp(executable=real_transport.executable, tools=[note])
        assert (await asyncio.to_thread(sync.ask, "Go", options, via=transport)).ok
        assert seen == ["hey"]

    @on_cli
    async def test_nobody_is_asked_about_a_function_that_a_rule_allows(
        self, fake_gemini, options, any_transport
    ):
        """Nor about one in a list, or in yolo: above."""
        peeked = []

        def peek() -> None:
            peeked.append(True)

        fake_gemini.call("mcp_geminorum_peek").say("Done.")
        transport = having(any_transport, tools=[peek], decide=lambda request: False)
        policy = Policy(rules=(Rule("mcp_geminorum_*", "allow"),))
        assert (await ask("Go", options.changed(policy=policy), via=transport)).ok
        assert peeked == [True]

    @on_cli
    async def test_a_plan_asks_about_functions(self, fake_gemini, options, any_transport):
        asked = []

        def peek() -> None: ...

        def may_i(request: PermissionRequest) -> Deny:
            asked.append(request.name)
            return Deny()

        fake_gemini.call("mcp_geminorum_peek").say("Done.")
        transport = having(any_transport, tools=[peek], decide=may_i)
        assert (await ask("Go", options.changed(approval="plan"), via=transport)).ok
        assert asked == ["peek"]


@on_shared
@pytest.mark.gemini_cli
class TestAWarmCli:
    @pytest.fixture
    def shared(self, process, tmp_path) -> SharedAcp:
        return process.afresh(tmp_path / "workspace")

    async def test_every_session_of_a_process_reaches_the_functions(self, shared):
        """At the same time, and after another has gone."""
        meeting, seen = asyncio.Barrier(2), []
        fake_gemini, options = shared.fake, shared.options

        async def meet(name: str) -> str:
            if name != "Cid":
                await meeting.wait()
            seen.append(name)
            return name

        for name in ("Ada", "Bea", "Cid"):
            said = fake_gemini.when(name)
            said.call("mcp_geminorum_meet", name=name).say(f"Hello {name}")
        warm = shared.via(tools=[meet])
        async with connect(options, via=warm) as one:
            async with connect(options, via=warm) as other:
                both = await asyncio.gather(one.ask("I am Ada"), other.ask("I am Bea"))
            third = await one.ask("I am Cid")
        assert [result.text for result in (*both, third)] == ["Hello Ada", "Hello Bea", "Hello Cid"]
        assert sorted(seen) == ["Ada", "Bea", "Cid"]

    async def test_a_function_that_never_returns_ends_with_its_turn(self, shared):
        """S0-28: and the conversation goes on."""
        begun, ended = asyncio.Event(), asyncio.Event()

        async def stuck() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        shared.fake.call("mcp_geminorum_stuck").say("Hello again.")
        async with connect(shared.options, via=shared.via(tools=[stuck])) as chat:
            async with chat.turn("Go") as live:
                await _until_used(live)
                async with asyncio.timeout(20):
                    await begun.wait()
                await live.cancel()
            async with asyncio.timeout(20):
                await ended.wait()
            assert (await chat.ask("And now?")).text == "Hello again."

    async def test_a_folder_without_trust_has_no_functions(self, options, real_transport):
        """The CLI would say nothing, and the model would be told that there is no such tool."""
        distrusted = options.changed(trust_workspace=False)
        transport = Acp(executable=real_transport.executable, tools=[ring])
        with pytest.raises(TrustError, match="tools of this process"):
            await ask("Go", distrusted, via=transport)


async def _until_used(live) -> None:
    async for event in live:
        if isinstance(event, ToolUse):
            return


def ring(times: int) -> str:
    """Rings the bell."""
    return "ding " * times


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([Tool.of(ring, name="read_file")], "already"),
        ([Tool.of(ring, name="r" * 50)], "too long"),
        ((one for one in (ring, ring)), "two tools"),
        ([Tool("ring", "", {"type": "object"})], "only declared"),
        ("ring", "not a list"),
        ([3], "not a function"),
    ],
)
async def test_a_tool_that_cannot_be_is_refused_before_anything_starts(stand_in, tools, message):
    with pytest.raises(InvalidOptions, match=message):
        await ask("Hi", via=stand_in(tools=tools))


async def test_a_sandbox_that_cannot_reach_us_is_refused(stand_in):
    with pytest.raises(Unsupported, match="sandbox"):
        await ask("Hi", via=stand_in(tools=[ring], sandbox="docker"))


def test_the_settings_of_a_run_with_tools_carry_a_token_that_is_new_each_time():
    paths = dict.fromkeys(["/mcp", "/decide"], ToolServer([]).answer)
    servers = [Loopback(paths), Loopback(paths)]
    tokens = {server.token_for(path) for server in servers for path in paths}
    assert len(tokens) == 4
    assert min(map(len, tokens)) >= 32


class TestTheServer:
    """The protocol by hand, as the CLI speaks it and as strangers might."""

    @pytest.fixture
    async def server(self):
        async with Loopback({"/mcp": ToolServer([to_served(Tool.of(ring))]).answer}) as server:
            yield server

    async def post(self, server: Loopback, body: bytes, head: str = "", method: str = "POST"):
        """The status and the body of one exchange."""
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            known = head or f"Authorization: Bearer {server.token_for('/mcp')}\r\n"
            sized = f"Host: {server.host}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(f"{method} /mcp HTTP/1.1\r\n{known}{sized}".encode() + body)
            told = (await reader.readuntil(b"\r\n\r\n")).decode()
            (length,) = re.findall(r"Content-Length: (\d+)", told)
            answer = await reader.readexactly(int(length))
            return told.splitlines()[0].removeprefix("HTTP/1.1 "), answer
        finally:
            writer.transport.abort()

    async def call(self, server: Loopback, method: str, **params):
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        status, answer = await self.post(server, json.dumps(message).encode())
        assert status == "200 OK"
        assert json.loads(answer)["id"] == 7
        return json.loads(answer)

    async def test_shakes_hands_in_the_clients_version(self, server):
        welcome = await self.call(server, "initialize", protocolVersion="2025-03-26")
        assert welcome["result"]["protocolVersion"] == "2025-03-26"
        unknown = await self.call(server, "initialize", protocolVersion="1999-01-01")
        assert unknown["result"]["protocolVersion"] == "2025-11-25"

    async def test_answers_what_it_is_asked(self, server):
        assert (await self.call(server, "ping"))["result"] == {}
        (tool,) = (await self.call(server, "tools/list"))["result"]["tools"]
        assert (tool["name"], tool["description"]) == ("ring", "Rings the bell.")
        assert tool["inputSchema"]["properties"] == {"times": {"type": "integer"}}
        called = await self.call(server, "tools/call", name="ring", arguments={"times": 2})
        assert called["result"]["content"] == [{"type": "text", "text": "ding ding "}]

    async def test_says_what_is_wrong_with_arguments(self, server):
        called = await self.call(server, "tools/call", name="ring", arguments={"times": "two"})
        assert called["result"]["isError"]
        assert "times" in called["result"]["content"][0]["text"]

    @pytest.mark.parametrize(
        ("method", "params", "code"),
        [
            ("resources/list", {}, mcp.NO_SUCH_METHOD),
            ("tools/call", {"name": "gong"}, mcp.INVALID_PARAMS),
            ("tools/call", {"name": "ring", "arguments": [1]}, mcp.INVALID_PARAMS),
        ],
    )
    async def test_refuses_what_it_does_not_have(self, server, method, params, code):
        assert (await self.call(server, method, **params))["error"]["code"] == code

    async def test_takes_note_of_a_notification(self, server):
        body = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        assert await self.post(server, body) == ("202 Accepted", b"")

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id": 1}', b"\xff\xfe"])
    async def test_survives_what_is_no_message(self, server, body):
        status, answer = await self.post(server, body)
        assert status == "200 OK"
        assert json.loads(answer)["error"]["code"] == mcp.INVALID_REQUEST
        assert (await self.call(server, "ping"))["result"] == {}

    @pytest.mark.parametrize("head", ["X: y\r\n", "Authorization: Bearer nö\r\n"])
    async def test_hears_nobody_without_the_token(self, server, head):
        status, answer = await self.post(server, b'{"id":1,"method":"ping"}', head)
        assert (status, answer) == ("401 Unauthorized", b"")

    async def test_has_no_stream_to_offer(self, server):
        status, _ = await self.post(server, b"", method="GET")
        assert status == "405 Method Not Allowed"

    async def test_a_call_can_be_ended(self):
        begun = asyncio.Event()

        async def stuck() -> None:
            begun.set()
            await asyncio.Event().wait()

        tools = ToolServer([to_served(Tool.of(stuck))])
        async with Loopback({"/mcp": tools.answer}) as server:
            called = asyncio.create_task(self.call(server, "tools/call", name="stuck"))
            await begun.wait()
            tools.cancel()
            assert (await called)["result"]["isError"]

    async def test_leaves_nothing_when_its_block_ends_in_the_middle_of_a_call(self):
        begun, tasks = asyncio.Event(), asyncio.all_tasks()

        async def stuck() -> None:
            begun.set()
            await asyncio.Event().wait()

        async with Loopback({"/mcp": ToolServer([to_served(Tool.of(stuck))]).answer}) as server:
            called = asyncio.create_task(self.call(server, "tools/call", name="stuck"))
            await begun.wait()
        with pytest.raises((OSError, EOFError)):
            await called
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == tasks
        with pytest.raises(ConnectionRefusedError):
            await self.call(server, "ping")


def test_names_of_others_stay_what_they_are():
    assert mcp.own_name("mcp_github_search") == "mcp_github_search"
    assert mcp.own_name("mcp_geminorum_ring") == "ring"


def test_a_transport_with_tools_says_what_is_wrong_when_it_is_made():
    with pytest.raises(InvalidOptions, match="no type hint"):
        Cli(tools=[lambda_with_a_name])


def lambda_with_a_name(untyped):
    return untyped
