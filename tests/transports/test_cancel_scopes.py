"""A block that is left inside a scope of anyio's, as in Starlette and FastAPI, which cancels every
wait anew and not just once: what the block started is gone all the same, and what it had said is
in the result."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from geminorum import Acp, Api, Done, Event, Options, Pool, connect, run
from geminorum.client import Run
from geminorum.errors import GeminorumError, SessionBusy
from geminorum.runtime.cancellation import finish
from geminorum.sessions.lock import SessionLock
from geminorum.testing import FakeGemini
from geminorum.transports import Transport
from left_processes import TEST_MARK, marked_processes
from stand_in import StandIn


async def left_by_an_impatient_scope(transport: Transport) -> None:
    """As a web framework does when the client has hung up."""
    with anyio.CancelScope() as scope:
        async with run("Tell me a story", Options(), via=transport) as live:
            async for event in live:
                if event.type == "text_delta":
                    scope.cancel()
                    await anyio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("grace", [0.3, 60.0])
async def test_a_warm_process_is_gone(stand_in_acp, grace):
    await left_by_an_impatient_scope(stand_in_acp("deaf", grace=grace))
    assert marked_processes(os.environ[TEST_MARK]) == []


async def test_a_session_of_a_shared_process_is_free_again(stand_in_acp, private_home):
    async with stand_in_acp("deaf", grace=60.0).warm() as transport:
        with anyio.CancelScope() as scope:
            async with run("Tell me a story", via=transport) as live:
                async for event in live:
                    if event.type == "text_delta":
                        session = str(live.session_id)
                        with pytest.raises(SessionBusy), SessionLock(private_home, session):
                            pass
                        scope.cancel()
                        await anyio.sleep_forever()
        await asyncio.sleep(0)  # What was cancelled ends in the next round of the loop.
        with SessionLock(private_home, session):
            pass


async def test_a_headless_process_is_gone(stand_in):
    init = {"type": "init", "session_id": "s", "model": "m"}
    hello = {"type": "message", "role": "assistant", "content": "Once", "delta": True}
    transport = stand_in(
        init, hello, hang=True, ignore_term=True, grandchildren=("bare",), grace=60
    )
    await left_by_an_impatient_scope(transport)
    assert marked_processes(os.environ[TEST_MARK]) == []


INIT = {"type": "init", "session_id": "s", "model": "m"}
WORDS = [f"{number} " for number in range(410)]
DELTAS = [
    {"type": "message", "role": "assistant", "content": word, "delta": True} for word in WORDS
]


class Storyteller(NamedTuple):
    """A transport behind which an agent says 410 words and then nothing any more."""

    transport: Transport
    options: Options
    heard: Callable[[Run], Awaitable[None]]
    """Returns when the words have been said; none of them has to be read for that."""


@pytest.fixture(params=["cli", "acp", "warm", "pool", "api"])
async def storyteller(
    request: pytest.FixtureRequest,
    stand_in: StandIn,
    stand_in_acp: Callable[..., Acp],
    tmp_path: Path,
) -> AsyncIterator[Storyteller]:
    options = Options(cwd=tmp_path, home=tmp_path)

    async def until(is_said: Callable[[], bool]) -> None:
        while not is_said():
            await asyncio.sleep(0.01)

    async def said_by_a_warm_one(_: Run) -> None:
        await until((tmp_path / "said").exists)

    async def said_by_a_headless_one(_: Run) -> None:
        await until(lambda: stand_in.has_spoken)

    async def said_by_the_api(live: Run) -> None:
        async for event in live:
            if event.type == "text_delta":
                return

    async with contextlib.AsyncExitStack() as stack:
        match request.param:
            case "cli":
                transport = stand_in(INIT, *DELTAS, hang=True)
                yield Storyteller(transport, options, said_by_a_headless_one)
            case "api":
                fake = await stack.enter_async_context(FakeGemini())
                fake.hang("".join(WORDS)).always()
                online = Options(env=fake.env, model="gemini-2.5-flash")
                yield Storyteller(Api(grace=0.5), online, said_by_the_api)
            case kind:
                acp = stand_in_acp("telling")
                if kind == "warm":
                    acp = await stack.enter_async_context(acp.warm(options))
                elif kind == "pool":
                    acp = await stack.enter_async_context(Pool(acp))
                yield Storyteller(acp, options, said_by_a_warm_one)


async def in_a_scope_of_anyio(body: Callable[..., Awaitable[None]]) -> None:
    with anyio.CancelScope() as scope:

        async def leave() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        await body(leave)
    assert scope.cancelled_caught


async def in_a_timeout_of_asyncio(body: Callable[..., Awaitable[None]]) -> None:
    timer = asyncio.timeout(None)

    async def leave() -> None:
        timer.reschedule(asyncio.get_running_loop().time())
        await asyncio.sleep(60)

    with contextlib.suppress(TimeoutError):
        async with timer:
            await body(leave)
    assert timer.expired()


SCOPES = [in_a_scope_of_anyio, in_a_timeout_of_asyncio]


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_was_said_is_in_the_result_of_a_scope_that_ended(scope, storyteller):
    live = run("Tell me a story", storyteller.options, via=storyteller.transport)

    async def body(leave: Callable[[], Awaitable[None]]) -> None:
        async with live:
            await storyteller.heard(live)
            await leave()

    await scope(body)
    assert live.result.text.split() == "".join(WORDS).split()
    assert live.result.status == "interrupted"


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_chat_inside_of_a_scope_that_ended_keeps_the_words_and_tells_of_one_end(
    scope, storyteller, monkeypatch
):
    runs: list[Run] = []
    told = record_events(monkeypatch)

    async def body(leave: Callable[[], Awaitable[None]]) -> None:
        async with connect(storyteller.options, via=storyteller.transport) as chat:
            runs.append(chat.turn("Tell me a story"))
            async with runs[0] as live:
                await storyteller.heard(live)
                await leave()

    await scope(body)
    assert runs[0].result.text.split() == "".join(WORDS).split()
    assert [type(event) for event in told].count(Done) == 1


def record_events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What every run reads from now on, also while its block is being left."""
    told: list[Event] = []
    read = Run.read

    async def recorded(live: Run) -> list[Event]:
        events = await read(live)
        told.extend(events)
        return events

    monkeypatch.setattr(Run, "read", recorded)
    return told


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 5, 300])
async def test_leaving_a_chat_is_clean_and_a_typed_error_for_the_task_that_asks(
    storyteller, rounds
):
    """Wherever the one who asks has got to; none of them learns of it by a bare CancelledError."""
    async with asyncio.timeout(60), connect(storyteller.options, via=storyteller.transport) as chat:
        asking = asyncio.create_task(chat.ask("Tell me a story"))
        for _ in range(rounds):
            await asyncio.sleep(0.001 if rounds > 5 else 0)
    with pytest.raises(GeminorumError):
        await asking


