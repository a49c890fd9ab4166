"""The parts below a run: captured output, news of it, process trees, the overlay home, secrets."""

import asyncio
import contextlib
import gc
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from geminorum.errors import ConfigError, SetupError
from geminorum.redaction import redacted, secrets_in
from geminorum.system.owned_folder import OwnedFolder, sweep
from geminorum.transports.launch.overlay import Overlay, selected_auth
from geminorum.transports.process import file_watch
from geminorum.transports.process.file_watch import FileWatch
from geminorum.transports.process.marked_tree import (
    MARKER,
    MarkedProcess,
    _environment,
    _is_in_exec,
    _read_proc,
    find_marked,
    own_group,
    taskkill,
)
from geminorum.transports.process.piped import PipedChild
from geminorum.transports.process.tree import Capture, Child
from geminorum.transports.process.windows_job import Job
from geminorum.wire.launch.settings_file import merged

ENV = dict(os.environ)


async def everything(child) -> bytes:
    pieces = []
    while piece := await child.read():
        pieces.append(piece)
    return b"".join(pieces)


async def test_output_is_read_to_its_true_end():
    script = "import os; [os.write(1, b'x' * 65536) for _ in range(160)]"
    async with Child([sys.executable, "-c", script], env=ENV) as child:
        assert len(await everything(child)) == 160 * 65536
        assert child.exit_code == 0


async def test_a_child_that_does_not_read_its_prompt_harms_nobody():
    async with Child([sys.executable, "-c", "pass"], env=ENV, stdin=b"x" * 10_000_000) as child:
        assert await everything(child) == b""


def spoken_to(*command: str, hear=lambda data: None, ended=lambda: None) -> PipedChild:
    """A child with a pipe each way."""
    return PipedChild(command, cwd=Path.cwd(), env=ENV, grace=0.5, hear=hear, ended=ended)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit", b""),
        # Its end is noticed while there is more to write than the pipe takes.
        ("exec 0<&-; exit", b"x" * 1_000_000),
    ],
)
async def test_leaving_a_process_that_has_ended_is_no_exception_in_a_callback(script, said):
    """Our end of its stdin is closed once, whoever notices its end first."""
    found: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    for _ in range(25):
        gone = asyncio.Event()
        async with spoken_to("sh", "-c", script, ended=gone.set) as child:
            child.write(said)
            await gone.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not found


async def test_what_a_process_says_up_to_the_moment_of_its_end_is_heard():
    """As with a headless one, whose words are in a file: none is left in the pipe."""
    heard = bytearray()
    script = "echo ready; read order; echo the last words"
    async with spoken_to("sh", "-c", script, hear=heard.extend) as child:
        while not heard:
            await asyncio.sleep(0.001)
        child.write(b"go\n")
        while child.exit_code is None:
            time.sleep(0.001)  # The loop must not read before it is told to stop.
        await child.stop()
        assert heard == b"ready\nthe last words\n"


def test_a_process_in_the_middle_of_its_exec_has_its_mark():
    """Linux lets the parent go on before the environment is to be seen."""
    for _ in range(300):
        sleeper = subprocess.Popen(["sleep", "300"], env={MARKER: "just-begun"})
        try:
            assert b"just-begun" in _environment(sleeper.pid)
        finally:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/PID/stat")
def test_not_everybody_without_an_environment_is_waited_for():
    """A program that was given an empty one, a zombie, a thread of the kernel."""
    bare, zombie = (subprocess.Popen(words, env={}) for words in (["sleep", "300"], ["true"]))
    try:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert _environment(bare.pid) == b""  # By then its exec is over.
        assert not _is_in_exec(_read_proc(bare.pid, "stat"))
        assert not _is_in_exec(_read_proc(zombie.pid, "stat"))
        rest = b"0 " * 43
        assert not _is_in_exec(b"2 (kthreadd) S 0 0 0 0 -1 2129984 " + rest)
        assert _is_in_exec(b"9 (a) b) (c) R 0 0 0 0 -1 4194304 " + rest)
    finally:
        bare.kill()
        for child in (bare, zombie):
            child.wait()


async def test_a_read_that_was_cancelled_loses_nothing():
    script = "import time; time.sleep(0.5); print('late', flush=True)"
    async with Child([sys.executable, "-c", script], env=ENV) as child:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await child.read()
        assert await everything(child) == b"late\n"


@pytest.mark.parametrize("missing", [["_inotify_of"], ["pidfd"], ["_inotify_of", "pidfd"]])
async def test_without_news_from_the_system_it_looks_for_itself(monkeypatch, missing):
    for name in missing:
        monkeypatch.setattr(file_watch, name, lambda _: None)
    script = "import time\nfor n in range(5): print(n, flush=True); time.sleep(0.05)"
    async with Child([sys.executable, "-c", script], env=ENV) as child:
        assert await everything(child) == b"0\n1\n2\n3\n4\n"


