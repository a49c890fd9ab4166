"""Whatever happens to us or to the keepers: nothing of a run outlives its owner or escapes it."""

import asyncio
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from io import FileIO
from pathlib import Path

import psutil
import pytest

from geminorum import Options, ask
from geminorum import run as start
from geminorum.errors import GeminorumError, MissingResult, SessionBusy
from geminorum.sessions.lock import SessionLock
from geminorum.transports.launch.overlay import Overlay
from geminorum.transports.process import keeper_program
from geminorum.transports.process.keeper import KEEPERS, KeptProcess
from geminorum.transports.process.keeper_program import EXITED, GONE, LAPSED, SIGNALLED
from geminorum.transports.process.lease_memory import LEASE_MEMORY
from geminorum.transports.process.marked_tree import marked
from geminorum.transports.process.piped import PipedChild
from geminorum.transports.process.tree import Child
from geminorum.transports.process.watcher import main as watch_marks
from geminorum.transports.process.windows_job import ExtendedLimits
from owners import is_alive, keeper_of, wait_until

INIT = {"type": "init", "session_id": "s-1", "model": "flash"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
RESULT = {"type": "result", "status": "success"}
ESCAPES = ("tool", "stubborn", "bare")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's")


def test_nothing_of_a_run_outlives_us(stand_in, owner, tmp_path):
    transport = stand_in(INIT, HELLO, hang=True, ignore_term=True, grandchildren=ESCAPES)
    program = owner(f"""
        from geminorum import Cli, sync
        sync.ask("Go", via=Cli(executable={str(transport.executable)!r}))
    """)
    call = stand_in._folder / "plan-1.call"
    wait_until(call.exists)
    told = json.loads(call.read_text())
    pids = [told["pid"], *told["children"], keeper_of(told["pid"])]
    assert all(map(is_alive, pids))
    home = Path(told["env"]["GEMINI_CLI_HOME"])
    program.kill()
    wait_until(lambda: not any(map(is_alive, pids)), 3)
    # And the next run sweeps what is left.
    assert home.exists()
    Overlay.create(tmp_path, {}).remove()
    assert not home.exists()


def test_nor_does_a_job_whose_agent_ended_while_we_did_not_listen(owner, tmp_path):
    """What the keeper has said and we have not read makes the end of the line an error."""
    program = owner(f"""
        import asyncio, os, time
        from pathlib import Path
        from geminorum.transports.process.tree import Child

        AGENT = "setsid sleep 60 > /dev/null 2>&1 & echo $! > new; mv new pid"

        async def main():
            how = {{"cwd": Path({str(tmp_path)!r}), "env": dict(os.environ)}}
            async with Child(["sh", "-c", AGENT], **how):
                time.sleep(60)

        asyncio.run(main())
    """)
    wait_until((tmp_path / "pid").exists)
    job = int((tmp_path / "pid").read_text())
    wait_until(lambda: "keeper_program" in " ".join(psutil.Process(job).parent().cmdline()))
    time.sleep(0.2)  # For the keeper's word about its agent.
    program.kill()
    wait_until(lambda: not is_alive(job), 10)


def test_nor_does_an_agent_that_was_given_time_to_end(owner, tmp_path):
    """Nobody is left to whom the agent's minute of grace was promised."""
    program = owner(f"""
        import asyncio, os
        from pathlib import Path
        from geminorum.transports.process.tree import Child

        AGENT = "trap 'touch told' TERM; echo $$ > new; mv new pid; while :; do sleep 0.1; done"

        async def main():
            how = {{"cwd": Path({str(tmp_path)!r}), "env": dict(os.environ), "grace": 60}}
            async with Child(["sh", "-c", AGENT], **how) as child:
                while not Path({str(tmp_path)!r}, "pid").exists():
                    await asyncio.sleep(0.01)
                await child.stop()

        asyncio.run(main())
    """)
    wait_until((tmp_path / "told").exists)
    program.kill()
    agent = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(agent), 10)


