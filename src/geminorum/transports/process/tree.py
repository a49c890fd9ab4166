"""A child process tree that is gone when the block ends.

The child's stdout and stderr are regular files that we tail. Through a pipe the Gemini CLI loses
whatever the pipe has no room for when it exits; a file takes everything at once, however slowly it
is read, and nobody has to drain it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from geminorum.errors import CliNotFound, InvalidOptions, SetupError, Unsupported
from geminorum.runtime.lazy import psutil
from geminorum.runtime.off_loop import run_off_loop
from geminorum.system.leases import held
from geminorum.system.shortage import FEWER_DESCRIPTORS, NO_DESCRIPTOR
from geminorum.transports.process.agent_lease import AGENT_LEASE, NO_KEEPERS
from geminorum.transports.process.file_watch import FileWatch
from geminorum.transports.process.keeper import KEEPERS
from geminorum.transports.process.lease_memory import LeaseExpired
from geminorum.transports.process.marked_tree import marked, start_marked
from geminorum.transports.process.nameless_file import open_nameless_file

# What is read at once, with all that is made of it, should fit into a processor's own cache.
CHUNK = 64 * 1024
STDERR_KEPT = 64 * 1024
_MARGIN = 1024
_INPUT_WAIT_SECONDS = 10.0
_SIGNAL_WAIT_SECONDS, _KILL_WAIT_SECONDS = 0.5, 1.0


class Program(Protocol):
    """A program that was started, and all that it started itself."""

    pid: int

    def end_fd(self) -> int | None:
        """A descriptor for the caller that becomes readable when the program ends; None where the
        system has none to give."""

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left since `stop`."""

    def poll(self) -> int | None:
        """The exit code of the program, once it has ended."""

    @property
    def is_signalled(self) -> bool:
        """Whether the signals of `stop` were sent, whatever they do."""

    @property
    def is_lapsed(self) -> bool:
        """Whether it was killed because our lease over it has passed."""

    def stop(self, grace: float) -> None:
        """Tells everything to end, and does not wait for it."""

    def kill(self) -> None:
        """Ends everything now; waits for it, for a bounded time."""

    def hold(self, fd: int) -> None:
        """Keeps a descriptor (a lock) open for as long as anything of it lives."""

    def release(self, fd: int) -> None:
        """Takes back what `hold` said, before the descriptor is closed."""

    def close(self) -> None: ...


class ProcessTree:
    """A program and all that it started: one mark on them, one end for them."""

    def __init__(self, program: Program, run_id: str, grace: float) -> None:
        self.run_id, self._owner = run_id, os.getpid()
        self._program, self._grace, self._is_stopping = program, grace, False
        # Runs at interpreter exit too, and when the child is forgotten without leaving its block.
        self._last_resort = weakref.finalize(self, _kill, program, self._owner)

    @property
    def exit_code(self) -> int | None:
        return self._program.poll()

    @property
    def is_lapsed(self) -> bool:
        """Was it killed because our lease over it has passed?"""
        return self._program.is_lapsed

    @property
    def pid(self) -> int:
        return self._program.pid

    @property
    def is_stopped(self) -> bool:
        """Is it stopped by SIGSTOP?"""
        try:
            status: str = psutil.Process(self.pid).status()
        except psutil.Error:
            return False
        return status == psutil.STATUS_STOPPED

    async def stop(self) -> None:
        """TERM, then KILL after the grace, for the whole tree. Returns when it is gone."""
        if os.getpid() != self._owner:
            return  # A fork that leaves our block; the program is not its own.
        # Before any await: a second cancellation cannot take it back.
        self.begin_stop()
        try:
            await self._wait(lambda: self._program.is_gone, self._grace + _KILL_WAIT_SECONDS)
        finally:
            if self._program.is_gone:
                self.kill()  # Nothing is left to do but to close it.
            else:
                await run_off_loop(self.kill)

    def shorten_grace(self, seconds: float) -> None:
        """Gives it no more than that between TERM and KILL."""
        self._grace = min(self._grace, seconds)

    def begin_stop(self) -> None:
        """Asks for the signals that `stop` waits for."""
        if not self._is_stopping:
            self._is_stopping = True
            self._program.stop(self._grace)

    async def wait_signalled(self) -> None:
        """Returns when the signals are sent: whatever follows, the program does not see."""
        await self._wait(
            lambda: self._program.is_signalled or self._program.is_gone, _SIGNAL_WAIT_SECONDS
        )

    def hold(self, fd: int) -> None:
        """Keeps a lock for as long as anything of the tree lives, even if we do not."""
        self._program.hold(fd)

    def release(self, fd: int) -> None:
        self._program.release(fd)

    def kill(self) -> None:
        """End the whole tree now, without waiting for manners."""
        self._last_resort()

    async def _wait(self, is_over: Callable[[], bool], limit: float) -> None:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + limit, 0.002
        while not is_over() and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.05)


