"""However a run ends, nothing of it is left: no process, no file, no task."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from geminorum import Cli, Options, ToolUse, ask, sync
from geminorum import run as start
from geminorum.errors import GeminorumError, RunTimeout
from left_processes import TEST_MARK, marked_processes

INIT = {"type": "init", "session_id": "s-1", "model": "flash"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
RESULT = {"type": "result", "status": "success"}


def running() -> list[psutil.Process]:
    return marked_processes(os.environ[TEST_MARK])


def open_descriptors() -> int:
    gc.collect()  # What an earlier test has left to the collector is not ours to count.
    return len(list(Path("/proc/self/fd").iterdir()))


def nothing_left() -> bool:
    """Dead within a second after the block."""
    deadline = time.monotonic() + 1.0
    while running() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not running()


async def read_until_tool(live) -> None:
    async for event in live:
        if isinstance(event, ToolUse):
            # The call is announced before it runs; wait for the shell itself.
            while not any("sleep" in " ".join(p.cmdline()) for p in running()):
                await asyncio.sleep(0.02)
            return


async def stumble(live) -> None:
    async with live:
        await anext(aiter(live))
        assert len(running()) >= 2
        raise ZeroDivisionError


@pytest.fixture
def sleeping(fake_gemini, tmp_path):
    """Options for a real run in which the model calls `sleep 300` in the shell tool."""
    fake_gemini.call("run_shell_command", command="sleep 300")
    fake_gemini.say("Awake.")
    return Options(env=fake_gemini.env, cwd=tmp_path, model="gemini-2.5-flash", approval="yolo")


@pytest.mark.gemini_cli
class TestTheRealCliInItsShellTool:
    async def test_cancel_ends_the_whole_tree(self, sleeping, real_transport):
        """S0-27, S0-28, D-3, D-4: cancelling a real run ends the CLI and its shell command; the
        session can be resumed."""
        async with start("Sleep", sleeping, via=real_transport) as live:
            await read_until_tool(live)
            await live.cancel()
            rest = [event async for event in live]
        assert nothing_left()
        assert rest[-1].status == "interrupted"
        assert live.result.session_id

    def test_ctrl_c_ends_the_whole_tree(self, sleeping, real_transport, tmp_path):
        program = f"""
            import os, signal, time
            from geminorum import Cli, Options, sync, ToolUse
            live = sync.run("Sleep", Options.from_dict({sleeping_as_data(sleeping)!r}),
                            via=Cli(executable={str(real_transport.executable)!r}))
            live.__enter__()
            for event in live:
                if isinstance(event, ToolUse):
                    time.sleep(0.5)
                    os.kill(os.getpid(), signal.SIGINT)
            """
        assert exit_code_of(program, tmp_path) != 0
        assert nothing_left()


def sleeping_as_data(options: Options) -> dict:
    return {
        "env": dict(options.env),
        "cwd": str(options.cwd),
        "model": options.model,
        "approval": options.approval,
    }


def exit_code_of(program: str, folder: Path) -> int:
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    return subprocess.run([sys.executable, file], capture_output=True, timeout=60).returncode


class TestAProgramWithAShellTool:
    """The stand-in with a grandchild in a session of its own, as the real CLI has one above."""

    @pytest.fixture
    def at_its_tool(self, stand_in) -> Cli:
        return stand_in(INIT, hang=True, grandchildren=("tool",))

    async def test_a_timeout_ends_the_whole_tree(self, at_its_tool):
        """S1-39, S1-55, B-12: a run that exceeds its timeout leaves no process, and keeps its
        session id."""
        with pytest.raises(RunTimeout, match="timed out after 3 s") as caught:
            await ask("Sleep", Options(timeout=3), via=at_its_tool)
        assert nothing_left()
        assert caught.value.result.session_id == "s-1"

    async def test_an_exception_in_the_loop_ends_the_whole_tree(self, at_its_tool):
        live = start("Sleep", via=at_its_tool)
        with pytest.raises(ZeroDivisionError):
            await stumble(live)
        assert nothing_left()
        assert live.result.status == "interrupted"

    async def test_a_dropped_iterator_ends_the_whole_tree(self, at_its_tool):
        await anext(aiter(start("Sleep", via=at_its_tool)))
        assert len(running()) >= 2
        gc.collect()
        await asyncio.sleep(0.5)
        assert nothing_left()

    async def test_a_cancelled_task_ends_the_whole_tree(self, at_its_tool):
        task = asyncio.create_task(ask("Sleep", via=at_its_tool))
        while not any("sleep" in " ".join(p.cmdline()) for p in running()):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nothing_left()

    @pytest.mark.parametrize("verb", ["sys.exit(3)", "1 / 0"])
    def test_the_interpreters_exit_ends_the_whole_tree(self, at_its_tool, verb, tmp_path):
        program = f"""
            import sys
            from geminorum import Cli, sync
            live = sync.run("Sleep", via=Cli(executable={str(at_its_tool.executable)!r}))
            live.__enter__()
            for event in live:
                {verb}
            """
        assert exit_code_of(program, tmp_path) != 0
        assert nothing_left()


class TestStubbornPrograms:
    async def test_one_that_ignores_term_is_killed_after_the_grace(self, stand_in):
        """S1-12, S1-39, D-3: a process that ignores SIGTERM gets SIGKILL after the grace period,
        and its text is kept."""
        via = stand_in(INIT, HELLO, hang=True, ignore_term=True, grace=0.3)
        async with start("Hi", via=via) as live:
            await anext(aiter(live))
            await live.cancel()
            events = [event async for event in live]
        assert nothing_left()
        assert [event.type for event in events] == ["text_delta", "text", "done"]
        assert (events[-1].status, events[-1].exit_code) == ("interrupted", -9)

    @pytest.mark.parametrize("kind", ["tool", "stubborn"])
    async def test_grandchildren_in_sessions_of_their_own_are_found(self, stand_in, kind):
        """D-4: grandchildren that left the process group end with the run."""
        via = stand_in(INIT, hang=True, grandchildren=(kind, kind), grace=0.3)
        async with start("Hi", via=via) as live:
            await anext(aiter(live))
            async with asyncio.timeout(30):  # Those that it has just started take their mark along.
                while len(running()) < 3:
                    await asyncio.sleep(0.01)
        assert nothing_left()

    async def test_a_grandchild_that_cleared_its_environment_is_found_by_its_parent(self, stand_in):
        via = stand_in(INIT, hang=True, grandchildren=("bare",))
        async with start("Hi", via=via) as live:
            await anext(aiter(live))
            grandchild = psutil.Process(stand_in.call["children"][0])
        # An orphan may stay a zombie until its new parent looks; that is no life.
        assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE

    async def test_background_jobs_do_not_outlive_a_run_that_ended_well(self, stand_in):
        via = stand_in(INIT, HELLO, RESULT, grandchildren=("tool",))
        result = await ask("Hi", via=via)
        assert result.ok
        assert nothing_left()

    async def test_a_second_cancellation_cannot_skip_the_kill(self, stand_in):
        via = stand_in(INIT, hang=True, ignore_term=True, grace=60)
        task = asyncio.create_task(ask("Hi", via=via))
        while not running():
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.2)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nothing_left()

    async def test_a_timeout_holds_while_the_consumer_is_busy(self, stand_in):
        via = stand_in(INIT, hang=True)
        async with start("Hi", Options(timeout=5), via=via) as live:
            assert (await anext(aiter(live))).type == "init"
            while running():
                await asyncio.sleep(0.02)
            events = [event async for event in live]
        assert [(e.type, getattr(e, "code", None)) for e in events] == [
            ("error", "TIMEOUT"),
            ("done", None),
        ]

    def test_a_timeout_holds_while_sync_code_is_busy(self, stand_in):
        via = stand_in(INIT, hang=True)
        with sync.run("Hi", Options(timeout=5), via=via) as live:
            assert next(iter(live)).type == "init"
            deadline = time.monotonic() + 15
            while running() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not running()

    async def test_a_timeout_after_the_end_changes_nothing(self, stand_in):
        via = stand_in(INIT, HELLO, RESULT)
        async with start("Hi", Options(timeout=5), via=via) as live:
            await asyncio.sleep(5.5)
            events = [event async for event in live]
        assert events[-1].status == "success"

    async def test_a_child_killed_by_a_signal_is_no_success(self, stand_in):
        """D-16, D-20: a CLI that was killed gives an error that names the signal; its text is
        kept."""
        async with start("Hi", via=stand_in(INIT, HELLO, signal=9)) as live:
            events = [event async for event in live]
        assert (events[-1].status, events[-1].exit_code) == ("error", -9)
        assert "SIGKILL" in live.result.errors[-1].message
        assert live.result.text == "Hello"


class TestForgottenRuns:
    """Runs that nobody ended: scripts that stop in the middle of everything."""

    @pytest.mark.parametrize(
        "script",
        [
            """
            events = iter(sync.run("Hi", via=transport))
            print(next(events).type)
            """,
            """
            live = sync.run("Hi", via=transport)
            live.__enter__()
            print(next(iter(live)).type)
            """,
            """
            async def main():
                global events
                events = aiter(run("Hi", via=transport))
                print((await anext(events)).type)
            asyncio.run(main())
            """,
            """
            async def main():
                global live
                live = run("Hi", via=transport)
                await live.__aenter__()
                print((await anext(aiter(live))).type)
            asyncio.run(main())
            """,
        ],
        ids=["sync iterator", "sync block", "async iterator", "async block"],
    )
    def test_a_script_that_ends_in_mid_run_ends_everything(self, stand_in, tmp_path, script):
        via = stand_in(INIT, hang=True, grandchildren=("tool",))
        room = tmp_path / "room"
        room.mkdir()
        program = tmp_path / "program.py"
        program.write_text(
            "import asyncio\nfrom geminorum import Cli, run, sync\n"
            f"transport = Cli(executable={str(via.executable)!r}, grace=0.5)\n"
            + textwrap.dedent(script)
        )
        env = {**os.environ, "TMPDIR": str(room)}
        done = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=30, env=env
        )
        assert nothing_left()
        assert (done.stdout, done.stderr, done.returncode) == ("init\n", "", 0)
        assert list(room.iterdir()) == []


class TestNothingLeaks:
    async def test_many_runs_leave_no_process_descriptor_task_or_file(
        self, stand_in, tmp_path, monkeypatch
    ):
        room = tmp_path / "room"
        room.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(room))
        await ask("warm up", via=stand_in(INIT, HELLO, RESULT))
        before = open_descriptors()
        for number in range(12):  # With a tool and without, to the end and not.
            via = stand_in(INIT, HELLO, RESULT, grandchildren=("tool",) if number % 10 == 0 else ())
            async with start("Hi", via=via) as live:
                async for _ in live:
                    if number % 3 == 0:
                        break
        assert open_descriptors() <= before
        assert list(room.iterdir()) == []
        assert len(asyncio.all_tasks()) == 1
        assert not running()

    async def test_a_failed_start_leaves_nothing_behind(self, tmp_path, monkeypatch):
        room = tmp_path / "room"
        room.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(room))
        broken = tmp_path / "gemini"
        broken.write_bytes(b"\x7fELF nonsense")
        broken.chmod(0o755)
        # The first start of a process makes the server of its keepers, which stays.
        for _ in range(2):
            before = open_descriptors()
            with pytest.raises(GeminorumError, match="cannot start"):
                await ask("Hi", via=Cli(executable=broken))
        assert open_descriptors() <= before
        assert list(room.iterdir()) == []

    async def test_leaving_early_keeps_what_had_arrived(self, stand_in):
        via = stand_in(INIT, HELLO, {**HELLO, "content": " there"}, hang=True)
        async with start("Hi", via=via) as live:
            async for event in live:
                if event.type == "text_delta":
                    break
        assert live.result.text == "Hello there"
        assert live.result.status == "interrupted"

    async def test_a_loop_that_was_left_can_be_taken_up_again(self, stand_in):
        via = stand_in(INIT, HELLO, RESULT)
        async with start("Hi", via=via) as live:
            async for _ in live:
                break
            rest = [event.type async for event in live]
        assert rest == ["text_delta", "text", "done"]

    async def test_a_wait_that_was_cancelled_loses_no_event(self, stand_in):
        words = [{**HELLO, "content": f"word {number} "} for number in range(2000)]
        via = stand_in(INIT, *words, RESULT, chunk=4096, delay=0.001)
        texts, cancelled = [], 0
        async with start("Hi", via=via) as live:
            while True:
                reading = asyncio.create_task(live.read())
                await asyncio.sleep(0)
                # A read that was done before the cancel came keeps its result.
                cancelled += reading.cancel()
                try:
                    events = await reading
                except asyncio.CancelledError:
                    events = await live.read()
                texts += [event.text for event in events if event.type == "text_delta"]
                if not events:
                    break
        assert cancelled
        assert texts == [word["content"] for word in words]

    async def test_other_tasks_live_while_a_long_stream_is_read(self, stand_in):
        via = stand_in(INIT, *[HELLO] * 30_000, RESULT)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with start("Hi", via=via) as live:
            await asyncio.sleep(1)  # All of it is written by now.
            other = asyncio.create_task(tick())
            await asyncio.sleep(0)
            before = ticks
            async for _ in live:
                pass
            other.cancel()
        assert ticks > before

    async def test_two_runs_do_not_end_each_other(self, stand_in):
        slow = stand_in(INIT, HELLO, RESULT, delay=0.5, chunk=60)
        async with start("slow", via=slow) as first:
            await ask("quick", via=stand_in(INIT, HELLO, RESULT))
            events = [event async for event in first]
        assert events[-1].status == "success"


def test_where_the_program_is_called_from_does_not_matter(stand_in):
    """S1-26, S1-27: cwd, environment and prompt reach the program; stdin is closed."""
    via = stand_in(INIT, HELLO, RESULT)
    folder = Path(tempfile.mkdtemp())
    sync.ask("Hi there", Options(cwd=folder, env={"COLOUR": "blue"}), via=via)
    folder.rmdir()
    assert stand_in.call["stdin"] == "Hi there"
    assert stand_in.call["cwd"] == str(folder)
    assert stand_in.call["env"]["COLOUR"] == "blue"
    *flags, policy = stand_in.call["argv"]
    assert flags == ["--output-format=stream-json", "--skip-trust"]
    assert policy.startswith("--policy=")