def test_without_keepers_what_carries_our_mark_does_not_outlive_us(stand_in, owner):
    """As on macOS; a process without parent and environment is beyond it."""
    transport = stand_in(
        INIT, HELLO, hang=True, ignore_term=True, grandchildren=("tool", "stubborn")
    )
    program = owner(f"""
        import os
        from geminorum import Cli, sync
        from geminorum.transports.process.keeper import KeeperServer
        KeeperServer.prepare = lambda self: None
        KeeperServer.is_available = lambda self: False
        sync.ask("Go", via=Cli(executable={str(transport.executable)!r}))
    """)
    call = stand_in._folder / "plan-1.call"
    wait_until(call.exists)
    told = json.loads(call.read_text())
    pids = [told["pid"], *told["children"]]
    assert keeper_of(told["pid"]) == program.pid
    assert all(map(is_alive, pids))
    program.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_a_watcher_leaves_alone_what_it_was_told_to_forget(tmp_path):
    one, other = uuid.uuid4().hex, uuid.uuid4().hex
    with subprocess.Popen(["sleep", "60"], env=marked(os.environ, one)) as kept:
        with subprocess.Popen(["sleep", "60"], env=marked(os.environ, other)) as watched:
            watch_marks([f"+{one}\n", f"+{other}\n", f"-{one}\n"])
            assert watched.wait(10) == -signal.SIGKILL
        assert kept.poll() is None
        kept.kill()


def test_the_limits_of_a_job_have_the_size_that_windows_expects():
    """Nothing more of it can be tried on another system."""
    assert ctypes.sizeof(ExtendedLimits) == 144


@pytest.mark.gemini_cli
@pytest.mark.parametrize("transport", ["nullcontext(Cli(**found))", "sync.Pool(Acp(**found))"])
def test_nothing_of_the_real_cli_outlives_us(
    fake_gemini, real_transport, owner, tmp_path, transport
):
    command = "sleep 300 & env -i setsid sleep 300 & echo $$ > shell; wait"
    fake_gemini.call("run_shell_command", command=command).say("Awake.")
    program = owner(f"""
        from contextlib import nullcontext
        from geminorum import Acp, Cli, Options, sync
        options = Options(cwd={str(tmp_path)!r}, env={fake_gemini.env!r}, approval="yolo",
                          model="gemini-2.5-flash")
        found = {{"executable": {str(real_transport.executable)!r}}}
        with {transport} as via:
            sync.ask("Sleep", options, via=via)
    """)
    wait_until((tmp_path / "shell").exists, 60)
    tree = psutil.Process(program.pid).children(recursive=True)
    wait_until(lambda: sum("sleep 300" in " ".join(p.cmdline()) for p in tree) >= 2)
    program.kill()
    wait_until(lambda: not any(is_alive(process.pid) for process in tree), 3)


async def test_a_session_is_locked_while_its_agent_lives(tmp_path):
    """Even if we do not."""
    first, later = SessionLock(tmp_path, "first"), SessionLock(tmp_path, "later")
    with first, later:
        async with Child(["sleep", "60"], env=dict(os.environ), kept=[first.fileno()]) as child:
            child.hold(later.fileno())
            for lock in (first, later):
                # As if we were gone: only the keeper has a copy now.
                os.close(lock.fileno())
                with pytest.raises(SessionBusy):
                    SessionLock(tmp_path, lock._session_id).__enter__()
        for lock in (first, later):
            with SessionLock(tmp_path, lock._session_id) as again:
                assert again.fileno() >= 0
            lock._file = os.open(os.devnull, os.O_RDONLY)


async def test_a_session_that_was_let_go_of_is_free_although_its_process_lives(tmp_path):
    async with Child(["sleep", "60"], env=dict(os.environ)) as child:
        with SessionLock(tmp_path, "s") as lock:
            child.hold(lock.fileno())
            child.release(lock.fileno())
        with SessionLock(tmp_path, "s") as again:
            assert again.fileno() >= 0


async def test_nothing_escapes_a_run_that_ends_by_itself(stand_in, tmp_path):
    """Not by a session of its own, and not without an environment."""
    transport = stand_in(INIT, HELLO, RESULT, grandchildren=ESCAPES)
    assert (await ask("Go", Options(cwd=tmp_path), via=transport)).text == "Hello"
    assert not any(map(is_alive, stand_in.call["children"]))


