"""The keepers: each starts the program of a run, and ends it with all that it started.

A server, which runs as a process of its own without the rest of the package, forks one keeper per
run. A keeper is a subreaper: whatever loses its parent below it, by `setsid`, by `nohup` or by an
empty environment, becomes its child, so nothing escapes. It ends the tree when it is told to, when
its owner hangs up, when its owner dies (also by kill -9), when the server dies, and when its owner
has set a lease and has not renewed it in time.

Linux only, standard library only: a fork of it costs a millisecond and half a megabyte.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import marshal
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time

# Nothing is loaded by the forks, and only what they need by the server: a run waits for both.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, TIMER_ABSTIME = 1, 36, 1
MAX_FDS = 32
ORPHAN_GRACE_SECONDS = 1.0
"""How long a tree may take to end by itself when its owner is gone."""
KEEPERS_END_SECONDS = 2.5
"""How long keepers may take altogether when the owner is gone, before they are killed."""
SERVER_END_SECONDS, SERVER_PAUSE_SECONDS = 30.0, 0.05
"""How long the server tries to end what is left, and how often it looks."""
KILL_PAUSE_SECONDS, KILL_ROUNDS = 0.005, 6000
STOP, KILL, HOLD, RELEASE = b"s", b"k", b"h", b"r"
"""What an owner says: STOP with the seconds of grace, HOLD and RELEASE with a name for the
descriptor that is to be kept."""
READY, STARTED, FAILED, EXITED, SIGNALLED, GONE = b"r", b"p", b"f", b"e", b"s", b"g"
"""What the server says at first, and what a keeper says: a pid, an errno, an exit code, that
everything was told to end, and that nothing is left."""
LAPSED = b"l"
"""What a keeper says before it kills, or instead of a start: the lease has passed."""
DEADLINE, TERM, LEASE_BYTES = 0, 1, 16
"""The two numbers of a lease: a time of CLOCK_BOOTTIME in nanoseconds (0: there is no lease), and
how often a lease has passed. This clock goes on while the machine sleeps, as others' clocks do."""
OWN_CHILDREN = "/proc/thread-self/children"
"""Where the system tells of them."""
LEASE_CHECK_SECONDS = 0.25
"""How often a lease is looked at where the system gives us no timer."""

_libc = ctypes.CDLL(None)


class Owner:
    """The process that we work for; it may die without a word."""

    def __init__(self, pid: int) -> None:
        self.fd = os.pidfd_open(pid)

    def is_dead(self) -> bool:
        return bool(select.select([self.fd], [], [], 0)[0])