async def test_a_system_without_watches_to_give_is_no_trouble():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    captures = [Capture() for _ in range(3)]
    watches = []
    try:
        # Room for one more descriptor: the second kind of news has to do without.
        used = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.name.isdigit())
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        for capture in captures:
            watches.append(FileWatch(capture.reader, file_watch.pidfd(os.getpid())))
        await asyncio.wait_for(watches[-1].wait(), 5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for watch in watches:
            watch.close()
        for capture in captures:
            capture.close()


async def test_a_loop_without_watches_is_forgotten():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.closing(Capture()) as capture, no_gaps_between_descriptors():
        used = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.name.isdigit())
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        try:
            watch = FileWatch(capture.reader, None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        watch.close()
    assert asyncio.get_running_loop() not in file_watch._INOTIFY


async def test_files_of_a_loop_share_one_descriptor_which_ends_with_the_last(tmp_path):
    """Each of its own would cost milliseconds to close while many processes run."""
    before = inotify_descriptors()
    captures = [Capture() for _ in range(5)]
    watches = [FileWatch(capture.reader, None) for capture in captures]
    assert inotify_descriptors() == before + 1
    for capture, watch in zip(captures, watches, strict=True):
        os.write(capture.writer, b"x")
        await asyncio.wait_for(watch.wait(), 5)
        watch.close()
        capture.close()
    async with asyncio.timeout(5):
        while inotify_descriptors() > before:
            await asyncio.sleep(0.001)


async def test_what_many_programs_write_is_looked_at_together(monkeypatch):
    monkeypatch.setattr(file_watch, "_LONGEST_REST", 0.2)
    monkeypatch.setattr(file_watch, "_REST_PER_FILE", 0.2)
    with contextlib.ExitStack() as stack:
        captures = [stack.enter_context(contextlib.closing(Capture())) for _ in range(8)]
        watches = [
            stack.enter_context(contextlib.closing(FileWatch(capture.reader, None)))
            for capture in captures
        ]
        looks = [0] * len(captures)

        async def follow(number: int) -> None:
            seen = 0
            while seen < 50:
                await watches[number].wait()
                looks[number] += 1
                seen += len(captures[number].read(100))

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for number in range(len(captures)):
                group.create_task(follow(number))
            for _ in range(50):
                for capture in captures:
                    os.write(capture.writer, b"x")
                await asyncio.sleep(0)
        assert max(looks) < 25


def inotify_descriptors() -> int:
    links = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return links.count("anon_inode:inotify")


async def test_a_grace_can_be_shortened():
    script = "trap '' TERM; echo ready; sleep 600 & wait"
    async with asyncio.timeout(60), Child(["sh", "-c", script], env=ENV, grace=500) as child:
        assert await child.read() == b"ready\n"
        child.shorten_grace(0.1)
        await child.stop()
        assert child.exit_code == -9


async def test_a_child_that_was_killed_says_so():
    async with Child(["sleep", "60"], env=ENV) as child:
        child.kill()
        assert child.exit_code == -9


@contextlib.contextmanager
def no_gaps_between_descriptors() -> Iterator[None]:
    """So that the number of the last tells how many there are."""
    last = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    with contextlib.ExitStack() as stack:
        while (number := os.open(os.devnull, os.O_RDONLY)) <= last:
            stack.callback(os.close, number)
        os.close(number)
        yield


async def test_a_start_without_descriptors_to_give_leaks_none_and_says_why():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with no_gaps_between_descriptors():
        used = [int(fd.name) for fd in Path("/proc/self/fd").iterdir()]
        for room in range(5):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(used) + room, hard))
                with pytest.raises(SetupError, match=r"Too many open files(.|\n)*ulimit -n"):
                    Child(["sleep", "60"], env=ENV)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert len(list(Path("/proc/self/fd").iterdir())) == len(used)


def test_a_secret_on_the_cut_is_recognised():
    capture = Capture()
    os.write(capture.writer, b"x" * 45 + b"open-sesame" + b"y" * 5000)
    text = capture.head_and_tail(100).cleaned(lambda part: redacted(part, ["open-sesame"]))
    capture.close()
    assert "open" not in text


def test_a_capture_has_no_name_and_is_nobody_elses():
    capture = Capture()
    info = os.fstat(capture.reader)
    assert info.st_nlink == 0
    assert stat.S_IMODE(info.st_mode) == 0o600
    capture.close()


