"""A child process tree that is gone when the block ends.

The child's stdout and stderr are regular files that we tail. Through a pipe the Gemini CLI loses
whatever the pipe has no room for when it exits; a file takes everything at once, however slowly it
is read, and nobody has to drain it.
"""

from __future__ import annotations

import asyncio
import errno
import ntpath
import os
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from geminorum.errors import CliNotFound, InvalidOptions, SetupError
from geminorum.transports.news import News

if TYPE_CHECKING:
    from psutil import Process

MARKER = "GEMINI_CLI_GEMINORUM_RUN"
"""A variable that every descendant inherits, wherever it moves. The CLI's own redaction of
environments lets names with this beginning through."""

# What is read at once, with all that is made of it, should fit into a processor's own cache.
CHUNK = 64 * 1024
STDERR_KEPT = 64 * 1024
_MARGIN = 1024
_KILL_ROUNDS, _KILL_PAUSE = 50, 0.005
_KILL_WAIT = 0.5
_EXEC_ROUNDS, _EXEC_PAUSE = 100, 0.002
_NO_PROGRAM = 0x00200000 | 0x00000004
"""Linux's flags of a thread of the kernel, and of a process that is ending."""


class ProcessTree:
    """A process and all that it started: one mark on them, one end for them."""

    def __init__(self, popen: subprocess.Popen[bytes], run_id: str, grace: float) -> None:
        self.run_id = run_id
        self._popen, self._grace = popen, grace
        # Runs at interpreter exit too, and when the child is forgotten without leaving its block.
        self._last_resort = weakref.finalize(self, _kill_everything, popen, run_id, os.getpid())

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def stop(self) -> None:
        """TERM, then KILL after the grace, for the whole tree. Returns when it is gone."""
        # The snapshot comes first: once the parent is dead, nobody knows its children by it.
        tree = descendants(self._popen, self.run_id)
        try:
            if tree:
                _signal(tree, "terminate")
                await _gone(tree, self._grace)
        finally:
            # No await before the kill, so that a second cancellation cannot skip it.
            _signal(tree, "kill")
            try:
                await _gone(tree, _KILL_WAIT)
            finally:
                self.kill()

    def kill(self) -> None:
        """End the whole tree now, without waiting for manners."""
        self._last_resort()