class Wakeups:
    """A pipe that becomes readable when a signal arrives."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGCONT):
            signal.signal(number, lambda *_: None)

    def drain(self) -> bytes:
        try:
            return os.read(self.reader, 4096)
        except BlockingIOError:
            return b""


class Lease:
    """Until when the owner lets its agents live: memory that the owner writes and we read."""

    def __init__(self, memory: int) -> None:
        self._cells = memoryview(mmap.mmap(memory, LEASE_BYTES, access=mmap.ACCESS_READ)).cast("q")
        os.close(memory)
        self._timer = _make_timer()

    def state(self) -> tuple[int, int]:
        """The term, and the deadline if that has passed: it changes with each lease that passes."""
        term, deadline = self._cells[TERM], self._cells[DEADLINE]
        return term, deadline if deadline <= _now() else 0

    def has_passed(self, term: int) -> bool:
        """Also where the owner has begun another term before we could look."""
        return self.state() != (term, 0)

    def arm(self) -> float | None:
        """Has a signal wake us at the deadline; for how long we may wait for it (None: forever)."""
        deadline = self._cells[DEADLINE]
        if deadline <= _now():
            return None
        if self._timer is not None:
            at = (ctypes.c_long * 4)(0, 0, *divmod(deadline, 10**9))
            if _libc.timer_settime(self._timer, TIMER_ABSTIME, at, None) == 0:
                return None
        return LEASE_CHECK_SECONDS


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _make_timer() -> ctypes.c_void_p | None:
    """A timer that sends SIGCONT: it wakes us even where an agent of the same user has stopped us,
    and counts the time that the machine slept. None where the system has none."""
    timer, event = ctypes.c_void_p(), (ctypes.c_int * 16)()  # `struct sigevent`
    event[ctypes.sizeof(timer) // ctypes.sizeof(ctypes.c_int)] = signal.SIGCONT
    try:
        failed = _libc.timer_create(time.CLOCK_BOOTTIME, event, ctypes.byref(timer))
    except AttributeError:  # An old libc has it in another library.
        return None
    return None if failed else timer


def main(owner_pid: int, link_fd: int, memory_fd: int) -> None:
    link = socket.socket(fileno=link_fd)
    link.set_inheritable(False)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # An agent of the same user may stop us, but not keep us from the end of our owner.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    # A collection would touch, and so copy, the pages that all forks share.
    gc.disable()
    owner = Owner(owner_pid)
    if os.getppid() == owner_pid:
        lease = Lease(memory_fd)
        link.send(READY)
        Server(owner, link, lease).serve()


class Server:
    """Forks a keeper for every request, and ends what a killed keeper leaves behind."""

    def __init__(self, owner: Owner, link: socket.socket, lease: Lease) -> None:
        self._owner, self._link, self._lease = owner, link, lease
        self._wakeups = Wakeups()
        self._keepers: set[int] = set()
        self._told = lease.state()

    def serve(self) -> None:
        while not self._owner.is_dead():
            if self._link.fileno() in self._wait(self._link.fileno()) and not self._accept():
                break
            self._reap()
        # An owner that only hung up lets its runs go on.
        while self._keepers and not self._owner.is_dead():
            self._wait()
            self._reap()
        self._end_what_is_left()

    def _wait(self, *fds: int) -> set[int]:
        """Until one of them is readable, a signal came, or the lease may have passed."""
        # In this order: what passes behind the look wakes us.
        seconds = self._lease.arm()
        self._tell_of_lapse()
        return _poll([*fds, self._owner.fd, self._wakeups.reader], seconds)

    def _tell_of_lapse(self) -> None:
        """Wakes the keepers when a lease has passed, also those that an agent has stopped. A timer
        in each of them would cost a hundred times as much while it is renewed."""
        state = self._lease.state()
        if state != self._told:
            self._told = state
            for keeper in self._keepers:
                os.kill(keeper, signal.SIGCONT)  # Not reaped yet: the number is its own.

    def _end_what_is_left(self) -> None:
        """Until there is nothing: what a killed keeper kept comes to us generation by generation.
        Not forever: what is another user's by now does not obey."""
        # Each keeper sees by itself that the owner is gone, unless somebody has stopped it.
        for keeper in self._keepers:
            signal_child(keeper, os.getpid(), signal.SIGCONT)
        began = time.monotonic()
        while _children() and time.monotonic() - began < SERVER_END_SECONDS:
            _poll([self._wakeups.reader], SERVER_PAUSE_SECONDS)
            self._reap()
            if time.monotonic() - began > KEEPERS_END_SECONDS:
                self._keepers.clear()
            self._kill_orphans()

    def _accept(self) -> bool:
        """Handles one request; False when the owner is gone."""
        data, fds = _received(self._link)
        if not data:
            return False
        try:
            pid = os.fork()
        except OSError as error:  # Too many processes: that is this run's trouble, and no other's.
            _refuse(fds, error.errno or errno.EAGAIN)
            return True
        if pid == 0:
            _become_keeper(self._owner, self._link, self._lease, fds)
        self._keepers.add(pid)
        for fd in fds:
            os.close(fd)
        return True

    def _reap(self) -> None:
        self._wakeups.drain()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._keepers.discard(pid)
            if status:
                self._kill_orphans()

    def _kill_orphans(self) -> None:
        """A keeper that was killed, or one of its orphans: what it kept has come to us."""
        for orphan in _children() - self._keepers:
            signal_child(orphan, os.getpid(), signal.SIGKILL)


def _refuse(fds: list[int], number: int) -> None:
    request, line, *others = fds
    with socket.socket(fileno=line) as told:
        told.send(FAILED + str(number).encode())
    for fd in (request, *others):
        os.close(fd)


