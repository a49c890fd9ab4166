"""The pool: warm processes that are shared, checked, replaced, and never left behind."""

import asyncio
import contextlib
import contextvars
import errno
import gc
import inspect
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from geminorum import (
    Acp,
    Api,
    Cli,
    Done,
    Error,
    Init,
    Options,
    Pool,
    TextDelta,
    ask,
    connect,
    errors,
    run,
    sync,
)
from geminorum.testing import FakeGemini
from geminorum.transports.pool import worker as pool_worker
from geminorum.transports.pool.worker import key_of

MODEL = "gemini-2.5-flash"


@pytest.fixture
def options(fake_gemini: FakeGemini, tmp_path: Path) -> Options:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model=MODEL, env=fake_gemini.env, home=fake_gemini.home)


@pytest.fixture
def transport(real_transport: Cli) -> Acp:
    return Acp(executable=real_transport.executable)


@pytest.fixture
def calm(stand_in_acp: Callable[..., Acp]) -> Acp:
    """A program that says Hello to everybody: for what the pool does, whatever the CLI does."""
    return stand_in_acp("well_behaved")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No child; the loop that pytest closes later has descriptors of its own."""
    yield
    assert not programs()


_NOT_OURS = re.compile(r"keeper_program\.py|/playwright/|chromium")


def programs() -> list[psutil.Process]:
    """The children of our keepers, and ours that are no keepers, nor the browser of other tests."""
    below = psutil.Process().children(recursive=True)
    # One that is just ending has no command any more.
    return [one for one in below if (said := _command(one)) and not _NOT_OURS.search(said)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def pids(pool: Pool) -> list[int | None]:
    return [process.pid for process in pool.report().processes]


async def told(live: Any) -> list[Any]:
    async with asyncio.timeout(60), live:
        return [event async for event in live]


def last(events: list[Any]) -> Done:
    """The Done; there is one, and it is the last."""
    assert [type(event) for event in events].count(Done) == 1
    assert isinstance(events[-1], Done)
    return events[-1]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


def alone() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


def descriptors() -> int:
    return psutil.Process().num_fds()


async def test_the_memory_of_a_process_is_that_of_its_whole_tree(options, calm, tmp_path):
    """A wrapper is small; the agent behind it may not be."""
    wrapper = tmp_path / "wrapped"
    wrapper.write_text(f'#!/bin/sh\n"{calm.executable}" "$@"\nexit 0\n')
    wrapper.chmod(0o755)
    transport = replace(calm, executable=wrapper)
    async with Pool(transport, spare=False) as pool, connect(options, via=pool) as chat:
        await chat.ask("Hi")
        (process,) = pool.report().processes
        alone = psutil.Process(process.pid).memory_info().rss / 2**20
        assert process.memory_mb > alone + 4


# ---- sharing


async def test_conversations_of_one_kind_share_a_process(fake_gemini, options, transport, tmp_path):
    """S0-34: folder, model and mode are each conversation's own. S1-49: one that is resumed is
    loaded, and has not the session that was made ahead: the model hears what was said before."""
    fake_gemini.say("Hello").always()
    other = options.changed(cwd=tmp_path, model="gemini-2.5-pro", approval="yolo")
    async with Pool(transport) as pool:
        async with connect(options, via=pool) as one, connect(other, via=pool) as two:
            first, second = await asyncio.gather(told(one.turn("1")), told(two.turn("2")))
            (process,) = pool.report().processes
            assert (process.conversations, process.retired) == (2, None)
            assert process.memory_mb is not None
            assert process.memory_mb > 50
        before = await ask("The word is plum", options, via=pool)
        assert before.text == "Hello"
        again = await ask("Which?", options.changed(resume=before.session_id), via=pool)
        assert again.session_id == before.session_id
        assert "plum" in str(fake_gemini.requests[-1].body["contents"])
        assert len(pids(pool)) == 1
        report = pool.report()
    assert [(e.model, e.cwd) for e in first if isinstance(e, Init)] == [(MODEL, str(options.cwd))]
    assert [(e.model, e.cwd) for e in second if isinstance(e, Init)] == [
        (other.model, str(tmp_path))
    ]
    assert (report.started, report.conversations, report.turns, report.crashed) == (1, 4, 4, 0)
    assert report.recycled == {}
    assert alone()


async def test_another_kind_has_a_process_of_its_own(options, calm, monkeypatch):
    """What belongs to the process is its options, and the variables that it was started with."""
    async with Pool(calm) as pool:
        for kind in (options, options.changed(system_prompt="Be brief")):
            async with connect(kind, via=pool) as chat:
                await chat.ask("Hi")
        assert len(pids(pool)) == 2
        monkeypatch.setenv("SOME_KEY", "new")
        await ask("Hi", options, via=pool)
        assert len(pids(pool)) == 3


async def test_a_full_process_is_followed_by_another(options, calm):
    """One is filled before the next is started; at_once bounds what it takes."""
    async with Pool(calm, size=2, at_once=1) as pool:
        async with connect(options, via=pool) as one, connect(options, via=pool) as two:
            await asyncio.gather(one.ask("1"), two.ask("2"))
            assert [p.conversations for p in pool.report().processes] == [1, 1]
        assert pool.report().started == 2


# ---- made ahead


async def test_the_next_conversation_finds_a_session_made_ahead(
    fake_gemini, options, transport, monkeypatch
):
    """No session/new between asking for a place and the turn, and its model is its own."""
    fake_gemini.say("Hello").always()
    async with Pool(transport) as pool:
        await pool.warm(options)
        for number in range(3):
            asked = sent(monkeypatch)
            chosen = options.changed(model=f"gemini-2.5-{number}", approval="yolo")
            async with connect(chosen, via=pool) as chat:
                result = await chat.ask("Hi")
                begun = asked[: asked.index("session/prompt")]
            assert begun == ["session/set_model", "session/set_mode"]
            await until(lambda asked=asked: "session/new" in asked)
            assert fake_gemini.requests[-1].model == f"gemini-2.5-{number}"
            assert result.session_id
        assert len({*pids(pool)}) == 1
        # Three were had, the fourth is spare and does not count yet.
        await until(lambda: pool.report().processes[0].sessions == 3)


async def test_a_session_in_another_folder_is_not_taken(options, calm, tmp_path):
    async with Pool(calm) as pool:
        await pool.warm(options)
        events = await told(run("Hi", options.changed(cwd=tmp_path), via=pool))
        assert next(e.cwd for e in events if isinstance(e, Init)) == str(tmp_path)
        # The one for the first folder makes room for one in the folder used last.
        await until(lambda: pool.report().processes[0].sessions == 2)


async def test_a_pool_without_spares_makes_none(options, calm, monkeypatch):
    async with Pool(calm, spare=False) as pool:
        await pool.warm(options)
        asked = sent(monkeypatch)
        for _ in range(2):
            await ask("Hi", options, via=pool)
        assert asked.count("session/new") == 2


async def test_a_spare_that_finds_no_room_on_the_disk_is_not_missed(options, calm, monkeypatch):
    """Nobody waits for it, so nobody would take the error."""
    tried, unhandled, opened = [], [], pool_worker.open_session

    async def no_room_for_two(*given: Any) -> Any:
        tried.append(True)
        if len(tried) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return await opened(*given)

    monkeypatch.setattr(pool_worker, "open_session", no_room_for_two)
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unhandled.append(told))
    async with Pool(calm) as pool:
        assert (await ask("Hi", options, via=pool)).text == "Hello"
        await until(lambda: len(tried) > 1)
        # Another one begins, and the first is forgotten.
        with contextlib.suppress(errors.GeminorumError, OSError):
            await ask("Hi", options, via=pool)
    del pool  # With it goes the task, and only then would its error be told.
    gc.collect()
    assert unhandled == []


def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests to warm processes from now on; they are sent all the same."""
    from geminorum.transports.acp.process import AcpProcess

    asked: list[str] = []
    send = AcpProcess.call

    def call(self: AcpProcess, method: str, *rest: Any) -> int:
        asked.append(method)
        return send(self, method, *rest)

    monkeypatch.setattr(AcpProcess, "call", call)
    return asked