class Child(ProcessTree):
    """A process in a session of its own, its output in files, its descendants marked.

    `async with Child(…) as child:` starts it; leaving the block ends it and all that it started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str],
        stdin: bytes = b"",
        grace: float = 5.0,
    ) -> None:
        run_id = uuid.uuid4().hex
        with ExitStack() as opened:
            self._stdout = opened.enter_context(closing(Capture()))
            self._stderr = opened.enter_context(closing(Capture()))
            popen = _started(command, cwd, marked(env, run_id), stdin, self._stdout, self._stderr)
            opened.pop_all()
        super().__init__(popen, run_id, grace)
        self._news = News(self._stdout.reader, self._popen.pid)
        self._nudged = False

    async def __aenter__(self) -> Child:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            self._news.close()
            self._stdout.close()
            self._stderr.close()

    @property
    def written(self) -> int:
        """How many bytes it has said, read or not."""
        return self._stdout.size()

    def nudge(self) -> None:
        """Whoever waits in `read` shall look about: there is something else to tell."""
        self._nudged = True
        self._news.wake()

    async def read(self) -> bytes | None:
        """The next piece of stdout, waiting for one; empty at the true end, None on a nudge."""
        while True:
            # Asked before the read: what a child wrote, it wrote before it ended.
            ended = self._popen.poll() is not None
            if data := self._stdout.read(CHUNK):
                self._news.something_came()
                return data
            if ended:
                return b""
            if self._nudged:
                self._nudged = False
                return None
            await self._news.wait()

    def stderr(self, clean: Callable[[str], str] = str) -> str:
        """The beginning and the end of what it complained about, each passed through `clean`."""
        return self._stderr.head_and_tail(STDERR_KEPT).told(clean)


class HeadAndTail(NamedTuple):
    """What is kept of a long text, with a margin at both cuts."""

    head: str
    tail: str = ""
    half: int = 0
    size: int = 0

    def told(self, clean: Callable[[str], str]) -> str:
        """Cleaned with the margin, so that no secret is cut in two before it can be recognised."""
        if not self.tail:
            return clean(self.head)
        head, tail = clean(self.head)[: self.half], clean(self.tail)[-self.half :]
        return f"{head}\n… {self.size - 2 * self.half:,} bytes left out …\n{tail}"


class Capture:
    """A private file that a child writes and we read; it has no name, so none can be left over."""

    def __init__(self) -> None:
        self.writer = self.reader = -1
        self._name: str | None = None
        try:
            self.writer, self._name = tempfile.mkstemp(prefix="geminorum-")
            self.reader = os.open(self._name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            self.close()
            raise _cannot_start("a file for the output", error) from error
        if os.name == "posix":
            self._unlink()

    def read(self, size: int) -> bytes:
        return os.read(self.reader, size)

    def size(self) -> int:
        return os.fstat(self.reader).st_size if self.reader >= 0 else 0

    def head_and_tail(self, limit: int, start: int = 0) -> HeadAndTail:
        """The beginning and the end of what was written since `start`."""
        size, half = self.size(), limit // 2
        if size - start <= limit:
            return HeadAndTail(self._text(start, size - start) if size > start else "")
        head = self._text(start, half + _MARGIN)
        tail = self._text(size - half - _MARGIN, half + _MARGIN)
        return HeadAndTail(head, tail, half, size - start)

    def _text(self, start: int, length: int) -> str:
        os.lseek(self.reader, start, os.SEEK_SET)
        return os.read(self.reader, length).decode("utf-8", "replace")

    def written(self) -> None:
        """Our copy of the child's end is not needed once the child has it."""
        os.close(self.writer)
        self.writer = -1

    def close(self) -> None:
        for end in (self.writer, self.reader):
            if end >= 0:
                os.close(end)
        self.writer = self.reader = -1
        self._unlink()

    def _unlink(self) -> None:
        # Windows keeps the name until the last handle is closed.
        if self._name is not None:
            with suppress(OSError):
                os.unlink(self._name)  # noqa: PTH108 - a Path for one call
            self._name = None


def _started(
    command: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str],
    stdin: bytes,
    stdout: Capture,
    stderr: Capture,
) -> subprocess.Popen[bytes]:
    # A file for stdin as well: it is complete from the start, so nothing is written while the
    # child runs and a child that does not read it harms nobody.
    try:
        with tempfile.TemporaryFile(prefix="geminorum-") as source:
            source.write(stdin)
            source.seek(0)
            popen = spawned(
                command, cwd=cwd, env=env, stdin=source, stdout=stdout.writer, stderr=stderr.writer
            )
    except OSError as error:
        raise _cannot_start(command[0], error) from error
    stdout.written()
    stderr.written()
    return popen


def spawned(command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """The process, apart from our own signals; an error that says what to do where it fails."""
    try:
        # A list and no shell: what the caller gave stands in `--flag=value` words or on stdin.
        return subprocess.Popen(command, **how, **own_group(sys.platform))  # nosec B603
    except OSError as error:
        raise _cannot_start(command[0], error) from error
    except ValueError as error:
        raise InvalidOptions(f"cannot start {command[0]}: {error}") from error


def marked(env: Mapping[str, str], run_id: str) -> dict[str, str]:
    """The environment with the run's mark in it, beside those of runs around it."""
    return {**env, MARKER: f"{env.get(MARKER, '')},{run_id}"}


def _cannot_start(what: str, error: OSError) -> SetupError:
    text = f"cannot start {what}: {error.strerror or error}"
    if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR):
        return CliNotFound(text)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return SetupError(text, hint="run fewer agents at once, or raise the limit: ulimit -n 4096")
    return SetupError(text, hint="free memory, disk space or processes, and try again")


def own_group(platform: str) -> dict[str, Any]:
    """How to start a child apart from our own signals: Ctrl-C is for us to translate."""
    if platform == "win32":
        return {"creationflags": 0x00000200}  # CREATE_NEW_PROCESS_GROUP
    return {"start_new_session": True}


