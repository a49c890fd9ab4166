"""CLIs that were started ahead leave nothing behind, however the block with them ends.

A stand-in plays the CLI: what is tested here is the life of its processes.
"""

import asyncio
import gc
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from geminorum import Acp, Api, Cli, Options, Pool, ask, connect, errors, run, sync
from geminorum.runtime.off_loop import run_off_loop
from geminorum.sessions.places import was_used
from geminorum.system import owned_folder
from geminorum.transports.cli import spares
from geminorum.transports.launch import overlay
from geminorum.transports.launch.control_place import candidates
from geminorum.transports.launch.unused_session import UnusedSession
from geminorum.transports.process import tree as process
from stand_in import make_package

WENT_AHEAD = "the prompt went to a CLI that was started"


@pytest.fixture(autouse=True)
def no_midnight(monkeypatch) -> None:
    """A test may run while a quarter of an hour ends."""
    monkeypatch.setattr(spares, "_quarter_of_the_hour", lambda: 0)


@pytest.fixture
def program(tmp_path) -> Path:
    return make_package(tmp_path / "package")


@pytest.fixture
def held(tmp_path) -> Path:
    """While this file is there, CLIs stay in the middle of their start."""
    return tmp_path / "held"


@pytest.fixture
def home(tmp_path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def options(home, held, tmp_path) -> Options:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, home=home, env={"GEMINI_API_KEY": "x" * 30, "STAND_IN_HELD": str(held)})


@pytest.fixture
def said(caplog) -> Callable[[str], list[str]]:
    """What was logged about CLIs started ahead that begins so."""
    caplog.set_level(logging.DEBUG, "geminorum.spares")
    return lambda start: [text for text in caplog.messages if text.startswith(start)]


def sessions_in(home: Path) -> list[Path]:
    return sorted(home.rglob("session-*"))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def waiting(cli: Cli, count: int = 1) -> spares.Spare:
    assert cli._spares is not None
    await until(lambda: len(cli._spares.waiting) >= count)
    return cli._spares.waiting[0]


async def one_held(held: Path) -> int:
    """The process that stays in the middle of its start."""
    await until(lambda: [*held.parent.glob(f"{held.name}-*")])
    (name,) = held.parent.glob(f"{held.name}-*")
    return int(name.name.rpartition("-")[2])


def go_on(held: Path, pid: int) -> None:
    held.with_name(f"{held.name}-{pid}").unlink()


async def use_and_hold_the_next(live, held: Path) -> str:
    """Takes a run to its end; the CLI that is started ahead after it stays in its start."""
    async with live:
        async for _ in live:
            held.touch()
    return live.result.text


def open_descriptors() -> Counter[str]:
    """What they lead to, without numbers."""
    links = Path("/proc/self/fd").iterdir()
    return Counter(re.sub(r"\d+", "", str(link.readlink())) for link in links if link.is_symlink())


@asynccontextmanager
async def nothing_left(program: Path, options: Options, monkeypatch) -> AsyncIterator[None]:
    """Fails if the block leaves a descriptor, a task, a folder or an unused session. A process is
    missed after every test."""
    folder = options.cwd.parent / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    await ask("What is opened once stays open", options, via=Cli(executable=program))
    tasks, before = asyncio.all_tasks(), open_descriptors()
    yield
    assert asyncio.all_tasks() == tasks
    # A thread closes the last, whenever it comes to that.
    await until(lambda: not open_descriptors() - before)
    assert [*folder.iterdir()] == []
    assert all(map(was_used, sessions_in(options.home)))


# ---- a session that is resumed