# ---- recycling


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_age": 0.001}, "age"),
        ({"max_sessions": 1}, "sessions"),
        ({"max_memory_mb": 1}, "memory"),
    ],
)
async def test_a_process_that_has_seen_enough_is_replaced(options, calm, limit, reason):
    """It takes nobody any more, ends with the last whom it has, and another is started ahead."""
    async with Pool(calm, size=2, **limit) as pool:
        await one_is_replaced(pool, options)
        assert pool.report().recycled == {reason: 1}
    assert alone()


async def test_a_process_that_has_run_enough_tools_is_replaced(options, stand_in_acp):
    async with Pool(stand_in_acp("at_a_tool"), size=2, max_tool_calls=1) as pool:
        await one_is_replaced(pool, options)
        assert pool.report().recycled == {"tool calls": 1}
    assert alone()


async def one_is_replaced(pool: Pool, options: Options) -> None:
    async with connect(options, via=pool) as chat:
        await chat.ask("Write")
        (old,) = pids(pool)
    await until(lambda: pids(pool) not in ([], [old], [None]))
    assert not psutil.pid_exists(old)
    assert len(pids(pool)) == 1


async def test_conversations_stay_in_a_process_that_is_to_be_replaced(options, calm):
    async with Pool(calm, size=2, max_sessions=1) as pool, connect(options, via=pool) as first:
        await first.ask("1")
        (old,) = pids(pool)
        async with connect(options, via=pool) as second:
            await second.ask("2")
            assert [p.retired for p in pool.report().processes] == ["sessions", None]
            await first.ask("3")
            assert old in pids(pool)