def taskkill(pid: int) -> list[str]:
    """The command that ends a process tree on Windows, which has no signals for one."""
    # By its path: Windows looks for a bare name in the folder that is worked in first.
    system = ntpath.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32")
    return [ntpath.join(system, "taskkill.exe"), "/T", "/F", "/PID", str(pid)]


def descendants(popen: subprocess.Popen[bytes], run_id: str) -> list[Process]:
    """Every living process of the run: the child, what descends from it, and what moved away."""
    found: dict[int, Process] = {}
    if popen.poll() is None:
        import psutil

        with suppress(psutil.Error):
            root = psutil.Process(popen.pid)
            found = {process.pid: process for process in (root, *root.children(recursive=True))}
    for process in marked_with(run_id):
        found.setdefault(process.pid, process)
    return [process for process in found.values() if _alive(process)]


def marked_with(run_id: str) -> list[Process]:
    """The processes that carry the run's mark in their environment.

    Shell tools run in sessions of their own, and lose their parent when the CLI dies; the mark is
    what they cannot lose.
    """
    mark = run_id.encode()
    pids = [pid for pid in _pids() if pid != os.getpid() and mark in _environment(pid)]
    if not pids:
        # The usual end of a run; it need not load psutil, which takes longer than the search.
        return []
    import psutil

    processes = []
    for pid in pids:
        with suppress(psutil.Error):
            processes.append(psutil.Process(pid))
    return processes


def _pids() -> list[int]:
    if sys.platform == "linux":
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    import psutil

    return psutil.pids()


def _environment(pid: int) -> bytes:
    if sys.platform == "linux":
        # psutil would parse it into a dict first; there may be thousands of processes.
        with suppress(OSError):
            return _of_proc(pid, "environ") or _environment_by_and_by(pid)
        return b""
    import psutil

    with suppress(psutil.Error, OSError):
        return psutil.Process(pid).environ().get(MARKER, "").encode()
    return b""


def _environment_by_and_by(pid: int) -> bytes:
    """In the middle of an exec, a process has none: it is asked again when it has one."""
    for _ in range(_EXEC_ROUNDS):
        # Asked before the read: what it has after the exec, it has from its end on.
        settled = not _is_in_exec(_of_proc(pid, "stat"))
        if (data := _of_proc(pid, "environ")) or settled:
            return data
        time.sleep(_EXEC_PAUSE)
    return b""


def _is_in_exec(stat: bytes) -> bool:
    """Whether a line of /proc/PID/stat tells of a living program whose environment has no place."""
    # The name stands in brackets and may hold anything; the state is the first field behind it.
    state, *fields = stat.rpartition(b")")[2].split()
    flags, environment_end = int(fields[5]), int(fields[47])
    return state not in b"ZX" and not flags & _NO_PROGRAM and environment_end == 0


def _of_proc(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - a Path each is slower
        return file.read()


def _alive(process: Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _signal(processes: Sequence[Process], name: str) -> None:
    if not processes:
        return
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            getattr(process, name)()


async def _gone(tree: Sequence[Process], limit: float) -> None:
    """Wait until none of them lives, `limit` seconds at most."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + limit, 0.002
    while any(map(_alive, tree)) and loop.time() < deadline:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _kill_everything(popen: subprocess.Popen[bytes], run_id: str, owner: int) -> None:
    """KILL until nothing of the run is left. Synchronous: it also runs while Python shuts down."""
    if os.getpid() != owner:
        return  # A fork of ours inherits this call, but not the right to make it.
    for _ in range(_KILL_ROUNDS):
        tree = descendants(popen, run_id)
        if not tree:
            break
        if sys.platform == "win32" and popen.poll() is None:
            kill = taskkill(popen.pid)  # A list and no shell, and of the caller only a number.
            subprocess.run(kill, capture_output=True, check=False, timeout=10)  # nosec B603
        _signal(tree, "kill")
        time.sleep(_KILL_PAUSE)
    with suppress(subprocess.TimeoutExpired):
        popen.wait(_KILL_WAIT)
