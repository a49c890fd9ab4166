"""What a caller's function raises never lets a tool run, never hangs, and is not lost."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from geminorum import (
    Acp,
    Allow,
    Api,
    Cli,
    Deny,
    Options,
    PermissionRequest,
    ToolResult,
    ask,
    connect,
    errors,
    run,
    sync,
)
from geminorum.cost import PriceBook
from geminorum.decisions import Decisions
from geminorum.testing import FakeGemini
from geminorum.tools import Tool, ToolOutcome, call
from shared_acp import MODEL, forget, note_shared, private_options, shared_processes

WRITE = ("write_file", {"file_path": "made", "content": "x"})
SHELL = PermissionRequest(name="run_shell_command", id="1", input={"command": "ls"})


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even its text")


def both() -> BaseExceptionGroup:
    return BaseExceptionGroup("both", [KeyboardInterrupt(), ValueError()])


INTERRUPTS = [SystemExit, KeyboardInterrupt, both]
NO_INTERRUPTS = [GeneratorExit, asyncio.CancelledError, StopIteration, ValueError]


def raising(kinds: list):
    return pytest.mark.parametrize("error", kinds, indirect=True)


@pytest.fixture
def error(request) -> BaseException:
    return request.param()


def plain(error: BaseException):
    def decide(request: PermissionRequest) -> Allow:
        raise error

    return decide


def awaited(error: BaseException):
    async def decide(request: PermissionRequest) -> Allow:
        await asyncio.sleep(0)
        raise error

    return decide


def unlike(error: BaseException):
    """A plain function that gives something to await."""
    return lambda request: awaited(error)(request)


kinds = pytest.mark.parametrize("kind", [plain, awaited, unlike])


def ended(function, seconds: float = 60.0) -> BaseException | None:
    """What the function raised, in a thread that is given up when it hangs."""
    outcome: list[BaseException | None] = []

    def work() -> None:
        try:
            function()
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    return outcome[0]


class TestDecisions:
    @kinds
    @raising([*INTERRUPTS, *NO_INTERRUPTS, Unspeakable])
    def test_whatever_decide_raises_is_a_no(self, kind, error):
        said = []

        async def asked() -> None:
            said.append(await Decisions(kind(error)).ask(SHELL))

        assert ended(lambda: asyncio.run(asked())) is None
        (decision,) = said
        assert isinstance(decision, Deny)
        # Python itself lets no StopIteration out of a coroutine.
        names = (type(error).__name__, "cancelled", "RuntimeError")
        assert any(name in decision.reason for name in names)

    @raising(INTERRUPTS)
    def test_an_interrupt_is_handed_on(self, error):
        handed = []

        async def asked() -> None:
            await Decisions(plain(error)).ask(SHELL, handed.append)

        assert ended(lambda: asyncio.run(asked())) is None
        assert handed == [error]

    async def test_a_cancellation_of_ours_is_no_answer(self):
        thinking = asyncio.Event()

        async def decide(request: PermissionRequest) -> Allow:
            thinking.set()
            await asyncio.Event().wait()
            return Allow()

        question = asyncio.create_task(Decisions(decide).ask(SHELL))
        await thinking.wait()
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question


class TestTheApi:
    """The same transport code serves every question; here each costs milliseconds."""

    @kinds
    @raising(INTERRUPTS)
    def test_sync_ends_and_passes_the_interrupt_on(self, kind, error, fake_gemini):
        called = []
        fake_gemini.call("touch", path="made").say("Never said.")

        def touch(path: str) -> None:
            called.append(path)

        via = Api(tools=[touch], decide=kind(error))
        options = Options(env=fake_gemini.env, model=MODEL)
        raised = ended(lambda: sync.ask("Go", options, via=via))
        assert raised is error
        assert (called, len(fake_gemini.requests)) == ([], 1)

    @raising(INTERRUPTS)
    def test_async_ends_and_passes_the_interrupt_on(self, error, fake_gemini):
        fake_gemini.call("touch", path="made").say("Never said.")
        seen = []

        async def go() -> None:
            options = Options(env=fake_gemini.env, model=MODEL)
            via = Api(tools=[lambda_tool()], decide=awaited(error))
            live = run("Go", options, via=via)
            try:
                async with live:
                    async for event in live:
                        seen.append(event)
            finally:
                seen.append(live.result.status)

        raised = ended(lambda: asyncio.run(go()))
        assert raised is error
        assert seen[-1] == "interrupted"
        assert len(fake_gemini.requests) == 1

    @raising(NO_INTERRUPTS)
    def test_what_is_no_interrupt_is_only_a_no(self, error, fake_gemini):
        fake_gemini.call("touch", path="made").say("Then not.")
        options = Options(env=fake_gemini.env, model=MODEL)
        via = Api(tools=[lambda_tool()], decide=awaited(error))
        assert sync.ask("Go", options, via=via).text == "Then not."

    @raising([KeyboardInterrupt, both])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_an_interrupt_from_a_function_ends_the_run(self, error, is_async, fake_gemini):
        fake_gemini.call("touch", path="made").say("Never said.")
        via = Api(tools=[lambda_tool(error, is_async=is_async)])
        options = Options(env=fake_gemini.env, model=MODEL)
        assert ended(lambda: sync.ask("Go", options, via=via)) is error

    def test_a_chat_goes_on_after_an_interrupt(self, fake_gemini):
        fake_gemini.call("touch", path="made").say("Still here.")
        via = Api(tools=[lambda_tool()], decide=plain(KeyboardInterrupt()))

        def talk() -> None:
            with sync.connect(Options(env=fake_gemini.env, model=MODEL), via=via) as chat:
                with pytest.raises(KeyboardInterrupt):
                    chat.ask("Go")
                said.append(chat.ask("And now?").text)

        said: list[str] = []
        assert ended(talk) is None
        assert said == ["Still here."]

    def test_who_leaves_the_block_early_is_interrupted_too(self, fake_gemini):
        fake_gemini.call("touch", path="made").say("Never said.")
        asked = threading.Event()

        def decide(request: PermissionRequest) -> Allow:
            asked.set()
            raise KeyboardInterrupt

        def leave() -> None:
            via = Api(tools=[lambda_tool()], decide=decide)
            with sync.run("Go", Options(env=fake_gemini.env, model=MODEL), via=via):
                asked.wait(30)
                time.sleep(0.2)

        assert isinstance(ended(leave), KeyboardInterrupt)

    @raising([KeyboardInterrupt, SystemExit])
    def test_a_type_that_raises_an_interrupt_ends_the_run(self, error, fake_gemini):
        class City(msgspec.Struct):
            name: str

            def __post_init__(self) -> None:
                raise error

        fake_gemini.say('{"name": "Kyiv"}')
        options = Options(env=fake_gemini.env, model=MODEL, output_schema=City)
        assert ended(lambda: sync.ask("Go", options, via=Api())) is error

    @raising([KeyboardInterrupt, SystemExit])
    def test_prices_that_raise_an_interrupt_do_not_hang(self, error, fake_gemini):
        class Prices(PriceBook):
            def price_of(self, model: str):
                raise error

        fake_gemini.say("Hello.")
        options = Options(env=fake_gemini.env, model=MODEL)
        assert ended(lambda: sync.ask("Go", options, via=Api(prices=Prices({})))) is error


def lambda_tool(error: BaseException | None = None, *, is_async: bool = False) -> Tool:
    def touch(path: str) -> str:
        if error is not None:
            raise error
        return path

    async def touch_later(path: str) -> str:
        return touch(path)

    return Tool.of(touch_later if is_async else touch, name="touch")


class TestFunctions:
    @raising([SystemExit, GeneratorExit, asyncio.CancelledError, Unspeakable])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_function_that_fails_in_any_way_is_an_outcome(self, error, is_async):
        outcomes = []

        async def called() -> None:
            outcomes.append(await call(lambda_tool(error, is_async=is_async), {"path": "x"}))

        assert ended(lambda: asyncio.run(called())) is None
        (outcome,) = outcomes
        assert (outcome.status, outcome.error_type) == ("error", "tool_failed")

    def test_arguments_whose_type_fails_are_the_models_to_mend(self):
        class Place(msgspec.Struct):
            name: str

            def __post_init__(self) -> None:
                raise RuntimeError("the map is closed")

        def go(place: Place) -> str:
            return place.name

        outcome = asyncio.run(call(Tool.of(go), {"place": {"name": "Kyiv"}}))
        assert outcome == ToolOutcome(
            "error", "go: RuntimeError: the map is closed", "invalid_arguments"
        )


on_cli = pytest.mark.parametrize("place", [Cli], indirect=True, ids=["cli"])
on_acp = pytest.mark.parametrize("place", [Acp], indirect=True, ids=["acp"])


class WarmPool:
    """A pool for all warm conversations of this module; each test says who decides, and what the
    function does."""

    def __init__(self, fake: FakeGemini, options: Options) -> None:
        self.fake, self.options = fake, options
        self.how: dict[str, Any] = {}

    def decide(self, request: PermissionRequest) -> Any:
        return self.how["decide"](request)

    def touch(self, path: str) -> Any:
        return self.how["tools"][0].function(path)


@pytest.fixture(scope="module")
def warm_pool(real_transport, tmp_path_factory) -> Iterator[WarmPool]:
    with FakeGemini() as fake, shared_processes():
        warm = WarmPool(fake, private_options(fake, tmp_path_factory.mktemp("pool"), timeout=60))
        how = {"tools": [Tool.of(warm.touch, name="touch")], "decide": warm.decide}
        with sync.Pool(Acp(executable=real_transport.executable, **how)) as warm.pool:
            warm.pool.warm(warm.options)
            note_shared()
            yield warm


@pytest.mark.gemini_cli
class TestTheRealCli:
    @pytest.fixture(params=[Cli, Acp], ids=["cli", "acp"])
    def place(self, request, tmp_path) -> Iterator[tuple[Any, ...]]:
        """Where a headless run finds its model, or the pool its own."""
        (workspace := tmp_path / "workspace").mkdir()
        if request.param is Cli:
            real = request.getfixturevalue("real_transport")
            with FakeGemini() as fake:
                options = Options(env=fake.env, cwd=workspace, model=MODEL, timeout=60)
                yield fake, options, lambda **how: replace(real, **how)
            return
        warm = request.getfixturevalue("warm_pool")
        forget(warm.fake)

        def told(**how: Any) -> sync.Pool:
            warm.how = how
            return warm.pool

        yield warm.fake, warm.options.changed(cwd=workspace), told

    @pytest.fixture
    def fake_gemini(self, place) -> FakeGemini:
        return place[0]

    @pytest.fixture
    def options(self, place) -> Options:
        return place[1]

    @pytest.fixture
    def transport(self, place) -> Callable[..., Any]:
        """The way to the real CLI with a decide and tools of the test."""
        return place[2]

    @raising([SystemExit])
    def test_sync_ends_passes_the_interrupt_on_and_nothing_is_written(
        self, error, transport, fake_gemini, options
    ):
        """A plain function, as people write it; SystemExit is what `sys.exit()` raises."""
        fake_gemini.calls(WRITE).say("Never said.")
        via = transport(decide=plain(error))
        assert ended(lambda: sync.ask("Go", options, via=via)) is error
        assert [*options.cwd.iterdir()] == []

    @on_cli
    def test_async_ends_and_passes_the_interrupt_on(self, transport, fake_gemini, options):
        fake_gemini.calls(WRITE).say("Never said.")
        via = transport(decide=awaited(KeyboardInterrupt()))
        raised = ended(lambda: asyncio.run(ask("Go", options, via=via)))
        assert isinstance(raised, KeyboardInterrupt)
        assert [*options.cwd.iterdir()] == []

    def test_what_is_no_interrupt_is_only_a_no(self, transport, fake_gemini, options):
        """One after the other in one run, from an async function."""
        raised = iter([GeneratorExit(), asyncio.CancelledError(), Unspeakable()])
        for _ in range(3):
            fake_gemini.calls(WRITE)
        fake_gemini.say("Then not.")

        async def decide(request: PermissionRequest) -> Allow:
            raise next(raised)

        with sync.run("Go", options, via=transport(decide=decide)) as live:
            statuses = [one.status for one in live if isinstance(one, ToolResult)]
        assert live.result.text == "Then not."
        assert (set(statuses), [*options.cwd.iterdir()]) == ({"denied"}, [])

    def test_an_interrupt_from_a_function_ends_the_run(self, transport, fake_gemini, options):
        fake_gemini.call("mcp_geminorum_touch", path="made").say("Never said.")
        error = KeyboardInterrupt()
        via = transport(tools=[lambda_tool(error)], decide=lambda request: True)
        assert ended(lambda: sync.ask("Go", options, via=via)) is error

    @on_acp
    def test_an_interrupt_over_arguments_that_the_question_left_out_ends_the_run(
        self, transport, fake_gemini, options
    ):
        """A warm CLI cuts long arguments; then somebody is asked when the call itself arrives."""
        fake_gemini.call("mcp_geminorum_touch", path="x" * 5000).say("Never said.")
        error, called = SystemExit("no"), []

        def touch(path: str) -> None:
            called.append(path)

        via = transport(tools=[Tool.of(touch)], decide=plain(error))
        assert ended(lambda: sync.ask("Go", options, via=via)) is error
        assert called == []

    @on_acp
    def test_an_answer_whose_type_raises_an_interrupt_ends_the_run(
        self, transport, fake_gemini, options
    ):
        error = SystemExit("in a constructor")

        class City(msgspec.Struct):
            name: str

            def __post_init__(self) -> None:
                raise error

        fake_gemini.call("mcp_geminorum_final_answer", name="Kyiv").say("Never said.")
        wanted = options.changed(output_schema=City)
        assert ended(lambda: sync.ask("Go", wanted, via=transport())) is error

    def test_ctrl_c_while_decide_thinks_ends_the_run(self, transport, fake_gemini, options):
        """A real signal, in the main thread, while a plain function waits for a person."""
        fake_gemini.calls(WRITE).say("Never said.")
        woken = threading.Event()

        def decide(request: PermissionRequest) -> bool:
            os.kill(os.getpid(), signal.SIGINT)
            return woken.wait(60)

        with pytest.raises(KeyboardInterrupt):
            sync.ask("Go", options, via=transport(decide=decide))
        woken.set()
        assert [*options.cwd.iterdir()] == []

    @on_acp
    def test_a_pool_ends_one_conversation_and_serves_the_others(
        self, transport, fake_gemini, options
    ):
        fake_gemini.calls(WRITE).say("Still here.")
        error = KeyboardInterrupt()
        pool = transport(decide=plain(error))

        def share() -> None:
            with sync.connect(options, via=pool) as chat:
                with pytest.raises(KeyboardInterrupt):
                    sync.ask("Go", options, via=pool)
                said.append(chat.ask("And you?").text)

        said: list[str] = []
        assert ended(share) is None
        assert said == ["Still here."]
        assert [*options.cwd.iterdir()] == []


class TestTheLoopOfTheSyncApi:
    def test_a_loop_that_dies_ends_every_call(self):
        """Whatever ends it: nobody waits for a loop that is gone."""
        loop = sync.BackgroundLoop()
        error = SystemExit("out of a timer")

        def die() -> None:
            raise error

        async def wait() -> None:
            asyncio.get_running_loop().call_later(0.05, die)
            await asyncio.Event().wait()

        def use() -> None:
            with loop:
                loop.call(wait())

        assert ended(use, 20) is error

    def test_a_dead_loop_takes_no_more_calls(self):
        loop = sync.BackgroundLoop()

        def die() -> None:
            raise SystemExit

        async def die_soon() -> None:
            asyncio.get_running_loop().call_soon(die)
            await asyncio.sleep(30)

        def use() -> None:
            with loop:
                with pytest.raises(SystemExit):
                    loop.call(die_soon())
                loop.call(asyncio.sleep(0))

        assert isinstance(ended(use, 20), errors.GeminorumError)


async def test_another_turn_of_an_async_chat_works_after_an_interrupt(fake_gemini):
    fake_gemini.call("touch", path="made").say("Still here.")
    via = Api(tools=[lambda_tool()], decide=plain(KeyboardInterrupt()))
    async with connect(Options(env=fake_gemini.env, model=MODEL), via=via) as chat:
        with pytest.raises(KeyboardInterrupt):
            await chat.ask("Go")
        assert (await chat.ask("And now?")).text == "Still here."