# ---- too many


async def test_who_finds_no_place_waits_for_one(options, calm):
    """Bounded, and told by a typed error that can be tried again."""
    async with Pool(calm, size=1, at_once=1, wait=0.05) as pool:
        async with connect(options, via=pool) as chat:
            with pytest.raises(errors.PoolBusy, match="no place") as caught:
                await ask("Hi", options, via=pool)
            assert caught.value.retryable
            assert "size=" in str(caught.value)
            assert (await chat.ask("Hi")).text == "Hello"
        pool._wait = 30
        async with connect(options, via=pool):
            waiting = asyncio.create_task(ask("Hi", options, via=pool))
            await until(lambda: pool.report().waiting == 1)
        assert (await waiting).text == "Hello"
        assert pool.report().started == 1


async def test_an_idle_process_makes_room_for_another_kind(options, calm):
    async with Pool(calm, size=1) as pool:
        await ask("Hi", options, via=pool)
        old = pids(pool)
        await ask("Hi", options.changed(system_prompt="Be brief"), via=pool)
        assert pids(pool) != old
        assert pool.report().recycled == {"unused": 1}
        assert pool.report().started == 2


async def test_who_waits_for_another_kind_holds_nobody_up(options, calm):
    """Not those for whom there is room."""
    async with Pool(calm, size=1, at_once=2) as pool:
        async with connect(options, via=pool) as chat:
            await chat.ask("Hi")
            strange = asyncio.create_task(ask("Hi", options.changed(system_prompt="Be"), via=pool))
            await until(lambda: pool.report().waiting == 1)
            async with asyncio.timeout(20):
                assert (await ask("Hi", options, via=pool)).text == "Hello"
            assert not strange.done()
        assert (await strange).text == "Hello"


async def test_who_waits_for_another_kind_is_not_passed_for_ever(options, calm):
    """Half of the longest wait; then the process takes no more, and ends with those it has."""
    got_in = asyncio.Event()

    async def strange() -> None:
        async with connect(options.changed(system_prompt="Be brief"), via=pool):
            got_in.set()

    async def usual(turn: asyncio.Semaphore) -> None:
        """Comes again and again, and at every moment one of the two is in."""
        while not got_in.is_set():
            with contextlib.suppress(errors.PoolBusy):
                async with connect(options, via=pool), turn:
                    await asyncio.sleep(0.02)

    async with Pool(calm, size=1, at_once=2, wait=4) as pool, asyncio.timeout(40):
        await pool.warm(options)
        turn = asyncio.Semaphore(1)
        guests = [asyncio.create_task(usual(turn)) for _ in range(2)]
        await until(lambda: pool.report().conversations >= 2)
        await strange()
        await asyncio.gather(*guests)
        assert pool.report().recycled["unused"] >= 1