async def test_the_end_of_a_program_is_heard_although_somebody_asked_for_it_first(tmp_path):
    """What it started holds its pipe, so the end of the pipe does not tell."""
    over = asyncio.Event()
    how = {"cwd": tmp_path, "env": dict(os.environ), "grace": 1.0}
    command = ["sh", "-c", "sleep 60 & sleep 0.2"]
    async with PipedChild(command, hear=lambda data: None, ended=over.set, **how) as child:
        wait_until(lambda: child.exit_code is not None)  # The loop stands still meanwhile.
        await asyncio.wait_for(over.wait(), 10)
    assert child.exit_code == 0


@pytest.mark.parametrize("who", ["server", "keeper"])
async def test_a_killed_keeper_ends_its_runs_with_an_error(stand_in, tmp_path, who):
    transport = stand_in(INIT, HELLO, hang=True, grandchildren=ESCAPES)
    async with start("Go", Options(cwd=tmp_path), via=transport) as live:
        async for event in live:
            if event.type == "text_delta":
                keeper = keeper_of(stand_in.call["pid"])
                victim = keeper if who == "keeper" else keeper_of(keeper)
                os.kill(victim, signal.SIGKILL)
    assert isinstance(live.result.exception(), MissingResult)
    assert live.result.text == "Hello"
    pids = [stand_in.call["pid"], *stand_in.call["children"]]
    wait_until(lambda: not any(map(is_alive, pids)), 3)
    # And the next run has a keeper again.
    assert (await ask("Go", Options(cwd=tmp_path), via=stand_in(INIT, HELLO, RESULT))).text


@pytest.mark.parametrize("who", ["server", "keeper"])
async def test_a_killed_keeper_ends_the_turn_of_a_warm_process_with_an_error(
    stand_in_acp, tmp_path, who
):
    options = Options(cwd=tmp_path, home=tmp_path)
    async with start("Go", options, via=stand_in_acp("deaf")) as live:
        async for event in live:
            if event.type == "text_delta":
                (keeper,) = psutil.Process(KEEPERS.pid).children()
                os.kill(keeper.pid if who == "keeper" else KEEPERS.pid, signal.SIGKILL)
    assert isinstance(live.result.exception(), GeminorumError)
    assert live.result.text == "Once upon a time"


FORKED = """
    import asyncio, os, sys
    from geminorum.transports.process.keeper import KEEPERS
    from geminorum.transports.process.tree import Child

    async def main():
        async with Child(["sleep", "60"], env=dict(os.environ)) as child:
            ours = KEEPERS.pid
            if (pid := os.fork()) == 0:
                {in_the_fork}
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert code == 0, code
            assert child.exit_code is None
            assert KEEPERS.pid == ours

    asyncio.run(main())
"""


def test_a_fork_that_ends_takes_nothing_of_ours_with_it(owner):
    assert owner(FORKED.format(in_the_fork="sys.exit(0)")).wait(30) == 0


def test_a_fork_has_keepers_of_its_own(owner):
    running = """
                how = {"cwd": None, "env": {}, "stdio": (0, 1, 2), "run_id": "in-a-fork"}
                KEEPERS.start(["/bin/true"], **how).kill()
                sys.exit(KEEPERS.pid == ours)"""
    assert owner(FORKED.format(in_the_fork=running)).wait(30) == 0


CHANGED_SINCE = """
    import asyncio, os, resource, shutil
    from pathlib import Path
    import psutil  # Another user may not be able to read it.
    from geminorum.transports.process.keeper import KEEPERS
    from geminorum.transports.process.tree import Child

    async def told(*command):
        async with Child(command, cwd=Path("/"), env=dict(os.environ)) as child:
            said = b""
            while piece := await child.read():  # A shell writes each line by itself.
                said += piece
            return said.decode().split()

    assert KEEPERS.is_available()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_NOFILE, (234, 1000))
    said = asyncio.run(told("sh", "-c", "umask; ulimit -n; ulimit -Hn"))
    assert said == ["0077", "234", "1000"], said
    program = os.path.realpath(shutil.which("id"))  # Nor the folders of our PATH.
    if os.geteuid() == 0:
        os.seteuid(65534)
    assert asyncio.run(told(program, "-u")) == [str(os.geteuid())]
"""