def _become_keeper(owner: Owner, link: socket.socket, lease: Lease, fds: list[int]) -> NoReturn:
    """In the fork: never returns, whatever happens."""
    server = os.getppid()
    try:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        link.close()
        if os.getppid() == server:
            Keeper(owner, lease, fds).keep()
        os._exit(0)
    finally:
        os._exit(1)  # The server ends what is left.


class Keeper:
    """One run: its program, and whatever that leaves without a parent.

    The file descriptors are: the request, the line to the owner, a pipe that is closed when the
    program ends, stdin, stdout, stderr of the program, and any number that stay open for as long
    as anything of the run lives (locks).
    """

    def __init__(self, owner: Owner, lease: Lease, fds: list[int]) -> None:
        self._owner, self._lease = owner, lease
        self._wakeups = Wakeups()
        request, line, self._end, *self._stdio = fds[:6]
        self._locks = fds[6:]
        self._line = socket.socket(fileno=line)
        with open(request, "rb") as file:
            # Of our owner's own making, and it has no name by which others could write it.
            told = marshal.load(file)  # nosec B302
        self._command, self._cwd, self._env, self._umask, self._limits, self._term = told
        self._pid = 0
        self._held: dict[bytes, int] = {}

    def keep(self) -> None:
        if _poll([self._line.fileno()], 0):
            return  # The process that asked for it has given up.
        if self._has_lapsed():
            return
        try:
            self._pid = self._start()
        except OSError as error:
            self._say(FAILED, error.errno or 0)
            return
        self._say(STARTED, self._pid, os.getpid())
        grace = self._wait()
        self._end_tree(grace)
        # First: a process that learns of the end of the run may take its locks at once.
        for fd in (*self._locks, *self._held.values()):
            os.close(fd)
        self._say(GONE, 0)

    def _start(self) -> int:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            self._become_program(writer)
        os.close(writer)
        for fd in self._stdio:
            os.close(fd)
        with open(reader, "rb") as file:
            problem = file.read()
        if problem:
            os.waitpid(pid, 0)
            raise OSError(int(problem), "")
        return pid

    def _become_program(self, problems: int) -> NoReturn:
        keeper = os.getppid()
        try:
            # Dies with its keeper; what it has started goes to the server, and dies there.
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.setsid()
            os.chdir(self._cwd)
            for number, fd in enumerate(_above_stdio(self._stdio)):
                os.dup2(fd, number)
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
            os.umask(self._umask)
            self._apply_limits()
            if os.getppid() == keeper:
                os.execvpe(self._command[0], self._command, self._env)  # nosec B606
        except (OSError, ValueError) as error:
            os.write(problems, str(getattr(error, "errno", 0) or errno.EINVAL).encode())
        finally:
            os._exit(127)

    def _apply_limits(self) -> None:
        for kind, limit in self._limits:
            if resource.getrlimit(kind) != limit:
                resource.setrlimit(kind, limit)

    def _wait(self) -> float:
        """Until the tree shall end; the seconds of grace that it has."""
        while True:
            ready = _poll([self._line.fileno(), self._owner.fd, self._wakeups.reader])
            is_orphaned = signal.SIGTERM in self._wakeups.drain()
            self._reap()
            if self._has_lapsed():
                return 0.0
            if is_orphaned or self._owner.is_dead():
                return ORPHAN_GRACE_SECONDS
            if self._line.fileno() in ready and (grace := self._hear()) is not None:
                return grace

    def _has_lapsed(self) -> bool:
        """Says so before anything is killed for it."""
        if has_passed := self._lease.has_passed(self._term):
            self._say(LAPSED)
        return has_passed

    def _hear(self) -> float | None:
        """One message: the grace that is left, or None where it is not about the end."""
        message, fds = _received(self._line)
        word, rest = message[:1], message[1:]
        if word == HOLD:
            if fds:  # None where we could take no more.
                self._held[rest] = fds[0]
        elif word == RELEASE:
            if rest in self._held:
                os.close(self._held.pop(rest))
        elif word == STOP:
            return float(rest)
        else:
            return 0.0 if word == KILL else ORPHAN_GRACE_SECONDS
        return None

    def _reap(self) -> bool:
        """Whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._pid = 0
                self._say(EXITED, os.waitstatus_to_exitcode(status))
                os.close(self._end)

    def _end_tree(self, grace: float) -> None:
        if grace > 0 and self._reap():
            _signal_all(signal.SIGTERM)
            self._say(SIGNALLED, 0)
            self._wait_for_end(grace)
        for _ in range(KILL_ROUNDS):
            if not self._reap():
                return
            _kill_all()
            time.sleep(KILL_PAUSE_SECONDS)

    def _wait_for_end(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        watched = {self._wakeups.reader, self._line.fileno(), self._owner.fd}
        while self._reap() and (left := deadline - time.monotonic()) > 0:
            ready = _poll([*watched], left)
            is_orphaned = signal.SIGTERM in self._wakeups.drain() or self._owner.is_dead()
            if self._line.fileno() in ready and self._hear() == 0:
                return
            if self._has_lapsed():
                return
            if is_orphaned and self._owner.fd in watched:
                # The owner, to whom the grace was promised, is gone.
                watched = {self._wakeups.reader}
                deadline = min(deadline, time.monotonic() + ORPHAN_GRACE_SECONDS)

    def _say(self, word: bytes, *numbers: int) -> None:
        try:
            self._line.send(word + " ".join(map(str, numbers)).encode())
        except OSError:
            pass  # The owner is gone.


def _received(link: socket.socket) -> tuple[bytes, list[int]]:
    """A message, and the descriptors that came with it."""
    size = socket.CMSG_SPACE(MAX_FDS * 4)
    try:
        data, ancillary, _, _ = link.recvmsg(64, size, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:  # It ended before it had read what we said.
        return b"", []
    raws = [raw[: len(raw) // 4 * 4] for _, _, raw in ancillary]
    return data, [fd for raw in raws for fd in memoryview(raw).cast("i")]


def _above_stdio(fds: list[int]) -> list[int]:
    """Copies that are in nobody's way when they become 0, 1 and 2."""
    return [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in fds]