def test_a_long_capture_shows_its_beginning_and_its_end():
    capture = Capture()
    os.write(capture.writer, b"a" * 1000 + b"b" * 1000)
    text = capture.head_and_tail(100).cleaned(str)
    capture.close()
    assert text == "a" * 50 + "\n… 1,900 bytes left out …\n" + "b" * 50


async def test_every_child_is_marked_and_a_run_within_a_run_keeps_both_marks():
    show = [sys.executable, "-c", f"import os; print(os.environ[{MARKER!r}])"]
    async with Child(show, env={**ENV, MARKER: ",outer"}) as child:
        mark = (await everything(child)).decode().strip()
        assert mark == f",outer,{child.run_id}"


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (f"{MARKER}=,outer,run", True),
        (f"{MARKER}=,run,inner", True),
        (f"{MARKER}=,rerun,runner", False),
        ("PWD=/home/me/,run,", False),
        ("A=run", False),
    ],
)
def test_only_a_mark_makes_a_process_one_of_the_run(variable, found):
    """Whatever else its variables say: what is one of the run gets killed."""
    name, _, value = variable.partition("=")
    with subprocess.Popen(["/bin/sleep", "60"], env={**ENV, name: value}) as other:
        marked = [one.pid for one in find_marked("run")]
        other.kill()
    assert (other.pid in marked) is found


class Unclosed:
    """A process that never closes, as a killed `cmd.exe` may leave one on Windows."""

    pid = 2**30

    def __init__(self) -> None:
        self.waits = list[float]()

    def poll(self) -> None:
        return None

    def wait(self, timeout: float) -> None:
        self.waits.append(timeout)
        raise subprocess.TimeoutExpired("gemini", timeout)


def test_a_killed_process_that_never_closes_is_waited_for_half_a_second():
    """S1-42: then the run goes on, and gives its result."""
    process = Unclosed()
    MarkedProcess(process, uuid.uuid4().hex, Job()).kill()
    assert process.waits == [0.5]


def test_windows_has_its_own_process_group_and_kill_command():
    """S1-42, B-11: on Windows a new process group is started, and `taskkill /T /F` from
    System32 ends the tree."""
    program, *arguments = taskkill(77)
    assert arguments == ["/T", "/F", "/PID", "77"]
    assert program.lower() == r"c:\windows\system32\taskkill.exe", "not the folder's own"
    assert own_group("win32") == {"creationflags": 0x200}
    assert own_group("linux") == {"start_new_session": True}


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "base"
    (folder / ".gemini/skills").mkdir(parents=True)
    (folder / ".agents").mkdir()
    (folder / ".gemini/oauth_creds.json").write_text("{}")
    (folder / ".gemini/settings.json").write_text(
        '{ // mine\n "ui": {"theme": "dark // not a comment"}, /* old */ "model": {"name": "pro"} }'
    )
    return folder


def test_an_overlay_lays_settings_over_the_users_own(home):
    before = (home / ".gemini/settings.json").read_bytes()
    with Overlay.create(home, {"model": {"maxSessionTurns": 2}}) as over:
        assert stat.S_IMODE(over.stat().st_mode) == 0o700
        assert json.loads((over / ".gemini/settings.json").read_text()) == {
            "ui": {"theme": "dark // not a comment"},
            "model": {"name": "pro", "maxSessionTurns": 2},
        }
        assert (over / ".gemini/skills").resolve() == home / ".gemini/skills"
        assert (over / ".gemini/oauth_creds.json").exists()
        assert (over / ".agents").resolve() == home / ".agents"
        (over / ".gemini/tmp/session.jsonl").write_text("kept")
    assert not over.exists()
    assert (home / ".gemini/tmp/session.jsonl").read_text() == "kept"
    assert (home / ".gemini/settings.json").read_bytes() == before


@pytest.mark.parametrize("text", ["{ broken", "[]", '{"a": 1} // {\n, 2'])
def test_broken_settings_are_refused_before_anything_starts(home, text):
    (home / ".gemini/settings.json").write_text(text)
    with pytest.raises(ConfigError, match=r"settings\.json'.* cannot be used") as caught:
        Overlay.create(home, {})
    assert "Options(home=" in caught.value.hint
    assert (home / ".gemini/settings.json").read_text() == text


def test_a_broken_place_is_told_as_it_stands_in_the_file(home):
    """Comments are allowed, and do not move the place that the error names."""
    (home / ".gemini/settings.json").write_text('{\n// a comment\n"a": /* why */ 1,\n oops}')
    with pytest.raises(ConfigError, match="line 4 column 2"):
        Overlay.create(home, {})


