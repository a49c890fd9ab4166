"""CLIs that were started ahead of their prompts: quicker, and otherwise like any other run."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from chaos.spares import comparable

from geminorum import (
    Allow,
    Cli,
    Init,
    Options,
    PermissionRequest,
    Policy,
    Pool,
    ToolResult,
    ask,
    connect,
    errors,
    sync,
)
from geminorum import run as start
from geminorum.testing import FakeGemini
from geminorum.transports.cli import spares
from geminorum.transports.cli.transport import CliConversation
from geminorum.transports.launch.preloads.start_record import Look, StartRecord, State, state_of
from geminorum.transports.process.agent_lease import AGENT_LEASE
from stand_in import make_package

MODEL = "gemini-2.5-flash"
WENT_AHEAD = "the prompt went to a CLI that was started"
AHEAD = "a CLI that was started ahead"
NOT_USED = f"{AHEAD} is not used: "


@pytest.fixture(autouse=True)
def no_midnight(monkeypatch) -> None:
    """A test may run while a quarter of an hour ends."""
    monkeypatch.setattr(spares, "_quarter_of_the_hour", lambda: 0)


@pytest.fixture
def options(fake_gemini, tmp_path):
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model=MODEL, env=fake_gemini.env)


@pytest.fixture
def said(caplog) -> Callable[[str], list[str]]:
    """What was logged about CLIs started ahead that begins so."""
    caplog.set_level(logging.DEBUG, "geminorum.spares")
    return lambda start: [text for text in caplog.messages if text.startswith(start)]


@pytest.fixture
def quick_cli(tmp_path) -> Path:
    """A program that plays the CLI, for what does not depend on what the CLI does."""
    return make_package(tmp_path / "package")


@pytest.fixture
async def quick_ahead(quick_cli) -> AsyncIterator[Cli]:
    async with Cli(executable=quick_cli, spare=1, spare_age=600) as cli:
        yield cli


async def waiting(cli: Cli) -> spares.Spare:
    """The CLI that waits for the next prompt, once it does."""
    assert cli._spares is not None
    async with asyncio.timeout(60):
        while not cli._spares.waiting:
            await asyncio.sleep(0.01)
    return cli._spares.waiting[0]


async def first_run(fake: FakeGemini, options: Options, cli: Cli) -> spares.Spare:
    """A run, after which a CLI is started ahead for the next."""
    fake.say("First.")
    await ask("First", options, via=cli)
    return await waiting(cli)


async def start_ahead(cli: Cli, options: Options) -> spares.Spare:
    """A CLI that waits, without a run before it."""
    assert cli._spares is not None
    async with CliConversation(cli, options) as conversation:
        await cli._spares.warm(conversation.order_for(options))
    return await waiting(cli)


def sessions_in(home: Path) -> list[Path]:
    return sorted(home.rglob("session-*"))


# ---- a run


PROMPTS = ["\nHello\n\n", "/help me, @file, ä€😀 " + "word " * 60_000]


async def test_the_model_gets_the_same_request_as_from_a_cold_run(
    fake_gemini, options, real_transport, said, tmp_path, monkeypatch
):
    """One that was told to end costs no run; and none leaves anything."""
    (options.cwd / "GEMINI.md").write_text("Be brief.")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake_gemini.say("Hi.").always()
    async with Cli(executable=real_transport.executable, spare=1, spare_age=600) as ahead:
        spare = await start_ahead(ahead, options)
        os.kill(spare.pid, signal.SIGTERM)
        while spare.process.child.exit_code is None:
            await asyncio.sleep(0.01)
        # The first is a cold one.
        for number, prompt in enumerate([PROMPTS[0], *PROMPTS]):
            assert (await ask(prompt, options, via=ahead)).text == "Hi."
            assert len(said(WENT_AHEAD)) == number
            if number < len(PROMPTS):
                await waiting(ahead)
    cold, over_spare, other_over_spare = map(comparable, fake_gemini.requests)
    assert over_spare == cold
    told = [request.prompt for request in fake_gemini.requests]
    assert other_over_spare == cold.replace(*(json.dumps(text)[1:-1] for text in told[1:]))
    # As on a cold run, nothing in it is a command or a file.
    assert told[2] == "\u200b" + PROMPTS[1].replace("@", "\\@")
    assert said(NOT_USED) == [f"{NOT_USED}it has ended"]
    assert len(sessions_in(fake_gemini.home)) == 3
    assert [*tmp_path.glob("geminorum-*")] == []


async def test_each_run_has_a_session_and_a_process_of_its_own(
    fake_gemini, options, quick_ahead, said
):
    results, processes = [], []
    for number in range(3):
        if number:
            processes.append((await waiting(quick_ahead)).pid)
        results.append(await ask(f"Prompt {number}", options, via=quick_ahead))
    assert [result.text for result in results[1:]] == [str(pid) for pid in processes]
    assert len({result.session_id for result in results}) == 3
    assert len({result.text for result in results}) == 3
    assert not any(map(psutil.pid_exists, processes))
    assert len(said(WENT_AHEAD)) == 2


async def test_the_next_turn_of_a_conversation_starts_ahead(
    fake_gemini, options, real_transport, said
):
    """Unless somebody else goes on with the session meanwhile: then it is read again."""
    cli = Cli(executable=real_transport.executable)

    async def ask_here(number: int) -> None:
        fake_gemini.say(f"Answer {number}")
        await chat.ask(f"Prompt {number}")
        told = json.dumps(fake_gemini.requests[-1].body["contents"])
        assert [told.count(f"Prompt {n}") for n in range(number + 1)] == [1] * (number + 1)
        assert [told.count(f"Answer {n}") for n in range(number)] == [1] * number

    async with connect(options, via=cli) as chat:
        await ask_here(0)
        await next_turn_waits(chat)
        await ask_here(1)
        assert len(said(WENT_AHEAD)) == 1
        await next_turn_waits(chat)
        fake_gemini.say("Answer 2")
        await ask("Prompt 2", options.changed(resume=chat.session_id), via=cli)
        await ask_here(3)
    assert len(said(WENT_AHEAD)) == 1
    assert len(sessions_in(fake_gemini.home)) == 1


async def test_the_next_turn_hears_what_somebody_else_said_while_it_was_starting(
    fake_gemini, options, quick_cli, said, tmp_path
):
    held = tmp_path / "held"
    cli = Cli(executable=quick_cli)
    chosen = options.changed(env={**options.env, "STAND_IN_HELD": str(held)})
    async with connect(chosen, via=cli) as chat:
        await chat.ask("Prompt 0")
        held.touch()
        while not (taken := [*tmp_path.glob("held-*")]):
            await asyncio.sleep(0.01)
        await ask("Prompt 1", chosen.changed(resume=chat.session_id), via=cli)
        taken[0].unlink()
        await chat.ask("Prompt 2")
    assert said(WENT_AHEAD) == []
    assert len(said(NOT_USED)) == 1
    (session,) = sessions_in(fake_gemini.home)
    assert re.findall(r"Prompt \d", session.read_text()) == ["Prompt 0", "Prompt 1", "Prompt 2"]


async def next_turn_waits(chat) -> spares.Spare:
    async with asyncio.timeout(60):
        while not chat._conversation._own.waiting:
            await asyncio.sleep(0.01)
    return chat._conversation._own.waiting[0]


async def test_none_is_started_ahead_for_a_single_run(fake_gemini, options, quick_cli, said):
    fake_gemini.say("Hi.")
    await ask("Hello", options, via=Cli(executable=quick_cli))
    assert said("") == []


async def test_a_conversation_may_go_without(fake_gemini, options, quick_cli, said):
    async with connect(options, via=Cli(executable=quick_cli, spare=0)) as chat:
        for _ in range(2):
            fake_gemini.say("Hi.")
            await chat.ask("Hello")
    assert said("") == []


def test_code_that_does_not_await_has_them_too(fake_gemini, options, quick_cli, said):
    with sync.opened(Cli(executable=quick_cli, spare=1)) as cli:
        assert sync.ask("One", options, via=cli).ok
        spare = cli.loop.call(waiting(cli._open()))
        with sync.run("Two", options, via=cli) as live:
            assert sum(isinstance(event, Init) for event in live) == 1
        assert live.result.text == str(spare.pid)
        with sync.connect(options, via=cli, decide=lambda request: Allow()) as chat:
            assert chat.ask("Three").ok
    assert len(said(WENT_AHEAD)) == 1
    with pytest.raises(errors.GeminorumError, match="not open"):
        cli.open(options)


async def test_a_pool_of_headless_runs_has_one_for_each_place(
    fake_gemini, options, quick_cli, said
):
    cli = Cli(executable=quick_cli)
    async with Pool(cli, size=2, wait=60) as pool:
        await pool.warm(options)
        assert len(pool.report().processes) == 2
        results = await asyncio.gather(*(ask(f"Prompt {n}", options, via=pool) for n in range(2)))
        assert all(result.ok for result in results)
        assert len(said(WENT_AHEAD)) == 2
        report = pool.report()
    assert (report.conversations, report.turns, report.waiting) == (2, 2, 0)


async def test_who_finds_no_place_in_time_is_told(options, quick_cli):
    pool = Pool(Cli(executable=quick_cli), size=1, wait=0.05)
    async with pool, connect(options, via=pool):
        with pytest.raises(errors.PoolBusy):
            await ask("Hello", options, via=pool)


# ---- what callers can ask for


async def test_whatever_callers_ask_for_holds_as_on_a_cold_run(
    fake_gemini, options, real_transport, said
):
    """Functions, decisions, a typed answer, a policy, a budget and a time limit. A run begins with
    its prompt: what it has spent is its own, however long a CLI has waited."""
    asked: list[str] = []

    def may_i(request: PermissionRequest) -> Allow:
        asked.append(request.name)
        return Allow()

    def double(number: int) -> int:
        """Doubles a number."""
        return 2 * number

    wanted = options.changed(
        output_schema=dict[str, int],
        policy=Policy(file_write="deny"),
        max_budget_usd=1,
        timeout=60,
    )
    fake_gemini.call("mcp_geminorum_double", number=21)
    fake_gemini.call("run_shell_command", command="echo hello")
    fake_gemini.call("write_file", file_path="made", content="x")
    fake_gemini.call("mcp_geminorum_final_answer", answer=42).say("Done.")
    executable = real_transport.executable
    async with Cli(executable=executable, spare=1, tools=[double], decide=may_i) as cli:
        await start_ahead(cli, wanted)
        await asyncio.sleep(1.5)
        async with start("Double 21", wanted, via=cli) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        await start_ahead(cli, wanted)
        fake_gemini.say("Never.", delay=60)
        with pytest.raises(errors.RunTimeout):
            await ask("Wait", wanted.changed(timeout=2), via=cli)
    assert live.result.data == {"answer": 42}
    assert asked == ["double", "run_shell_command"]
    assert [result.status for result in results[:3]] == ["success", "success", "denied"]
    assert not (options.cwd / "made").exists()
    assert live.result.usage.exact
    assert live.result.cost.usd > 0
    assert len(live.result.usage.requests) == 5
    assert len(said(WENT_AHEAD)) == 2


# ---- what makes one unfit


def new_file(options: Options, home: Path) -> Options:
    (options.cwd / "new.txt").write_text("new")
    return options


def new_context(options: Options, home: Path) -> Options:
    (options.cwd / "GEMINI.md").write_text("Call yourself Ada.")
    return options


def context_of_the_user(options: Options, home: Path) -> Options:
    (home / ".gemini/GEMINI.md").write_text("Call yourself Ada.")
    return options


def other_settings(options: Options, home: Path) -> Options:
    file = home / ".gemini/settings.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ui": {"theme": "x"}}))
    return options


def other_policy(options: Options, home: Path) -> Options:
    return options.changed(policy=Policy(file_write="allow"))


def policy_of_the_user(options: Options, home: Path) -> Options:
    (home / ".gemini/policies").mkdir()
    rule = '[[rule]]\ntoolName = "web_fetch"\ndecision = "deny"\npriority = 100\n'
    (home / ".gemini/policies/mine.toml").write_text(rule)
    return options


def other_key(options: Options, home: Path) -> Options:
    return options.changed(env={**options.env, "GEMINI_API_KEY": "another-key-altogether"})


def other_folder(options: Options, home: Path) -> Options:
    """Under the same name."""
    shutil.rmtree(options.cwd)
    options.cwd.mkdir()
    return options


def repository(options: Options, home: Path) -> Options:
    subprocess.run(["git", "init", "-q"], cwd=options.cwd, check=True)
    return options


CHANGES = [
    *(other_policy, other_key, new_file, new_context, policy_of_the_user),
    *(context_of_the_user, other_settings, repository, other_folder),
]


async def test_a_run_starts_cold_if_anything_that_a_start_reads_has_changed(
    fake_gemini, options, real_transport, said
):
    async with Cli(executable=real_transport.executable, spare=1, spare_age=600) as ahead:
        spare = await start_ahead(ahead, options)
        assert spare.why_unfit(spare.order, 600) is None
        plans, files = [spare.process.prepared.plan], changed_files(spare)
        for change in CHANGES:
            order = replace(spare.order, options=change(options, fake_gemini.home))
            assert spare.why_unfit(order, 600) is not None
            plan = spare.process.prepared.plan_for(spare._context_of(order))
            changed = changed_files(spare)
            assert plan not in plans or changed - files, f"{change.__name__} was not noticed"
            plans, files = [*plans, plan], changed
        fake_gemini.say("Hi.")
        assert (await ask("Hello", options, via=ahead)).ok
    assert said(WENT_AHEAD) == []
    assert len(said(NOT_USED)) == 1
    assert not psutil.pid_exists(spare.pid)
    # The model is told how it is now, and of the one that was not used nothing is left.
    assert "Call yourself Ada." in json.dumps(fake_gemini.requests[-1].body)
    assert len(sessions_in(fake_gemini.home)) == 1


def changed_files(spare: spares.Spare) -> set[tuple[str, State | None]]:
    """All of them, as they are now: for a run, the first is enough."""
    assert spare._record is not None
    looks = spare._record.looks
    changed = (look.file for look in looks if StartRecord((look,), ()).first_difference())
    return {(file, state_of(file)) for file in changed}


async def test_an_upgraded_cli_is_started_anew(fake_gemini, options, quick_cli, said):
    """The package is replaced under the same name."""
    package = quick_cli.parent.parent / "package.json"
    async with Cli(executable=quick_cli, spare=1) as cli:
        await first_run(fake_gemini, options, cli)
        package.write_text(json.dumps({**json.loads(package.read_text()), "upgraded": True}))
        assert (await ask("Hello", options, via=cli)).ok
    assert said(NOT_USED)[0] == f"{NOT_USED}the CLI was replaced"


async def test_none_survives_what_may_be_a_midnight(
    fake_gemini, options, quick_ahead, said, monkeypatch
):
    """The model is told the date."""
    await first_run(fake_gemini, options, quick_ahead)
    monkeypatch.setattr(spares, "_quarter_of_the_hour", lambda: 1)
    fake_gemini.say("Hi.")
    assert (await ask("Hello", options, via=quick_ahead)).ok
    assert said(NOT_USED)[0] == f"{NOT_USED}the day may have changed"


@pytest.mark.parametrize("seconds", [0.2])
async def test_one_that_has_waited_too_long_is_ended(fake_gemini, options, quick_cli, seconds):
    async with Cli(executable=quick_cli, spare=1, spare_age=seconds) as cli:
        spare = await first_run(fake_gemini, options, cli)
        async with asyncio.timeout(30):
            while psutil.pid_exists(spare.pid):
                await asyncio.sleep(0.02)
        # Its session, in which nobody has said anything, is gone with it.
        name = f"session-*-{spare.session_id[:8]}*"
        async with asyncio.timeout(30):
            while [*fake_gemini.home.rglob(name)]:
                await asyncio.sleep(0.02)


async def test_one_that_was_killed_or_stopped_costs_no_run(fake_gemini, options, quick_ahead):
    await first_run(fake_gemini, options, quick_ahead)
    for sign in (signal.SIGKILL, signal.SIGSTOP):
        spare = await waiting(quick_ahead)
        os.kill(spare.pid, sign)
        while sign == signal.SIGSTOP and not spare.process.child.is_stopped:
            await asyncio.sleep(0.001)  # Later, it would be an agent that stands still.
        result = await ask("Hello", options, via=quick_ahead)
        assert result.ok
        assert result.text != str(spare.pid)


async def test_one_that_is_killed_with_the_prompt_in_its_hands_costs_no_run(
    fake_gemini, options, quick_ahead, said, monkeypatch
):
    """It has not said a word, so it has done nothing: the prompt goes to another."""
    spare = await first_run(fake_gemini, options, quick_ahead)
    send = spares.Spare.send

    async def send_and_kill(self: spares.Spare, prompt: bytes) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        await send(self, prompt)
        os.kill(self.pid, signal.SIGKILL)

    monkeypatch.setattr(spares.Spare, "send", send_and_kill)
    fake_gemini.say("Hi.")
    async with start("Hello", options, via=quick_ahead) as live:
        events = [event async for event in live]
    assert live.result.ok
    assert sum(isinstance(event, Init) for event in events) == 1
    assert live.session_id != spare.session_id
    assert said("a CLI that was started ahead was killed")


async def test_one_that_is_told_to_end_with_the_prompt_in_its_hands_costs_no_run(
    fake_gemini, options, quick_ahead, said, tmp_path
):
    """The CLI then ends with 0, as if it had done its work, but without a word."""
    leaving = tmp_path / "leaving"
    chosen = options.changed(env={**options.env, "STAND_IN_LEAVES": str(leaving)})
    spare = await first_run(fake_gemini, chosen, quick_ahead)
    leaving.touch()
    result = await ask("Hello", chosen, via=quick_ahead)
    assert result.ok
    assert result.session_id != spare.session_id
    assert said("a CLI that was started ahead was killed")


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
async def test_a_prompt_whose_lease_has_passed_is_not_given_to_another(
    fake_gemini, options, quick_ahead, said, monkeypatch
):
    """Another machine may have it by now."""
    await first_run(fake_gemini, options, quick_ahead)
    send = spares.Spare.send

    async def send_and_lapse(self: spares.Spare, prompt: bytes) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        await send(self, prompt)
        AGENT_LEASE.renew(0)

    monkeypatch.setattr(spares.Spare, "send", send_and_lapse)
    try:
        with pytest.raises(errors.MissingResult, match="the lease") as failed:
            await ask("Hello", options, via=quick_ahead)
    finally:
        AGENT_LEASE.end()
    assert failed.value.retryable
    assert said("a CLI that was started ahead was killed") == []


async def test_one_that_speaks_before_it_is_asked_is_not_trusted(
    fake_gemini, options, quick_ahead, said
):
    spare = await first_run(fake_gemini, options, quick_ahead)
    # What it starts at its start, an MCP server for one, may write to its output.
    with Path(f"/proc/{spare.pid}/fd/1").open("ab") as stdout:
        stdout.write(b'{"type":"init","session_id":"x"}\n')
    fake_gemini.say("Hi.")
    assert (await ask("Hello", options, via=quick_ahead)).ok
    assert said(NOT_USED)[0] == f"{NOT_USED}it spoke before it was asked"


async def test_none_is_started_while_memory_is_short(
    fake_gemini, options, quick_cli, said, monkeypatch
):
    monkeypatch.setattr(spares, "free_megabytes", lambda: 100.0)
    async with Cli(executable=quick_cli, spare=1) as cli:
        for _ in range(2):
            fake_gemini.say("Hi.")
            assert (await ask("Hello", options, via=cli)).ok
    assert "only 100 MB" in said("no CLI is started ahead")[0]
    assert said(WENT_AHEAD) == []


async def test_those_that_wait_are_ended_when_memory_becomes_short(
    fake_gemini, options, quick_ahead, monkeypatch
):
    spare = await first_run(fake_gemini, options, quick_ahead)
    monkeypatch.setattr(spares, "free_megabytes", lambda: 100.0)
    async with asyncio.timeout(30):
        while psutil.pid_exists(spare.pid):
            await asyncio.sleep(0.02)


ANOTHER_PROGRAM = {"executable": "x"}


@pytest.mark.parametrize(
    "how", [{"sandbox": True}, {"relaunch": True}, {"extra_args": ("--debug",)}, ANOTHER_PROGRAM]
)
def test_none_is_started_where_it_could_not_wait_or_would_be_another(quick_cli, how, tmp_path):
    from geminorum.detect import CliProgram, find_cli
    from geminorum.transports.callbacks.backchannel import Callbacks

    cli = Cli(**{"executable": quick_cli, **how})
    program = find_cli(quick_cli)
    if how is ANOTHER_PROGRAM:
        program = CliProgram(("x",), Path("x"), None, None)
    order = spares.SpareOrder(cli, Options(cwd=tmp_path), program, Callbacks())
    assert order.refusal is not None


async def test_agents_that_change_their_folder_have_none_started_for_a_while(
    fake_gemini, options, quick_cli, said
):
    """Each would be unfit, and cost a second of processor time."""
    async with Cli(executable=quick_cli, spare=1) as cli:
        for number in range(6):
            fake_gemini.say("Hi.")
            await ask("Hello", options, via=cli)
            if number < 4:
                await waiting(cli)
            (options.cwd / f"file{number}").touch()
        assert cli._spares is not None
        assert not cli._spares.waiting
        assert not cli._spares._starting
    assert len(said(NOT_USED)) == 4


# ---- nothing is left


KILLED = """
    import asyncio, sys
    from geminorum import Cli, Options, Pool

    async def main():
        async with Pool(Cli(executable=sys.argv[1]), size=1) as pool:
            await pool.warm(Options(cwd=sys.argv[2], model="gemini-2.5-flash"))
            print(pool.report().processes[0].pid, flush=True)
            await asyncio.sleep(60)

    asyncio.run(main())