async def test_a_queue_is_served_in_its_order(options, calm):
    order = []

    async def one(name: str) -> None:
        async with connect(options, via=pool):
            order.append(name)

    async with Pool(calm, size=1, at_once=1) as pool:
        async with connect(options, via=pool):
            waiting = []
            for number in range(4):
                waiting.append(asyncio.create_task(one(str(number))))
                await until(lambda number=number: pool.report().waiting == number + 1)
        late = asyncio.create_task(one("late"))
        await asyncio.gather(*waiting, late)
    assert order == ["0", "1", "2", "3", "late"]


# ---- what breaks


async def test_a_process_that_dies_is_replaced(options, stand_in_acp):
    """S0-34: its turns are told, each with one Done; the next conversation knows nothing of it."""
    async with Pool(stand_in_acp("waiting at Go"), size=1) as pool:
        await ask("Hi", options, via=pool)
        (old,) = pids(pool)
        async with connect(options, via=pool) as one, connect(options, via=pool) as two:
            both = asyncio.Barrier(2)
            endings = await asyncio.gather(*(killed(chat, old, both) for chat in (one, two)))
            await until(lambda: pids(pool) not in ([], [old], [None]))
            assert last(await told(one.turn("Again"))).status == "error"
        for events in endings:
            assert last(events).status == "error"
            assert [e.code for e in events if isinstance(e, Error)] == ["MISSING_RESULT"]
        assert (await ask("Hi", options, via=pool)).text == "Hello"
        report = pool.report()
        assert (report.crashed, report.started, report.recycled) == (1, 2, {})
    assert alone()


async def killed(chat: Any, pid: int, both: asyncio.Barrier) -> list[Any]:
    events = []
    async with asyncio.timeout(60), chat.turn("Go") as live:
        async for event in live:
            events.append(event)
            if isinstance(event, TextDelta) and await both.wait() == 0:
                os.kill(pid, signal.SIGKILL)
    return events


async def test_a_folder_that_went_away_harms_nobody_else(fake_gemini, options, transport, tmp_path):
    """Not even when it is the one that the process was started in."""
    fake_gemini.say("Hello").always()
    async with Pool(transport) as pool:
        async with connect(options, via=pool) as chat, chat.turn("Hi") as live:
            async for event in live:
                if isinstance(event, TextDelta):
                    options.cwd.rmdir()
        assert live.result.status == "success"
        assert (await ask("Hi", options.changed(cwd=tmp_path), via=pool)).text == "Hello"
        with pytest.raises(errors.InvalidOptions):
            await ask("Hi", options, via=pool)
        assert pool.report().started == 1