@pytest.mark.parametrize("name", ["ctx/GEMINI.md", ["ctx/GEMINI.md", "OTHER.md"]])
def test_instructions_never_go_through_a_link(home, name):
    """A context file in a folder of the user's, which the overlay links."""
    (home / ".gemini" / "settings.json").write_text(json.dumps({"context": {"fileName": name}}))
    theirs = home / ".gemini" / "ctx" / "GEMINI.md"
    theirs.parent.mkdir()
    theirs.write_text("mine")
    with Overlay.create(home, {}, "Be brief.") as over:
        settings = json.loads((over / ".gemini/settings.json").read_text())
        *_, last = settings["context"]["fileName"]
        assert settings["context"]["fileName"][0] == "ctx/GEMINI.md"
        assert (over / ".gemini" / last).read_text() == "Be brief."
    assert theirs.read_text() == "mine"


def test_overlays_of_processes_that_were_killed_are_swept(home, tmp_path, monkeypatch):
    """By the next one, however soon, and nobody else's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale, other = tmp_path / "geminorum-kept-home-1-a", tmp_path / "else-1-c"
    for folder in (stale, other):
        folder.mkdir(mode=0o700)
        (folder / ".gemini").mkdir()
    (stale / ".gemini" / "link").symlink_to(home)
    with Overlay.create(home, {}) as living, Overlay.create(home, {}):
        assert not stale.exists()
        assert living.exists()
        assert other.exists()
    assert home.exists()


@pytest.mark.parametrize(
    "note",
    [
        {"home": "/", "cwd": "/", "session_id": "**"},
        {"home": "\0", "cwd": "\0", "session_id": "1"},
        {"home": "/", "cwd": "/", "session_id": 3},
        "not an object",
    ],
)
def test_no_note_in_a_swept_overlay_keeps_a_run_from_starting(home, tmp_path, monkeypatch, note):
    """An agent with a shell can write one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale = tmp_path / "geminorum-kept-home-1-a"
    stale.mkdir(mode=0o700)
    (stale / "unused_session.json").write_text(json.dumps(note))
    with Overlay.create(home, {}) as living:
        assert living.exists()
        assert not stale.exists()


def test_a_folder_is_kept_while_anybody_holds_it(tmp_path):
    """A keeper that has a copy of the descriptor, for one."""
    folder = OwnedFolder("x-", tmp_path)
    copy = os.dup(folder.fileno())
    os.close(folder.fileno())
    sweep("x-", [tmp_path])
    assert folder.path.exists()
    os.close(copy)
    sweep("x-", [tmp_path])
    assert not folder.path.exists()
    folder.remove.detach()


def test_an_overlay_is_removed_when_its_block_fails(home):
    seen = []

    def fail() -> None:
        with Overlay.create(home, {}) as over:
            seen.append(over)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not seen[0].exists()


def test_the_chosen_login_is_read_from_the_users_settings(home):
    assert selected_auth(home) is None
    (home / ".gemini/settings.json").write_text(
        '{"security": {"auth": {"selectedType": "vertex-ai"}}}'
    )
    assert selected_auth(home) == "vertex-ai"


def test_a_home_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ConfigError, match="cannot use the home"):
        Overlay.create(tmp_path / "home", {})


def test_a_forgotten_overlay_removes_itself(home):
    path = Overlay.create(home, {}).path
    gc.collect()
    assert not path.exists()


def test_settings_merge_to_any_depth():
    assert merged({"a": {"b": {"c": 1}}, "d": [1]}, {"a": {"b": {"e": 2}}, "d": [2]}) == {
        "a": {"b": {"c": 1, "e": 2}},
        "d": [2],
    }


def test_secrets_are_known_by_name_and_by_shape():
    env = {
        "MY_API_KEY": "open-sesame",
        "GITHUB_TOKEN": "ghp_12345678",
        "AUTHOR": "Ada Lovelace",
        "SHORT_KEY": "1",
    }
    secrets = secrets_in(env)
    assert secrets == ["ghp_12345678", "open-sesame"]
    text = "open-sesame by Ada Lovelace?key=abcdefgh12 ya29." + "z" * 30
    shown = redacted(text, secrets)
    assert shown == "[redacted] by Ada Lovelace?key=[redacted] [redacted]"


async def test_an_output_that_is_made_endless_has_an_end(tmp_path):
    """A command may make the file of the agent's output as long as it likes."""
    code = "import os; os.write(1, b'said\\n'); os.truncate('/proc/self/fd/1', 1 << 40)"
    async with Child([sys.executable, "-c", code], env=dict(os.environ)) as child:
        said = b""
        while piece := await child.read():
            said += piece.strip(b"\0")
    assert said == b"said\n"