def _kill(program: Program, owner: int) -> None:
    if os.getpid() == owner:  # A fork inherits this call, but not the right to make it.
        program.kill()
        program.close()


class Child(ProcessTree):
    """A process in a session of its own, its output in files, its descendants marked.

    Making one starts the process, and may be done in any thread; `async with` reads its output;
    leaving the block ends it and all that it started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str],
        stdin: bytes | OpenInput = b"",
        grace: float = 5.0,
        kept: Sequence[int] = (),
    ) -> None:
        run_id = uuid.uuid4().hex
        with ExitStack() as opened:
            self._stdout = opened.enter_context(closing(Capture()))
            self._stderr = opened.enter_context(closing(Capture()))
            program = _start_program(
                command,
                marked(env, run_id),
                stdin,
                (self._stdout, self._stderr),
                cwd=cwd,
                run_id=run_id,
                kept=kept,
            )
            opened.pop_all()
        super().__init__(program, run_id, grace)
        self._watch: FileWatch | None = None
        self._nudged = self._has_more = False

    async def __aenter__(self) -> Child:
        try:
            self._watch = FileWatch(self._stdout.reader, self._program.end_fd())
        except BaseException:
            self.discard()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            self._close()

    def discard(self) -> None:
        """Ends a process whose output will not be read."""
        self.kill()
        self._close()

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._stdout.close()
        self._stderr.close()

    @property
    def written(self) -> int:
        """How many bytes it has said, read or not."""
        return self._stdout.size()

    def wake_reader(self) -> None:
        """Makes a waiting `read` return: there is something to report that is not output."""
        self._nudged = True
        if self._watch is not None:
            self._watch.wake()

    async def read(self) -> bytes | None:
        """The next piece of stdout, waiting for one; empty at the true end, None on a nudge."""
        assert self._watch is not None
        while True:
            # Asked before the read: what a child wrote, it wrote before it ended. While there is
            # more to read than fits, nobody waits, and so nobody is told of the end.
            is_doubtful = self._watch.may_have_ended or self._has_more
            ended = is_doubtful and self._program.poll() is not None
            if ended:
                self._stdout.skip_hole()
            if data := self._stdout.read(CHUNK):
                self._watch.reset_pause()
                self._has_more = len(data) == CHUNK
                return data
            if ended:
                return b""
            if self._nudged:
                self._nudged = False
                return None
            await self._watch.wait()

    def stderr(self, clean: Callable[[str], str] = str) -> str:
        """The beginning and the end of what it complained about, each passed through `clean`."""
        return self._stderr.head_and_tail(STDERR_KEPT).cleaned(clean)


class OpenInput:
    """A pipe to the stdin of a child that gets its input later; POSIX only."""

    _open: ClassVar[weakref.WeakSet[OpenInput]] = weakref.WeakSet()

    def __init__(self, first: bytes) -> None:
        """`first` is there from the start."""
        self.reader, self._writer = os.pipe()
        self._open.add(self)
        os.set_blocking(self._writer, False)
        os.write(self._writer, first)

    def close_reader(self) -> None:
        """Our copy of the child's end is not needed once the child has it."""
        os.close(self.reader)
        self.reader = -1

    async def send(self, data: bytes) -> None:
        """Writes the rest of the input and closes the pipe. BrokenPipeError if the child has ended;
        TimeoutError if it does not read."""
        # On the loop: in a thread, a few children that do not read would keep every other run
        # from starting.
        left = memoryview(data)
        async with asyncio.timeout(_INPUT_WAIT_SECONDS):
            while left:
                try:
                    left = left[os.write(self._writer, left) :]
                except BlockingIOError:
                    await self._wait_for_room()
        self.close()

    async def _wait_for_room(self) -> None:
        loop, has_room = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._writer, has_room.set)
        try:
            await has_room.wait()
        finally:
            loop.remove_writer(self._writer)

    def close(self) -> None:
        for end in (self.reader, self._writer):
            if end >= 0:
                os.close(end)
        self.reader = self._writer = -1

    @classmethod
    def close_all(cls) -> None:
        """In a fork, which would keep the children waiting for the end of their input."""
        for one in [*cls._open]:
            one.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OpenInput.close_all)


