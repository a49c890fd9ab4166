"""A lease over all agents of a process: they end at once when it is not renewed in time."""

import asyncio
import errno
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from geminorum import Options, Pool, ask
from geminorum.errors import InvalidOptions, MissingResult, SetupError, Unsupported
from geminorum.transports.process.agent_lease import AGENT_LEASE, AgentLease
from geminorum.transports.process.keeper import KEEPERS, KeeperServer
from geminorum.transports.process.lease_memory import (
    LEASE_MEMORY,
    LeaseExpired,
    LeaseMemory,
    boot_time_ns,
)
from geminorum.transports.process.tree import Child
from owners import is_alive, keeper_of, wait_until

INIT = {"type": "init", "session_id": "s-1", "model": "flash"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
ESCAPES = ("tool", "stubborn", "bare")
LONG_SECONDS = 600.0
"""A lease that does not pass in a test unless the test says so."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's")


@pytest.fixture(autouse=True)
def no_lease_is_left() -> Iterator[None]:
    yield
    AGENT_LEASE.end()


@asynccontextmanager
async def agent(folder: Path, command: str = "sleep 600") -> AsyncIterator[Child]:
    """An agent with a job in a session of its own, whose number is in the file `job`."""
    job = "env -i setsid sleep 600 > /dev/null 2>&1 & echo $! > new; mv new job; "
    how = {"cwd": folder, "env": dict(os.environ), "grace": LONG_SECONDS}
    folder.mkdir(exist_ok=True)
    async with Child(["sh", "-c", job + command], **how) as child:
        try:
            wait_until((folder / "job").exists)
            yield child
        finally:
            child.kill()


def tree_of(folder: Path, child: Child) -> list[int]:
    job = int((folder / "job").read_text())
    return [child.pid, job, keeper_of(child.pid)]


def wait_for_end(tree: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, tree)))


# ---- an owner that is stopped, or that does not renew

OWNER = """
    import json, threading, time
    from contextlib import nullcontext
    from pathlib import Path
    from geminorum import Acp, Cli, Options, sync
    from geminorum.transports.process.agent_lease import AGENT_LEASE

    here = Path({folder!r})

    def renew():
        while not (here / "silence").exists():
            AGENT_LEASE.renew({seconds})
            time.sleep(0.05)

    AGENT_LEASE.renew({seconds})
    threading.Thread(target=renew).start()
    with {transport} as via:
        with sync.run("Go", Options(cwd=here, {options}), via=via) as live:
            told = [event for event in live]
        failure = live.result.exception()
        answer = None
        if {asks_again}:
            AGENT_LEASE.renew(600)
            answer = sync.ask("Again", Options(cwd=here, {options}), via=via).text
    events = [[event.type, getattr(event, "code", None)] for event in told]
    kind, message = type(failure).__name__, str(failure)
    said = [events, kind, message, failure.retryable, live.result.text, answer]
    (here / "new").write_text(json.dumps(said))
    (here / "new").rename(here / "told")
"""


def check_told(folder: Path, text: str) -> str | None:
    """What the owner has told: exactly one error and one Done. Its second answer, if any."""
    wait_until((folder / "told").exists, 60)
    events, kind, message, is_retryable, said, answer = json.loads((folder / "told").read_text())
    assert kind == MissingResult.__name__
    assert "the lease of this process over its agents has passed" in message
    assert (is_retryable, said) == (True, text)
    assert [one for one in events if one[0] == "error"] == [["error", "MISSING_RESULT"]]
    assert [name for name, _ in events].index("done") == len(events) - 1
    return answer


def silence(program: subprocess.Popen[bytes], folder: Path, how: str) -> None:
    """Has the owner not renew its lease any more."""
    if how == "stopped":
        os.kill(program.pid, signal.SIGSTOP)
    else:
        (folder / "silence").touch()


def awaken(program: subprocess.Popen[bytes], folder: Path, how: str) -> None:
    if how == "stopped":
        assert psutil.Process(program.pid).status() == psutil.STATUS_STOPPED
        (folder / "silence").touch()
        os.kill(program.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["stopped", "silent"])
def test_a_run_ends_with_all_its_processes_when_its_owner_does_not_renew(
    stand_in, owner, tmp_path, how
):
    transport = stand_in(INIT, HELLO, hang=True, ignore_term=True, grandchildren=ESCAPES)
    via = f"nullcontext(Cli(executable={str(transport.executable)!r}))"
    text = {"folder": str(tmp_path), "seconds": 2.0, "transport": via, "options": ""}
    program = owner(OWNER.format(**text, asks_again=False))
    wait_until(lambda: (stand_in._folder / "plan-1.call").exists() and stand_in.has_spoken)
    pids = [stand_in.call["pid"], *stand_in.call["children"], keeper_of(stand_in.call["pid"])]
    assert all(map(is_alive, pids))
    silence(program, tmp_path, how)
    wait_for_end(pids)
    awaken(program, tmp_path, how)
    check_told(tmp_path, "Hello")
    assert program.wait(30) == 0


@pytest.mark.gemini_cli
@pytest.mark.parametrize(
    ("how", "transport", "answer"),
    [
        ("silent", "nullcontext(Cli(**found))", None),
        ("stopped", "sync.Pool(Acp(**found), size=1)", "Awake."),
    ],
    ids=["cli", "pooled acp"],
)
def test_the_real_cli_ends_with_the_lease_and_the_next_run_has_another(
    fake_gemini, real_transport, owner, tmp_path, how, transport, answer
):
    """Another of the pool: that of a `Cli` is another with every run."""
    command = "sleep 300 & env -i setsid sleep 300 & echo $$ > shell; wait"
    fake_gemini.call("run_shell_command", command=command).say("Awake.")
    options = f"env={fake_gemini.env!r}, approval='yolo', model='gemini-2.5-flash'"
    found = {"executable": str(real_transport.executable)}
    asks_again = answer is not None
    text = {"folder": str(tmp_path), "seconds": 4.0, "options": options, "asks_again": asks_again}
    via = transport.replace("**found", f"**{found}")
    program = owner(OWNER.format(**text, transport=via))
    wait_until((tmp_path / "shell").exists, 60)
    tree = psutil.Process(program.pid).children(recursive=True)
    wait_until(lambda: sum("sleep 300" in " ".join(p.cmdline()) for p in tree) >= 2)
    (server,) = psutil.Process(program.pid).children()
    silence(program, tmp_path, how)
    wait_for_end([process.pid for process in tree if process != server])
    awaken(program, tmp_path, how)
    assert check_told(tmp_path, "") == answer
    assert program.wait(30) == 0


def test_a_warm_process_that_ends_with_the_lease_ends_its_turn(stand_in_acp, owner, tmp_path):
    via = f"nullcontext(Acp(executable={str(stand_in_acp('telling').executable)!r}))"
    text = {"folder": str(tmp_path), "seconds": 2.0, "transport": via, "options": ""}
    program = owner(OWNER.format(**text, asks_again=False))
    wait_until((tmp_path / "said").exists)
    silence(program, tmp_path, "silent")
    check_told(tmp_path, "".join(f"{number} " for number in range(410)))
    assert program.wait(30) == 0


async def test_a_pool_that_restarts_too_early_for_its_next_lease_starts_once_more(
    stand_in_acp, tmp_path
):
    """The process that is started ahead of need fails, and not the run that waits for it."""
    AGENT_LEASE.renew(LONG_SECONDS)
    options = Options(cwd=tmp_path)
    async with Pool(stand_in_acp("well_behaved"), size=1, spare=False) as pool:
        await ask("Go", options, via=pool)
        AGENT_LEASE.renew(0)
        while pool.report().started < 2:
            await asyncio.sleep(0)
        early = pool._workers[-1]
        early._starting.add_done_callback(lambda _: AGENT_LEASE.renew(LONG_SECONDS))
        again = asyncio.create_task(ask("Again", options, via=pool))
        while not (early.active or again.done()):
            await asyncio.sleep(0)
        assert not early.gone
        assert (await again).status == "success"
        assert isinstance(early._starting.exception(), SetupError)


# ---- what a lease says to agents

RENEWED = """
    import asyncio, os, time
    from geminorum.transports.process.agent_lease import AGENT_LEASE
    from geminorum.transports.process.tree import Child

    async def main():
        assert AGENT_LEASE.renew(3.0)
        async with Child(["sleep", "600"], env=dict(os.environ)) as child:
            deadline = time.monotonic() + 7.0
            while time.monotonic() < deadline:
                assert AGENT_LEASE.renew(3.0)
                await asyncio.sleep(0.05)
            assert child.exit_code is None
            while child.exit_code is None:  # From here on, nobody renews it.
                await asyncio.sleep(0.05)
            assert child.is_lapsed
            assert AGENT_LEASE.is_expired

    asyncio.run(main())
"""


def test_agents_live_for_as_long_as_the_lease_is_renewed(owner):
    assert owner(RENEWED).wait(60) == 0


UNTIMED = """
    import asyncio, os, resource
    from pathlib import Path
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
    from geminorum.transports.process.agent_lease import AGENT_LEASE
    from geminorum.transports.process.keeper import KEEPERS
    from geminorum.transports.process.tree import Child

    async def main():
        AGENT_LEASE.renew(600)
        async with Child(["sleep", "600"], env=dict(os.environ)) as child:
            timers = Path(f"/proc/{KEEPERS.pid}/timers")  # Not every kernel tells.
            assert not timers.exists() or not timers.read_text()
            AGENT_LEASE.renew(0.5)
            while child.exit_code is None:
                await asyncio.sleep(0.05)
            assert child.is_lapsed

    asyncio.run(main())
"""


def test_a_lease_passes_although_the_system_has_no_timer_for_it(owner):
    assert owner(UNTIMED).wait(60) == 0


async def test_a_lease_holds_for_agents_that_were_at_work_before(tmp_path):
    async with agent(tmp_path / "one") as one, agent(tmp_path / "other") as other:
        trees = tree_of(tmp_path / "one", one) + tree_of(tmp_path / "other", other)
        assert len({*trees}) == 6
        AGENT_LEASE.renew(0.1)
        wait_for_end(trees)
        assert (one.is_lapsed, other.is_lapsed) == (True, True)
        assert AGENT_LEASE.is_expired


async def test_a_lease_can_be_shortened(tmp_path):
    AGENT_LEASE.renew(LONG_SECONDS)
    async with agent(tmp_path) as child:
        tree = tree_of(tmp_path, child)
        assert AGENT_LEASE.renew(0.1)
        wait_for_end(tree)


async def test_a_lease_that_has_ended_holds_nobody_until_there_is_another(tmp_path):
    AGENT_LEASE.renew(4.0)
    deadline = LEASE_MEMORY.deadline
    async with agent(tmp_path) as child:
        tree = tree_of(tmp_path, child)
        AGENT_LEASE.end()
        wait_until(lambda: boot_time_ns() > deadline + 10**9)
        assert not AGENT_LEASE.is_expired
        assert all(map(is_alive, tree))
        AGENT_LEASE.renew(0.1)
        wait_for_end(tree)


async def test_a_lease_passes_during_a_stop_with_grace(tmp_path):
    AGENT_LEASE.renew(LONG_SECONDS)
    deaf = "trap 'touch asked' TERM; touch deaf; while :; do sleep 0.1; done"
    async with agent(tmp_path, deaf) as child:
        tree = tree_of(tmp_path, child)
        wait_until((tmp_path / "deaf").exists)
        child.begin_stop()
        wait_until((tmp_path / "asked").exists)
        AGENT_LEASE.renew(0.1)
        wait_for_end([child.pid, tree[-1]])
        assert child.is_lapsed


async def test_no_agent_starts_when_the_lease_has_passed(tmp_path):
    AGENT_LEASE.renew(0)
    assert AGENT_LEASE.is_expired
    how = {"cwd": tmp_path, "env": {}, "stdio": (0, 1, 2), "run_id": "late"}
    with pytest.raises(LeaseExpired, match="has passed") as refused:
        KEEPERS.start(["touch", "started"], **how)
    assert refused.value.errno == errno.ETIME
    with pytest.raises(SetupError, match="cannot start touch: the lease") as failed:
        Child(["touch", "started"], cwd=tmp_path, env={})
    assert failed.value.retryable
    assert not (tmp_path / "started").exists()
    assert not AGENT_LEASE.renew(LONG_SECONDS)
    async with Child(["echo", "here"], env=dict(os.environ)) as child:
        assert await child.read() == b"here\n"


async def test_a_lease_that_has_passed_cannot_be_brought_back(tmp_path):
    """Its agents end although it was renewed before anybody looked; later ones live."""
    AGENT_LEASE.renew(LONG_SECONDS)
    async with agent(tmp_path / "one") as one:
        tree = tree_of(tmp_path / "one", one)
        assert LEASE_MEMORY.set_deadline(boot_time_ns(), lambda: None)
        assert not AGENT_LEASE.renew(LONG_SECONDS)
        async with agent(tmp_path / "later") as later:
            wait_for_end(tree)
            assert one.is_lapsed
            assert (later.exit_code, later.is_lapsed) == (None, False)


async def test_an_agent_does_not_outlive_the_lease_by_stopping_its_keeper(tmp_path):
    AGENT_LEASE.renew(5.0)
    async with agent(tmp_path) as child:
        tree = tree_of(tmp_path, child)
        os.kill(tree[-1], signal.SIGSTOP)
        wait_for_end(tree)


async def test_nor_by_killing_its_keeper_and_stopping_the_server(tmp_path):
    AGENT_LEASE.renew(5.0)
    async with agent(tmp_path) as child:
        tree = tree_of(tmp_path, child)
        os.kill(KEEPERS.pid, signal.SIGSTOP)
        os.kill(tree[-1], signal.SIGKILL)
        # Of the keeper itself a zombie is left until the server is awake.
        wait_for_end(tree)


async def test_a_server_that_replaces_a_killed_one_keeps_the_lease(tmp_path):
    AGENT_LEASE.renew(LONG_SECONDS)
    async with agent(tmp_path / "one") as one:
        before, tree = KEEPERS.pid, tree_of(tmp_path / "one", one)
        os.kill(before, signal.SIGKILL)
        wait_for_end(tree)
    async with agent(tmp_path / "next") as child:
        assert KEEPERS.pid != before
        tree = tree_of(tmp_path / "next", child)
        AGENT_LEASE.renew(0.1)
        wait_for_end(tree)
        assert child.is_lapsed


async def test_a_program_that_has_ended_by_itself_did_not_end_with_the_lease(tmp_path):
    AGENT_LEASE.renew(LONG_SECONDS)
    async with agent(tmp_path, "exit 3") as child:
        wait_until(lambda: child.exit_code is not None)
        AGENT_LEASE.renew(0.1)
        wait_until(lambda: not is_alive(int((tmp_path / "job").read_text())))
        assert (child.exit_code, child.is_lapsed) == (3, False)


def watches() -> list[Path]:
    """Descriptors with which files are watched."""
    every = Path("/proc/self/fd").iterdir()
    return [one for one in every if os.path.lexists(one) and "inotify" in str(one.readlink())]


async def test_no_descriptor_is_left_of_agents_that_ended_with_the_lease(tmp_path):
    counts = []
    for name in "abc":
        AGENT_LEASE.renew(LONG_SECONDS)
        async with agent(tmp_path / name) as child:
            AGENT_LEASE.renew(0)
            wait_until(lambda child=child: child.exit_code is not None)
        wait_until(lambda: not watches())  # A thread closes what the runs of a loop share.
        counts.append(len([*Path("/proc/self/fd").iterdir()]))
    assert counts[-1] <= counts[0]


# ---- who may renew it

FORKED = """
    import asyncio, os
    from geminorum.transports.process.agent_lease import AGENT_LEASE
    from geminorum.transports.process.keeper import KEEPERS
    from geminorum.transports.process.lease_memory import LEASE_MEMORY
    from geminorum.transports.process.tree import Child

    def in_the_fork(ours):
        assert not AGENT_LEASE.is_set
        AGENT_LEASE.renew(0)
        assert AGENT_LEASE.is_expired
        assert KEEPERS.pid != ours

    async def main():
        AGENT_LEASE.renew(600)
        deadline = LEASE_MEMORY.deadline
        async with Child(["sleep", "60"], env=dict(os.environ)) as child:
            if (pid := os.fork()) == 0:
                in_the_fork(KEEPERS.pid)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert LEASE_MEMORY.deadline == deadline
            assert not AGENT_LEASE.is_expired
            assert child.exit_code is None

    asyncio.run(main())
"""


def test_a_fork_has_a_lease_of_its_own(owner):
    assert owner(FORKED).wait(30) == 0


INTERRUPTED = """
    import signal
    from geminorum.transports.process.agent_lease import AGENT_LEASE

    count = 0

    def renew(*_):
        global count
        count += AGENT_LEASE.renew(600)

    signal.signal(signal.SIGALRM, renew)
    AGENT_LEASE.renew(600)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    while count < 500:
        assert AGENT_LEASE.renew(600)
    signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_handler_may_renew_it_in_the_middle_of_a_renewal(owner):
    assert owner(INTERRUPTED).wait(60) == 0


def test_an_agent_cannot_prolong_its_own_lease():
    AGENT_LEASE.renew(LONG_SECONDS)
    deadline = LEASE_MEMORY.deadline
    path = f"/proc/{os.getpid()}/fd/{LEASE_MEMORY.descriptor()}"
    for spoil in (lambda fd: os.pwrite(fd, b"x" * 16, 0), lambda fd: os.ftruncate(fd, 0)):
        fd = os.open(path, os.O_RDWR)
        with pytest.raises(PermissionError):
            spoil(fd)
        os.close(fd)
    assert LEASE_MEMORY.deadline == deadline


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_a_lease_has_a_length(seconds):
    with pytest.raises(InvalidOptions, match="a lease of"):
        AGENT_LEASE.renew(seconds)
    assert not AGENT_LEASE.is_set


# ---- without keepers


def test_there_is_no_lease_without_keepers(monkeypatch):
    lease = AgentLease(LeaseMemory(), KeeperServer())
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Unsupported, match="needs keepers"):
        lease.renew(2.0)
    lease.end()
    assert (lease.is_set, lease.is_expired) == (False, False)


def test_no_agent_starts_under_a_lease_that_nobody_keeps(monkeypatch, tmp_path):
    """As where Python was removed while we ran."""
    AGENT_LEASE.renew(LONG_SECONDS)
    monkeypatch.setattr(KeeperServer, "is_available", lambda self: False)
    with pytest.raises(Unsupported, match="needs keepers"):
        Child(["touch", "started"], cwd=tmp_path, env={})
    assert not (tmp_path / "started").exists()