def _poll(fds: list[int], seconds: float | None = None) -> set[int]:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return {fd for fd, _ in poller.poll(None if seconds is None else seconds * 1000)}


def _signal_all(number: int) -> None:
    """To every descendant, the oldest first."""
    parents = _parents()
    tree = {os.getpid()}
    for pid in sorted(parents, key=lambda pid: _depth(pid, parents)):
        if parents[pid] in tree:
            tree.add(pid)
            signal_child(pid, parents[pid], number)


def _kill_all() -> None:
    """Every descendant, the oldest first; what began meanwhile is the next round's."""
    if not os.path.exists(OWN_CHILDREN):
        _signal_all(signal.SIGKILL)
        return
    # Not by a look at every process of the system: where the keepers of a hundred runs end their
    # trees at once, that takes seconds.
    tree = [(child, os.getpid()) for child in _children_of(os.getpid())]
    for pid, _ in tree:
        tree.extend((child, pid) for child in _children_of(pid))
    for pid, parent in tree:
        signal_child(pid, parent, signal.SIGKILL)


def _children_of(pid: int) -> list[int]:
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass  # It has ended, and its children have come to us, or will.
    return found


def _depth(pid: int, parents: dict[int, int]) -> int:
    depth = 0
    while (pid := parents.get(pid, 0)) and depth < len(parents):
        depth += 1
    return depth


def signal_child(pid: int, parent: int, number: int) -> None:
    """Only while it is a child of this parent, or of ours: its number may be another's by now."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return  # It has ended meanwhile.
    try:
        if _parent_of(pid) in (parent, os.getpid()):
            signal.pidfd_send_signal(fd, number)
    except OSError:
        pass
    finally:
        os.close(fd)


def _children() -> set[int]:
    me = os.getpid()
    return {pid for pid, parent in _parents().items() if parent == me}


def _parents() -> dict[int, int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = {pid: _parent_of(pid) for pid in pids}
    return {pid: parent for pid, parent in found.items() if parent is not None}


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in brackets and may hold anything; the parent is the second field
            # behind it.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
    # The owner waits for our end, and Python would first tidy its memory.
    os._exit(0)