async def test_a_chat_that_is_left_while_its_next_cli_starts_keeps_its_session(
    program, options, home, held, monkeypatch
):
    """The CLI begins an empty file beside the session: for another CLI, a reason to delete both."""
    cli = Cli(executable=program)
    async with nothing_left(program, options, monkeypatch), connect(options, via=cli) as chat:
        await use_and_hold_the_next(chat.turn("Precious"), held)
        await one_held(held)
        assert len(sessions_in(home)) == 3
    texts = [file.read_text() for file in sessions_in(home)]
    assert ["Precious" in text for text in texts].count(True) == 1
    assert len(texts) == 2


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_file_that_a_killed_cli_had_only_opened_is_removed(options, home, is_resumed):
    chats = home / ".gemini/tmp/project/chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text(str(options.cwd))
    used, empty, other = (chats / f"session-{n}-{n // 10 * 11111111}.jsonl" for n in (10, 11, 20))
    records = {"sessionId": "11111111-1"}, {"id": "1", "type": "user", "content": "Precious"}
    used.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    for file in (empty, other):
        file.touch()
    UnusedSession(str(home), str(options.cwd), "11111111-1", is_resumed).remove()
    assert sessions_in(home) == [used, other]


KILLED = """
    import asyncio, sys
    from pathlib import Path
    from geminorum import Cli, Options, connect

    async def main(program, cwd, home, held):
        options = Options(cwd=cwd, home=home, env={"STAND_IN_HELD": held})
        async with connect(options, via=Cli(executable=program)) as chat:
            async with chat.turn("Precious") as live:
                async for _ in live:
                    Path(held).touch()
            await asyncio.sleep(60)

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_chat_left_beside_its_session_is_removed(program, options, home, held):
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    command += [str(program), str(options.cwd), str(home), str(held)]
    env = {**os.environ, "GEMINI_API_KEY": "x" * 30}
    with subprocess.Popen(command, env=env) as us:
        pid = await one_held(held)
        assert len(sessions_in(home)) == 2
        us.kill()
    await until(lambda: is_swept(home))
    assert not psutil.pid_exists(pid)
    (kept,) = sessions_in(home)
    assert "Precious" in kept.read_text()


async def test_an_unused_session_is_noted_before_its_cli_starts(
    program, options, held, monkeypatch
):
    """A kill -9 between the two would leave the session behind for good."""
    started: list[Path] = []
    note_in = UnusedSession.note_in

    def note_late(unused: UnusedSession, folder: Path) -> None:
        time.sleep(0.5)  # More than enough for a CLI that was started before.
        started.extend(held.parent.glob(f"{held.name}-*"))
        note_in(unused, folder)

    monkeypatch.setattr(UnusedSession, "note_in", note_late)
    async with connect(options, via=Cli(executable=program)) as chat:
        await use_and_hold_the_next(chat.turn("Hi"), held)
        await one_held(held)
    assert started == []


def is_swept(home: Path) -> bool:
    """Does what each run does first, and says whether one session file is left."""
    owned_folder.sweep(overlay._PREFIX, candidates(), UnusedSession.remove_noted_in)
    return len(sessions_in(home)) == 1


# ---- several event loops


async def test_a_run_in_another_event_loop_starts_cold(program, options, said):
    async with Cli(executable=program, spare=1) as cli:
        # Also the first of all runs: the next CLIs are at home where the block is.
        for _ in range(2):
            assert (await asyncio.to_thread(sync.ask, "Elsewhere", options, via=cli)).ok
        assert said(WENT_AHEAD) == []
        await ask("Here", options, via=cli)
        spare = await waiting(cli)
        elsewhere = await asyncio.to_thread(sync.ask, "Elsewhere", options, via=cli)
        assert elsewhere.text != str(spare.pid)
        assert (await ask("Here", options, via=cli)).text == str(spare.pid)
    assert len(said("the run starts cold: it runs in another event loop")) == 3


# ---- a block that is left


@pytest.mark.parametrize("times", [1, 5])
async def test_a_block_whose_end_is_cancelled_leaves_nothing(program, options, monkeypatch, times):
    async def block() -> None:
        async with Cli(executable=program, spare=2) as cli:
            await ask("Hello", options, via=cli)
            await waiting(cli, 2)
            for number in range(times):
                loop.call_later(number / 1000, task.cancel)

    loop = asyncio.get_running_loop()
    async with nothing_left(program, options, monkeypatch):
        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_program_that_ends_while_it_leaves_the_block_leaves_no_session(program, options, home):
    """As on Ctrl-C: `asyncio.run` cancels every task that is left."""

    def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    async def main() -> None:
        async with Cli(executable=program, spare=2) as cli:
            await ask("Hello", options, via=cli)
            await waiting(cli, 2)
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, cancel_all)  # Once the CLIs are being ended.

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert len(sessions_in(home)) == 1


async def test_a_block_that_is_left_before_a_start_has_begun_leaves_no_descriptor(
    program, options, monkeypatch
):
    async with nothing_left(program, options, monkeypatch):
        is_free = threading.Event()
        async with Cli(executable=program, spare=2) as cli, cli.open(options) as conversation:
            others = [asyncio.create_task(run_off_loop(is_free.wait)) for _ in range(4)]
            await asyncio.sleep(0)
            cli._spares.refill(conversation.order_for(options))
            await until(lambda: cli._spares._starting)
            asyncio.get_running_loop().call_later(0.05, is_free.set)
        await asyncio.gather(*others)


@pytest.mark.parametrize("ends", ["at its end", "by an exception"])
async def test_a_block_that_is_left_while_they_start_leaves_nothing(
    program, options, held, monkeypatch, ends
):
    async def block() -> None:
        async with Cli(executable=program, spare=2) as cli:
            await use_and_hold_the_next(run("Hello", options, via=cli), held)
            await one_held(held)
            if ends == "by an exception":
                raise ZeroDivisionError

    async with nothing_left(program, options, monkeypatch):
        with suppress(ZeroDivisionError):
            await block()


# ---- something happens to those that wait


async def test_one_that_dies_while_it_waits_leaves_nothing(program, options, monkeypatch):
    async with nothing_left(program, options, monkeypatch), Cli(executable=program, spare=1) as cli:
        await ask("Hello", options, via=cli)
        spare = await waiting(cli)
        os.kill(spare.pid, signal.SIGKILL)
        await until(lambda: spare.process.child.exit_code is not None)
        assert (await ask("Hello", options, via=cli)).text != str(spare.pid)
        os.kill((await waiting(cli)).pid, signal.SIGKILL)


async def test_one_whose_folder_is_deleted_leaves_nothing(program, options, monkeypatch):
    async with nothing_left(program, options, monkeypatch), Cli(executable=program, spare=1) as cli:
        await ask("Hello", options, via=cli)
        await waiting(cli)
        shutil.rmtree(options.cwd)
        with pytest.raises(errors.InvalidOptions, match="is not a folder"):
            await ask("Hello", options, via=cli)


async def test_one_that_is_killed_with_a_prompt_that_nobody_else_can_take_leaves_nothing(
    program, options, monkeypatch
):
    send = spares.Spare.send

    async def send_and_kill(self: spares.Spare, prompt: bytes) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        await send(self, prompt)
        os.kill(self.pid, signal.SIGKILL)
        shutil.rmtree(options.cwd)  # Where the next would have to start.

    monkeypatch.setattr(spares.Spare, "send", send_and_kill)
    async with nothing_left(program, options, monkeypatch), Cli(executable=program, spare=1) as cli:
        await ask("Hello", options, via=cli)
        await waiting(cli)
        with pytest.raises(errors.SetupError):
            await ask("Hello", options, via=cli)


async def test_one_that_cannot_be_started_leaves_nothing(program, options, said, monkeypatch):
    """A full process table, for one."""

    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async with (
        nothing_left(program, options, monkeypatch),
        Cli(executable=program, spare=2) as cli,
        cli.open(options) as conversation,
    ):
        with monkeypatch.context() as patched:
            patched.setattr(process, "start_program", full)
            await cli._spares.warm(conversation.order_for(options))
        assert cli._spares.waiting == []
        assert (await ask("Hello", options, via=cli)).ok
    assert len(said("a CLI that was to be started ahead did not start")) == 2


async def test_one_that_was_used_is_forgotten(program, options):
    """Not kept for as long as it could have waited."""
    async with Cli(executable=program, spare=1) as cli:
        await ask("Hello", options, via=cli)
        used = weakref.ref(await waiting(cli))
        await ask("Hello", options, via=cli)
        gc.collect()
        assert used() is None


# ---- one that does not come to its start's end


async def test_a_run_does_not_wait_for_one_that_was_stopped_in_its_start(
    program, options, held, monkeypatch
):
    async with nothing_left(program, options, monkeypatch), Cli(executable=program, spare=1) as cli:
        await use_and_hold_the_next(run("Hello", options, via=cli), held)
        pid = await one_held(held)
        os.kill(pid, signal.SIGSTOP)
        assert (await ask("Hello", options, via=cli)).text != str(pid)
        await until(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_run_does_not_wait_long_for_one_that_is_stuck_in_its_start(
    program, options, held, said, monkeypatch, resumes
):
    monkeypatch.setattr(spares, "_WAIT_SECONDS", 0.05)
    async with nothing_left(program, options, monkeypatch):
        if resumes:
            first = await ask("First", options, via=Cli(executable=program))
            options = options.changed(resume=first.session_id)
        async with Cli(executable=program, spare=1) as cli:
            await use_and_hold_the_next(run("Hello", options, via=cli), held)
            pid = await one_held(held)
            assert (await ask("Hello", options, via=cli)).text != str(pid)
            await until(lambda: not psutil.pid_exists(pid))
    assert said("a CLI that was to be started ahead takes too long")


async def test_no_more_runs_wait_than_clis_start(program, options, held):
    async with Cli(executable=program, spare=1) as cli:
        await use_and_hold_the_next(run("Hello", options, via=cli), held)
        pid = await one_held(held)
        runs = [asyncio.create_task(ask("Hello", options, via=cli)) for _ in range(3)]
        await until(lambda: sum(one.done() for one in runs) == 2)
        go_on(held, pid)
        answers = [(await one).text for one in runs]
    assert answers.count(str(pid)) == 1


def test_a_pool_that_is_opened_again_starts_ahead_again(program, options, said):
    pool = Pool(Cli(executable=program), size=1, wait=60)

    async def use() -> None:
        async with pool:
            await pool.warm(options)
            assert (await ask("Hello", options, via=pool)).ok

    asyncio.run(use())
    asyncio.run(use())
    assert len(said(WENT_AHEAD)) == 2
    assert pool.report().started >= 2


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from geminorum import Options, sync
from stand_in import StandIn

def interrupt():
    while not stand_in.has_spoken:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)

folder = Path(sys.argv[1])
stand_in = StandIn(folder)
word = {"type": "message", "role": "assistant", "content": "I"}
lines = {"type": "init", "session_id": "s"}, word
signal.signal(signal.SIGINT, signal.default_int_handler)
with sync.opened(stand_in(*lines, stderr="late", hang=True)) as cli:
    threading.Thread(target=interrupt, daemon=True).start()
    sync.ask("Hello", Options(cwd=folder, home=folder), via=cli)
"""


def test_ctrl_c_in_a_block_shows_nothing_but_itself(tmp_path):
    """On its way out, the run still asks which secrets it must not show."""
    command = [sys.executable, "-c", INTERRUPTED, tmp_path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.stderr.count("Traceback") == 1


async def test_spares_that_no_block_keeps_are_told_of(program, options, said):
    await ask("Hello", options, via=Cli(executable=program, spare=2))
    (told,) = said("the run starts cold")
    assert "in a block, `async with" in told


@pytest.mark.parametrize("transport", [Api(), Acp()], ids=["api", "acp"])
def test_a_transport_without_processes_of_its_own_cannot_be_opened(transport):
    with pytest.raises(errors.InvalidOptions, match="outlive a run"):
        sync.opened(transport)