async def test_a_process_that_dies_after_its_folder_is_no_exception_in_a_callback(
    options, calm, tmp_path
):
    """Nobody can start another one there, and nobody is told so by a traceback."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    async with Pool(calm) as pool:
        await ask("Hi", options, via=pool)
        (old,) = pids(pool)
        Path(options.cwd).rmdir()
        os.kill(old, signal.SIGKILL)
        await until(lambda: pool.report().crashed)
        assert (await ask("Hi", options.changed(cwd=tmp_path), via=pool)).text == "Hello"
    assert alone()
    assert not complaints


async def test_an_idle_process_that_died_is_not_lent(options, calm):
    """Health is looked at before a place is given: even in the moment after a kill."""
    async with Pool(calm) as pool:
        await ask("Hi", options, via=pool)
        (old,) = pids(pool)
        os.kill(old, signal.SIGKILL)
        while psutil.pid_exists(old):
            time.sleep(0.005)  # The loop must not hear of it before the next line asks.
        assert (await ask("Hi", options, via=pool)).text == "Hello"
        assert pool.report().crashed == 1


async def test_a_program_that_dies_at_once_is_not_started_for_ever(stand_in_acp, tmp_path):
    async with Pool(stand_in_acp("dying at once")) as pool:
        events = await told(run("Hi", Options(cwd=tmp_path, home=tmp_path), via=pool))
        assert last(events).status == "error"
        await until(lambda: not pids(pool))
        assert pool.report().started == 1
        assert pool.report().crashed == 1


async def test_a_program_that_never_says_hello_is_not_lent_again(stand_in_acp, tmp_path):
    options = Options(cwd=tmp_path, home=tmp_path)
    async with Pool(stand_in_acp("silent", start_timeout=0.3)) as pool:
        for _ in range(2):
            events = await told(run("Hi", options, via=pool))
            assert [e.code for e in events if isinstance(e, Error)] == ["START_TIMEOUT"]
        assert pool.report().recycled == {"silence": 2}


@pytest.mark.parametrize("spare", [False, True])
async def test_a_frozen_process_is_replaced_before_it_is_lent(options, calm, tmp_path, spare):
    """However little time the next one has, and though the session made ahead is not for it."""
    async with Pool(calm, size=1, spare=spare) as pool:
        await ask("Hi", options, via=pool)
        (frozen,) = pids(pool)
        os.kill(frozen, signal.SIGSTOP)
        await until(lambda: psutil.Process(frozen).status() == psutil.STATUS_STOPPED)
        result = await ask("Hi", options.changed(cwd=tmp_path, timeout=20), via=pool)
        assert result.text == "Hello"
        assert pool.report().recycled == {"silence": 1}
    assert alone()


async def test_a_process_that_hears_nothing_is_replaced_after_one_timeout(stand_in_acp, tmp_path):
    """Long before start_timeout: who leaves without a session leaves a doubt behind."""
    options = Options(cwd=tmp_path, home=tmp_path)
    async with Pool(stand_in_acp("deaf after one"), size=1, spare=False) as pool:
        await ask("Hi", options, via=pool)
        with pytest.raises(errors.RunTimeout):
            await ask("Hi", options.changed(timeout=1), via=pool)
        assert (await ask("Hi", options.changed(timeout=20), via=pool)).text == "Hello"
        assert pool.report().recycled == {"silence": 1}
    assert alone()


async def test_a_process_that_is_only_slow_is_kept(stand_in_acp, tmp_path):
    """It answers other questions while it opens a session."""
    options = Options(cwd=tmp_path, home=tmp_path)
    async with Pool(stand_in_acp("slow to open"), size=1, spare=False) as pool:
        await pool.warm(options)
        with pytest.raises(errors.RunTimeout):
            await ask("Hi", options.changed(timeout=0.2), via=pool)
        assert (await ask("Hi", options, via=pool)).text == "Hello"
        assert pool.report().recycled == {}


async def test_a_process_that_hears_no_cancel_is_replaced(stand_in_acp, tmp_path):
    options = Options(cwd=tmp_path, home=tmp_path)
    async with Pool(stand_in_acp("deaf"), spare=False) as pool:
        async with run("Hi", options, via=pool) as live:
            async for event in live:
                if isinstance(event, TextDelta):
                    await live.cancel()
        assert live.result.status == "interrupted"
        assert pool.report().crashed == 1


async def test_a_cli_that_is_not_there_is_told_to_whoever_asks(tmp_path, options):
    async with Pool(Acp(executable=tmp_path / "nothing")) as pool:
        for _ in range(2):
            with pytest.raises(errors.CliNotFound):
                await ask("Hi", options, via=pool)
        assert pool.report().recycled == {"not started": 2}
        assert not pids(pool)
    assert alone()


# ---- the block


async def test_leaving_the_block_ends_what_runs(options, stand_in_acp):
    """S0-34: a turn in flight is told, one Done; nothing is left."""
    async with Pool(stand_in_acp("deaf")) as pool:
        chat = await connect(options, via=pool).__aenter__()
        live = await chat.turn("Go").__aenter__()
        events = []
        async for event in live:
            events.append(event)
            if isinstance(event, TextDelta):
                break
        (pid,) = pids(pool)
    assert not psutil.pid_exists(pid)
    async with asyncio.timeout(20):
        events += [event async for event in live]
        assert last(events).status == "error"
        await live.__aexit__()
        await chat.__aexit__()
    assert alone()


async def test_a_pool_is_used_in_its_block_and_in_its_loop(options, transport):
    pool = Pool(transport)
    with pytest.raises(errors.GeminorumError, match="not open"):
        await ask("Hi", options, via=pool)
    async with pool:
        with pytest.raises(errors.GeminorumError, match="already open"):
            await pool.__aenter__()
        with pytest.raises(errors.GeminorumError, match="another event loop"):
            await asyncio.to_thread(sync.ask, "Hi", options, via=pool)


async def test_who_waits_for_a_place_is_told_that_the_pool_is_closed(options, calm):
    async with Pool(calm, size=1, at_once=1) as pool:
        chat = await connect(options, via=pool).__aenter__()
        waiting = asyncio.create_task(ask("Hi", options, via=pool))
        await until(lambda: pool.report().waiting == 1)
    with pytest.raises(errors.GeminorumError, match="not open"):
        await waiting
    await chat.__aexit__()
    assert alone()


async def test_leaving_while_a_process_is_being_started(fake_gemini, options, transport):
    async with Pool(transport) as pool:
        starting = asyncio.create_task(ask("Hi", options, via=pool))
        await until(lambda: pool.report().started)
    with pytest.raises(errors.GeminorumError):
        async with asyncio.timeout(30):
            await starting
    assert alone()


async def test_leaving_while_a_session_is_being_opened(stand_in_acp, tmp_path):
    """Before the program has said hello: who waits for it is told so."""
    options = Options(cwd=tmp_path, home=tmp_path)
    async with Pool(stand_in_acp("silent")) as pool:
        starting = asyncio.create_task(ask("Hi", options, via=pool))
        await until(lambda: pool.report().conversations)
    with pytest.raises(errors.GeminorumError):
        async with asyncio.timeout(30):
            await starting


async def test_a_cancelled_block_leaves_nothing(options, stand_in_acp):
    async def block() -> None:
        async with Pool(stand_in_acp("telling")) as pool:
            await ask("Hi", options, via=pool)

    task = asyncio.create_task(block())
    await until((options.cwd / "said").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alone()


def test_without_await(options, calm):
    """The same from threads: the pool's loop is everybody's."""
    with sync.Pool(calm, size=1) as pool:
        pool.warm(options)
        with sync.connect(options, via=pool) as chat:
            assert chat.ask("Hi").text == "Hello"
            with sync.run("Hi", options, via=pool) as live:
                assert last(list(live)).status == "success"
        assert sync.ask("Hi", options, via=pool).text == "Hello"
        assert (pool.report().started, pool.report().turns) == (1, 3)
        with pytest.raises(errors.GeminorumError, match="already open"):
            pool.__enter__()


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ({"size": 0}, "whole number"),
        ({"at_once": 1.5}, "whole number"),
        ({"max_sessions": True}, "whole number"),
        ({"max_tool_calls": 0}, "whole number"),
        ({"wait": 0}, "more than 0"),
        ({"max_age": -1}, "more than 0"),
        ({"max_memory_mb": float("nan")}, "more than 0"),
        ({"transport": Api()}, "Pool\\(Acp"),
    ],
)
def test_limits_that_make_no_sense_are_refused(how, hint):
    with pytest.raises(errors.InvalidOptions, match=hint):
        Pool(**how)


@pytest.mark.parametrize(
    ("file", "trust", "dotenv", "alone_there"),
    [
        (None, None, False, False),
        (".gemini/settings.json", True, False, True),
        (".gemini/settings.json", False, False, True),
        ("src/settings.json", None, False, False),
        (".gemini/.env", None, False, True),
        (None, None, True, True),
    ],
)
def test_a_folder_whose_files_hold_for_the_process_is_alone_in_it(
    options, tmp_path, file, trust, dotenv, alone_there
):
    """What one tenant's folder says must not hold for another's."""
    if file is not None:
        (Path(options.cwd) / file).parent.mkdir(parents=True)
        (Path(options.cwd) / file).write_text("{}")
    here = options.changed(trust_workspace=trust)
    there = here.changed(cwd=tmp_path)
    acp = Acp(dotenv=dotenv)
    assert (key_of(acp, here) != key_of(acp, there)) is alone_there


def test_so_is_a_folder_behind_a_link_with_such_files_above_it(options, tmp_path):
    (tmp_path / "clone/src").mkdir(parents=True)
    (tmp_path / "clone/.gemini").mkdir()
    (tmp_path / "clone/.gemini/.env").touch()
    (tmp_path / "link").symlink_to(tmp_path / "clone/src")
    here, there = options.changed(cwd=tmp_path / "link"), options.changed(cwd=tmp_path)
    assert key_of(Acp(), here) != key_of(Acp(), there)


async def test_whoever_decides_does_so_for_the_right_guest(options, stand_in_acp):
    """In the context of the turn, not of whoever had the process started."""
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")
    seen = []

    async def decide(request):
        seen.append(who.get())
        return True

    async def guest(name):
        who.set(name)
        assert "proceed_once" in (await ask("Go", options, via=pool)).text

    async with Pool(stand_in_acp("asking", decide=decide), size=1) as pool:
        await asyncio.create_task(guest("alice"))
        await asyncio.create_task(guest("bob"))
        assert len(pids(pool)) == 1
    assert seen == ["alice", "bob"]


async def test_an_ordinary_end_is_no_crash(options, calm):
    async with Pool(calm) as pool:
        chat = connect(options, via=pool)
        await chat.__aenter__()
        await chat.ask("Hi")
    await chat.__aexit__()
    assert pool.report().crashed == 0


async def test_warming_up_has_its_limit_and_its_words(stand_in_acp, tmp_path):
    options = Options(cwd=tmp_path, home=tmp_path)
    async with Pool(stand_in_acp("silent", start_timeout=0.3)) as pool:
        with pytest.raises(errors.StartTimeout):
            await pool.warm(options)
    async with Pool(stand_in_acp("dying at once")) as pool:
        with pytest.raises(errors.ProtocolError):
            await pool.warm(options)


def test_a_pool_goes_into_via_like_every_transport():
    for verb in (connect, sync.connect):
        assert "pool" not in inspect.signature(verb).parameters


# ---- all of it at once


TURNS, CHATS = 40, 6


async def test_many_turns_with_cancels_a_kill_and_slow_answers(
    fake_gemini, options, transport, calm
):
    """S0-34: each ends in one Done; no process, task or descriptor is left; the pool is whole."""
    # The first start of a process makes the server of its keepers, which stays.
    await ask("Hi", options, via=calm)
    dice, before = random.Random(6), descriptors()
    turns = iter(range(TURNS))
    endings: list[Done] = []
    kills = 0

    async def chatting(pool: Pool) -> None:
        for first in turns:
            # A chat of a few turns, then another.
            async with connect(options.changed(approval="yolo"), via=pool) as chat:
                for number in chain([first], islice(turns, dice.randrange(7))):
                    endings.append(last(await one_turn(chat, number)))

    async def one_turn(chat: Any, number: int) -> list[Any]:
        script(fake_gemini.when(f"turn {number}."), number)
        async with chat.turn(f"turn {number}.") as live:
            reading = asyncio.create_task(_all(live))
            if dice.random() < 0.3:
                await asyncio.sleep(dice.random() * 0.2)
                await live.cancel()
            return await reading

    def script(rule: Any, number: int) -> None:
        kind = dice.randrange(4)
        if kind == 0:
            rule.say("Slowly", delay=dice.random() * 0.5)
        elif kind == 1:
            rule.call("write_file", file_path=f"{number}", content="x").say("Written")
        else:
            rule.say("Quickly")

    def victims(pool: Pool) -> list[int]:
        # One that is on its way out for another reason would not count as crashed, and the end of
        # one without a conversation would be nobody's error.
        busy = [one for one in pool.report().processes if one.conversations and one.sessions < 25]
        return [one.pid for one in busy if one.pid is not None and one.retired is None]

    async def killing(pool: Pool) -> None:
        nonlocal kills
        await until_long(lambda: len(endings) >= TURNS // 2)
        await until_long(lambda: victims(pool))
        os.kill(dice.choice(victims(pool)), signal.SIGKILL)
        kills += 1

    async with (
        asyncio.timeout(80),
        Pool(transport, size=2, at_once=CHATS // 2, max_sessions=30) as pool,
    ):
        async with asyncio.TaskGroup() as group:
            group.create_task(killing(pool))
            for _ in range(CHATS):
                group.create_task(chatting(pool))
        report = pool.report()
        fake_gemini.when("the last").say("Still here")
        assert (await ask("the last", options, via=pool)).text == "Still here"
        assert len(pool.report().processes) <= 2
    assert len(endings) == TURNS == report.turns
    assert {ending.status for ending in endings} == {"success", "interrupted", "error"}
    assert report.crashed == kills == 1
    assert report.waiting == 0
    assert alone()
    # The API of the test lives in this process; it learns a moment later who has hung up.
    await until(lambda: descriptors() <= before)


async def until_long(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0.01)


async def _all(live: Any) -> list[Any]:
    return [event async for event in live]
