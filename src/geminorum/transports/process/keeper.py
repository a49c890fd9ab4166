"""The way to the keepers: a program and its files in, a process that cannot outlive us out."""

from __future__ import annotations

import atexit
import errno
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path

from geminorum.system.reserve import RESERVE
from geminorum.transports.process import keeper_program as program
from geminorum.transports.process.inherited import identity, limits, umask
from geminorum.transports.process.lease_memory import LEASE_MEMORY, LeaseExpired
from geminorum.transports.process.marked_tree import kill_everything
from geminorum.transports.process.nameless_file import open_nameless_file

_START_WAIT_SECONDS, _KILL_WAIT_SECONDS = 20.0, 2.0
_LOST = "the process that keeps the runs was killed"
_LAPSED = "the lease of this process over its agents has passed"


class KeptProcess:
    """A program below a keeper."""

    def __init__(
        self, line: socket.socket, end: FileIO, pid: int, family: tuple[int, int], run_id: str
    ) -> None:
        """`family` are the server and the keeper."""
        self.pid, self._line, self._end, self._run_id = pid, line, end, run_id
        self._server, self._keeper = family
        self._exit_code: int | None = None
        self._is_signalled = self._is_gone = self._is_lost = self._is_lapsed = False
        self._listening = threading.Lock()

    def end_fd(self) -> int | None:
        # Not the line: what somebody else has heard on it does not wake anybody.
        try:
            return os.dup(self._end.fileno())
        except OSError:
            return None

    @property
    def is_gone(self) -> bool:
        self._listen(0)
        return self._is_gone

    def poll(self) -> int | None:
        if self._exit_code is None:  # It ends once, and a reader of long output asks often.
            self._listen(0)
        return self._exit_code

    def stop(self, grace: float) -> None:
        self._wake_keeper()
        self._say(program.STOP + str(grace).encode())

    @property
    def is_signalled(self) -> bool:
        self._listen(0)
        return self._is_signalled

    @property
    def is_lapsed(self) -> bool:
        self._listen(0)
        return self._is_lapsed

    def kill(self) -> None:
        if self._is_gone and not self._is_lost:
            return
        self._wake_keeper()
        self._say(program.KILL)
        self._listen(_KILL_WAIT_SECONDS)
        if not self._is_gone:
            # It does not hear us; without it, what it kept is the server's to end.
            self._signal_keeper(signal.SIGKILL)
            self._listen(_KILL_WAIT_SECONDS)
        if self._is_lost or not self._is_gone:
            with RESERVE.spend():
                kill_everything(None, self._run_id)

    def _wake_keeper(self) -> None:
        """An agent of the same user may have stopped it."""
        self._signal_keeper(signal.SIGCONT)

    def _signal_keeper(self, number: signal.Signals) -> None:
        program.signal_child(self._server, os.getpid(), signal.SIGCONT)
        program.signal_child(self._keeper, self._server, number)

    def hold(self, fd: int) -> None:
        word = program.HOLD + str(fd).encode()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))
        with suppress(OSError):  # Not `send_fds`, which passes over its flags.
            self._line.sendmsg([word], [rights], socket.MSG_DONTWAIT)

    def release(self, fd: int) -> None:
        self._say(program.RELEASE + str(fd).encode())

    def close(self) -> None:
        if not self._is_gone:
            self._hear(b"")  # Nothing more will be said.
        self._line.close()
        self._end.close()

    def _say(self, word: bytes) -> None:
        with suppress(OSError):
            self._line.send(word, socket.MSG_DONTWAIT)

    def _listen(self, seconds: float) -> None:
        """Until nothing is left of the tree, or nothing more is said for so long."""
        # A thread that ends the tree listens for seconds; the event loop need not wait for that.
        if not self._listening.acquire(blocking=seconds > 0):
            return
        try:
            while not self._is_gone and _is_readable(self._line, seconds):
                self._hear(_next_message(self._line, 0))
        finally:
            self._listening.release()

    def _hear(self, message: bytes) -> None:
        word, number = message[:1], message[1:]
        if word == program.EXITED:
            self._exit_code = int(number)
            return
        if word == program.SIGNALLED:
            self._is_signalled = True
            return
        if word == program.LAPSED:
            self._is_lapsed = self._exit_code is None
            return
        self._is_gone, self._is_lost = True, word != program.GONE
        if self._exit_code is None:
            self._exit_code = -signal.SIGKILL