def test_a_program_has_the_rights_and_limits_that_we_have_when_it_starts(owner):
    """Not those that we had when the server was started."""
    assert owner(CHANGED_SINCE).wait(30) == 0


# ---- an agent that turns against its keeper

GENERATIONS = """
import os, signal, sys, time
from pathlib import Path

# A family of five, each in a session of its own, and nothing in their environment.
is_last = False
for generation in range(4):
    if os.fork():
        break
    os.setsid()
    is_last = generation == 3
Path(f"pid-{os.getpid()}").touch()
if is_last:
    while len(list(Path().glob("pid-*"))) < 5:
        time.sleep(0.01)
    signals = {"STOP": signal.SIGSTOP, "KILL": signal.SIGKILL}
    for word in sys.argv[1:]:
        pid, name = word.split(":")
        os.kill(int(pid), signals[name])
    Path("acted").touch()
time.sleep(60)
"""
HOSTILE = """
    import asyncio, os, sys
    from pathlib import Path
    import psutil
    from geminorum.transports.process.keeper import KEEPERS
    from geminorum.transports.process.tree import Child

    here, deeds = Path({folder!r}), {deeds!r}
    AGENT = (
        "while ! [ -e deeds ]; do sleep 0.01; done; "
        f"env -i {{sys.executable}} -SE generations.py $(cat deeds) & wait; sleep 60"
    )

    async def main():
        how = {{"cwd": here, "env": dict(os.environ), "grace": 0.5}}
        async with Child(["sh", "-c", AGENT], **how) as child:
            keeper = psutil.Process(child.pid).ppid()
            family = {{"keeper": keeper, "server": KEEPERS.pid, "owner": os.getpid()}}
            words = [f"{{family[who]}}:{{what}}" for who, what in deeds]
            (here / "new").write_text(" ".join(words))
            (here / "new").rename(here / "deeds")
            while not (here / "acted").exists():
                await asyncio.sleep(0.01)
            {then}

    asyncio.run(main())
"""


def pids_in(folder: Path) -> list[int]:
    return [int(file.name.partition("-")[2]) for file in folder.glob("pid-*")]


@pytest.mark.parametrize(
    "deeds",
    [
        [("keeper", "KILL"), ("owner", "KILL")],
        [("owner", "KILL"), ("keeper", "KILL")],
        [("keeper", "STOP"), ("owner", "KILL")],
        [("server", "STOP"), ("keeper", "STOP"), ("owner", "KILL")],
    ],
    ids=["keeper and us", "us and keeper", "stopped keeper", "stopped server and keeper"],
)
def test_nothing_is_left_where_an_agent_turns_against_its_keeper_and_us(owner, tmp_path, deeds):
    (tmp_path / "generations.py").write_text(GENERATIONS)
    owner(HOSTILE.format(folder=str(tmp_path), deeds=deeds, then="await asyncio.sleep(60)"))
    wait_until(lambda: len(pids_in(tmp_path)) == 5 and (tmp_path / "deeds").exists())
    wait_until(lambda: not any(map(is_alive, pids_in(tmp_path))), 15)


@pytest.mark.parametrize("who", [["keeper"], ["server"], ["server", "keeper"]])
def test_nothing_is_left_after_the_block_where_an_agent_has_stopped_its_keeper(
    owner, tmp_path, who
):
    (tmp_path / "generations.py").write_text(GENERATIONS)
    deeds = [(one, "STOP") for one in who]
    program = owner(HOSTILE.format(folder=str(tmp_path), deeds=deeds, then="pass"))
    assert program.wait(30) == 0
    assert len(pids_in(tmp_path)) == 5
    wait_until(lambda: not any(map(is_alive, pids_in(tmp_path))), 15)


def test_a_stopped_server_starts_the_next_run_all_the_same(owner, tmp_path):
    program = owner("""
        import asyncio, os, signal
        from geminorum.transports.process.keeper import KEEPERS
        from geminorum.transports.process.tree import Child

        async def main():
            assert KEEPERS.is_available()
            os.kill(KEEPERS.pid, signal.SIGSTOP)
            async with Child(["echo", "here"], env=dict(os.environ)) as child:
                assert await child.read() == b"here\\n"

        asyncio.run(main())
    """)
    assert program.wait(15) == 0