async def test_leaving_a_chat_while_a_turn_still_starts_a_server_ends_it(stand_in, tmp_path):
    """There is no process yet that could be stopped."""
    transport = stand_in(INIT, *DELTAS, hang=True, tools=[count_words])
    options = Options(cwd=tmp_path, home=tmp_path)
    async with asyncio.timeout(60), connect(options, via=transport) as chat:
        asking = asyncio.create_task(chat.ask("Tell me a story"))
        await asyncio.sleep(0)
    with pytest.raises(GeminorumError):
        await asking


def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())


async def test_a_turn_that_begins_after_its_chat_was_left_is_refused(storyteller):
    async with connect(storyteller.options, via=storyteller.transport) as chat:
        late = chat.turn("Tell me a story")
    with pytest.raises(GeminorumError, match="the chat is over"):
        await late.__aenter__()


async def test_what_has_to_be_finished_is_begun_though_all_tasks_of_the_loop_are_cancelled():
    """As asyncio.run() does on its way out, and a second Ctrl-C of the command."""
    done = []

    async def tidy_up() -> None:
        await asyncio.sleep(0)
        done.append("tidied up")

    async def leave() -> None:
        asyncio.get_running_loop().call_soon(cancel_all)
        await finish(tidy_up(), lambda: done.append("hurried"))

    def cancel_all() -> None:
        for task in asyncio.all_tasks() - {test}:
            task.cancel()

    test = asyncio.current_task()
    leaving = asyncio.create_task(leave())
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    assert done == ["hurried", "tidied up"]