class KeeperServer:
    """Our end of the process that forks the keepers.

    It is started when a keeper is first needed, and again after it was killed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: tuple[object, ...] = ()
        self._link: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._is_ready = False

    @property
    def pid(self) -> int | None:
        """Of the server, while there is one."""
        return self._program.pid if self._program is not None else None

    def prepare(self) -> None:
        """Starts the server where there is none, and does not wait for it."""
        with self._lock, suppress(OSError):  # The next caller tries again, and reports the failure.
            self._launch_if_needed()

    def is_available(self) -> bool:
        """Linux 5.4, and a Python that we can start."""
        with self._lock:
            return self._link_to_server() is not None

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        stdio: tuple[int, int, int],
        run_id: str,
        kept: Sequence[int] = (),
    ) -> KeptProcess:
        """OSError and ValueError as by `subprocess.Popen`."""
        with ExitStack() as stack:
            ours, theirs = map(stack.enter_context, _line())
            end, ending = map(stack.enter_context, _pipe())
            with theirs, ending, open_nameless_file(_encode(command, cwd, env)) as request:
                self._send([request, theirs.fileno(), ending.fileno(), *stdio, *kept])
            pid, keeper = _pids_of_started(ours, command[0])
            stack.pop_all()
        return KeptProcess(ours, end, pid, (self.pid or 0, keeper), run_id)

    def close(self) -> None:
        """Hangs up. The server ends once its runs have ended."""
        with self._lock:
            if self._link is not None and self._owner == identity():
                self._forget()

    def _send(self, fds: Sequence[int]) -> None:
        with self._lock:
            for _ in range(2):  # Once more where it was killed since.
                link = self._link_to_server()
                if link is None:
                    break
                try:
                    self.wake()
                    socket.send_fds(link, [b"run"], fds)
                    return
                except ConnectionError:
                    self._forget()
        raise OSError(errno.ECONNRESET, _LOST)

    def wake(self) -> None:
        """Has the server look at the lease, and go on if an agent of the same user has stopped it.
        Takes no lock: a signal handler may call it."""
        server = self._program
        with suppress(OSError):
            if server is not None:
                server.send_signal(signal.SIGCONT)

    def _link_to_server(self) -> socket.socket | None:
        """The way to the server; None where none can be had."""
        self._launch_if_needed()
        self.wake()
        if self._link is not None and not self._is_ready:
            self._is_ready = _next_message(self._link, _START_WAIT_SECONDS) == program.READY
            if not self._is_ready:
                self._give_up()
        return self._link

    def _launch_if_needed(self) -> None:
        was_killed = self._program is not None and self._program.poll() is not None
        if self._owner != identity() or was_killed:
            self._forget()
            # A user who may not run our Python has runs all the same.
            with suppress(FileNotFoundError, PermissionError):
                if _is_supported():
                    self._launch()
            self._owner = identity()

    def _launch(self) -> None:
        self._is_ready = False
        with ExitStack() as stack:
            ours, theirs = map(stack.enter_context, _line())
            fds = [theirs.fileno(), LEASE_MEMORY.descriptor()]
            words = ["-I", "-S", program.__file__, *map(str, (os.getpid(), *fds))]
            # A list and no shell, and nothing of the caller in it.
            self._program = subprocess.Popen(  # nosec B603
                [sys.executable, *words],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={},
                cwd="/",
            )
            theirs.close()
            stack.pop_all()
        self._link = ours

    def _give_up(self) -> None:
        """Kills a server that does not start; there is no second try."""
        if self._program is not None:
            self._program.kill()
        self._forget()

    def start_over(self) -> None:
        """In a fork: the server is our parent's."""
        self._lock = threading.Lock()
        self._owner = ()
        if self._link is not None:
            self._link.close()
        if self._program is not None:
            self._program.returncode = 0  # Not ours to wait for.
        self._link = self._program = None

    def _forget(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._program is not None:
            _wait_for_end(self._program, _KILL_WAIT_SECONDS)
        self._link = self._program = None


def _wait_for_end(program: subprocess.Popen[bytes], seconds: float) -> None:
    """Returns as soon as it has ended: `Popen.wait` with a limit looks only now and then."""
    if sys.platform == "linux" and program.returncode is None:
        with suppress(OSError), FileIO(os.pidfd_open(program.pid), "r") as end:
            _is_readable(end, seconds)
            seconds = 0
    with suppress(subprocess.TimeoutExpired):
        program.wait(seconds)


def _is_supported() -> bool:
    return sys.platform == "linux" and bool(sys.executable) and Path(program.__file__).is_file()


def _line() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _pipe() -> tuple[FileIO, FileIO]:
    reader, writer = os.pipe()
    return FileIO(reader, "r"), FileIO(writer, "w")


def _encode(command: Sequence[str], cwd: Path | None, env: Mapping[str, str]) -> bytes:
    """As the system wants it: whatever stands in our locale, the server need not know."""
    words = [os.fsencode(word) for word in command]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    if any(b"\0" in word for word in (*words, *variables, *variables.values())):
        raise ValueError("embedded null byte")
    if any(b"=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    folder = os.fsencode(cwd or Path.cwd())
    return marshal.dumps((words, folder, variables, umask(), limits(), LEASE_MEMORY.term))


def _pids_of_started(line: socket.socket, name: str) -> tuple[int, int]:
    """Of the program and of its keeper."""
    message = _next_message(line, _START_WAIT_SECONDS)
    word, numbers = message[:1], [int(number) for number in message[1:].split()]
    if word == program.STARTED:
        return numbers[0], numbers[1]
    if word == program.FAILED:
        raise OSError(numbers[0], os.strerror(numbers[0]), name)
    if word == program.LAPSED:
        raise LeaseExpired(errno.ETIME, _LAPSED, name)
    raise OSError(errno.ECONNRESET, _LOST, name)


def _is_readable(line: socket.socket | FileIO, seconds: float) -> bool:
    poller = select.poll()
    poller.register(line, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _next_message(line: socket.socket, seconds: float) -> bytes:
    if not _is_readable(line, seconds):
        return b""
    try:
        return line.recv(64)
    except ConnectionError:
        # It ended before it had read what we said; what it said before is still there.
        return _last_message(line)


def _last_message(line: socket.socket) -> bytes:
    try:
        return line.recv(64)
    except ConnectionError:
        return b""


KEEPERS = KeeperServer()
atexit.register(KEEPERS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=KEEPERS.start_over)