class HeadAndTail(NamedTuple):
    """What is kept of a long text, with a margin at both cuts."""

    head: str
    tail: str = ""
    half: int = 0
    size: int = 0

    def cleaned(self, clean: Callable[[str], str]) -> str:
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

    def skip_hole(self) -> None:
        """Passes over what nobody wrote: a command can make the file as long as it likes."""
        if not hasattr(os, "SEEK_DATA"):
            return
        here = os.lseek(self.reader, 0, os.SEEK_CUR)
        try:
            os.lseek(self.reader, here, os.SEEK_DATA)
        except OSError as error:  # Nothing is left but holes; or the file system knows none.
            is_over = error.errno == errno.ENXIO
            os.lseek(self.reader, *((0, os.SEEK_END) if is_over else (here, os.SEEK_SET)))

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

    def close_writer(self) -> None:
        """Closes our copy of the child's end: the child has its own."""
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


def _start_program(
    command: Sequence[str],
    env: Mapping[str, str],
    stdin: bytes | OpenInput,
    captures: tuple[Capture, Capture],
    **how: Any,
) -> Program:
    stdout, stderr = captures
    try:
        with _readable(stdin) as source:
            stdio = (source, stdout.writer, stderr.writer)
            program = start_program(command, env=env, stdio=stdio, **how)
    except OSError as error:
        raise _cannot_start(command[0], error) from error
    stdout.close_writer()
    stderr.close_writer()
    return program


@contextmanager
def _readable(stdin: bytes | OpenInput) -> Iterator[int]:
    """A descriptor to read the input from, for as long as it takes to start a child.

    A file, unless the input comes later: it is complete from the start, so nothing is written while
    the child runs and a child that does not read it harms nobody.
    """
    if isinstance(stdin, OpenInput):
        yield stdin.reader
        stdin.close_reader()
        return
    with open_nameless_file(stdin) as source:
        yield source


def start_program(
    command: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str],
    stdio: tuple[int, int, int],
    run_id: str,
    kept: Sequence[int] = (),
) -> Program:
    """Starts a program apart from our own signals; an error that says what to do where it fails.

    `kept` are descriptors that stay open for as long as anything of the run lives, where there is
    a keeper for them.
    """
    try:
        if KEEPERS.is_available():
            kept = [*kept, *held()]
            return KEEPERS.start(command, cwd=cwd, env=env, stdio=stdio, run_id=run_id, kept=kept)
        if AGENT_LEASE.is_set:
            raise Unsupported(NO_KEEPERS)
        return start_marked(command, cwd=cwd, env=env, stdio=stdio, run_id=run_id)
    except OSError as error:
        raise _cannot_start(command[0], error) from error
    except ValueError as error:
        raise InvalidOptions(f"cannot start {command[0]}: {error}") from error


def _cannot_start(what: str, error: OSError) -> SetupError:
    text = f"cannot start {what}: {error.strerror or error}"
    if isinstance(error, LeaseExpired):
        return SetupError(text, hint="renew it before the next run", retryable=True)
    if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR):
        return CliNotFound(text)
    if error.errno in NO_DESCRIPTOR:
        return SetupError(text, hint=FEWER_DESCRIPTORS)
    return SetupError(text, hint="free memory, disk space or processes, and try again")