"""


async def test_a_kill_of_ours_leaves_no_cli_and_the_next_run_removes_its_session(
    fake_gemini, options, real_transport, quick_cli
):
    await ask("Hello", options, via=Cli(executable=quick_cli))
    (used,) = sessions_in(fake_gemini.home)
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    command += [str(real_transport.executable), str(options.cwd)]
    env = {**os.environ, **fake_gemini.env}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as us:
        pid = int(await asyncio.to_thread(us.stdout.readline))
        us.kill()
    async with asyncio.timeout(10):
        while psutil.pid_exists(pid):
            await asyncio.sleep(0.02)
    (unused,) = {*sessions_in(fake_gemini.home)} - {used}
    # Not within a second of the last look for what others left.
    await asyncio.sleep(1.1)
    await ask("Again", options, via=Cli(executable=quick_cli))
    assert (used.exists(), unused.exists()) == (True, False)
    assert len(sessions_in(fake_gemini.home)) == 2


# ---- the record of a start


@pytest.mark.parametrize(
    ("how", "change", "differs"),
    [
        (0, "edit", False),
        (1, "edit", True),
        (0, "remove", True),
        (1, "same size and time", True),
        (1, "nothing", False),
    ],
)
def test_a_file_that_was_read_has_to_be_the_same(tmp_path, how, change, differs):
    file = tmp_path / "file"
    file.write_text("before")
    record = StartRecord((Look(str(file), how, state_of(str(file))),), ())
    if change == "edit":
        file.write_text("afterwards")
    elif change == "remove":
        file.unlink()
    elif change == "same size and time":
        before = file.stat()
        file.write_text("behind")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (record.first_difference() is not None) is differs


def test_a_file_that_was_written_as_it_was_read_is_not_trusted(tmp_path):
    file = str(tmp_path / "file")
    Path(file).write_text("x")
    looks = [Look(file, how, state_of(file), fresh=True) for how in (0, 1)]
    assert StartRecord((looks[0],), ()).first_difference() is None
    assert StartRecord((looks[1],), ()).first_difference() == file


@pytest.mark.parametrize("spare", [-1, True, 1.5, 65])
def test_a_number_that_makes_no_sense_is_refused(spare):
    with pytest.raises(errors.InvalidOptions, match="spare="):
        Cli(spare=spare)


async def test_a_transport_is_opened_once(quick_cli):
    async with Cli(executable=quick_cli, spare=1) as cli:
        with pytest.raises(errors.GeminorumError, match="already open"):
            await cli.__aenter__()