async def test_a_keeper_survives_what_it_cannot_hold_or_was_not_given(tmp_path):
    async with Child(["sleep", "60"], env=dict(os.environ), grace=0.5) as child:
        child.release(99)
        keeper = keeper_of(child.pid)
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (4, 4))
        with (tmp_path / "lock").open("w") as lock:
            child.hold(lock.fileno())
        os.kill(keeper, signal.SIGSTOP)
        with (tmp_path / "lock").open("w") as lock:
            for _ in range(500):  # Nor do we wait for it to listen.
                child.hold(lock.fileno())
        os.kill(keeper, signal.SIGCONT)
        await asyncio.sleep(0.3)
        assert child.exit_code is None


KILLING = """
    import os, subprocess
    from geminorum.transports.process import keeper_program as program

    program.OWN_CHILDREN = {place!r}
    program._libc.prctl(program.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    job = "(sleep 600 & echo $!; sleep 600) & setsid sleep 600 & echo $!; wait"
    child = subprocess.Popen(["sh", "-c", job], stdout=subprocess.PIPE)
    pids = [child.pid, int(child.stdout.readline()), int(child.stdout.readline())]
    ends = [os.pidfd_open(pid) for pid in pids]
    program._kill_all()
    for end in ends:
        program._poll([end])
"""


@pytest.mark.parametrize("place", [keeper_program.OWN_CHILDREN, "/not/there"])
def test_a_tree_is_killed_whether_or_not_the_system_lists_children(owner, place):
    assert owner(KILLING.format(place=place)).wait(30) == 0


def test_a_fork_that_fails_is_the_trouble_of_one_run(monkeypatch):
    """The system has no more processes for us; that must not end those that run."""

    def no_fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = [os.dup(telling.fileno()) for _ in range(6)]
    with ours, theirs, told, telling, monkeypatch.context() as patch:
        patch.setattr(signal, "set_wakeup_fd", lambda *_, **__: -1)
        patch.setattr(signal, "signal", lambda *_: None)
        lease = keeper_program.Lease(os.dup(LEASE_MEMORY.descriptor()))
        server = keeper_program.Server(keeper_program.Owner(os.getpid()), theirs, lease)
        patch.setattr(os, "fork", no_fork)
        socket.send_fds(ours, [b"run"], fds)
        assert server._accept()
        assert told.recv(64) == keeper_program.FAILED + str(errno.EAGAIN).encode()
        for fd in (*fds, server._owner.fd, server._wakeups.reader, server._wakeups._writer):
            os.close(fd)


def test_threads_that_listen_to_one_keeper_miss_nothing_and_do_not_take_it_for_lost():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            listen_in_threads()
    finally:
        sys.setswitchinterval(before)


def listen_in_threads() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader, writer = os.pipe()
    kept = KeptProcess(ours, FileIO(reader), 0, (0, 0), "run")
    with theirs:
        threads = [threading.Thread(target=wait_until_gone, args=(kept,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for message in (EXITED + b"0", SIGNALLED, GONE):
            theirs.send(message)
        for thread in threads:
            thread.join()
    os.close(writer)
    assert (kept.poll(), kept.is_signalled, kept._is_lost) == (0, True, False)
    kept.close()


def wait_until_gone(kept: KeptProcess) -> None:
    while not kept.is_gone:
        pass


def test_the_last_words_of_a_keeper_that_did_not_hear_us_are_heard():
    """A line that is closed with something unread fails once, before it gives what was said."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader, writer = os.pipe()
    kept = KeptProcess(ours, FileIO(reader), 0, (0, 0), "run")
    for message in (LAPSED, EXITED + b"3", GONE):
        theirs.send(message)
    kept.release(7)
    theirs.close()
    os.close(writer)
    assert (kept.is_lapsed, kept.poll(), kept.is_gone, kept._is_lost) == (True, 3, True, False)
    kept.close()
