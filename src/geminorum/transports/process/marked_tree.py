"""A program without a keeper: its descendants are found by their parents and by a mark.

For systems where nothing like a subreaper exists (macOS, Windows, Linux before 5.4), and for the
last resort where a keeper was killed. A process that gives up both its parent and its environment
is not found.
"""

from __future__ import annotations

import ntpath
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geminorum.runtime.lazy import psutil
from geminorum.system.reserve import RESERVE
from geminorum.transports.process.file_watch import pidfd
from geminorum.transports.process.watcher import WATCHER
from geminorum.transports.process.windows_job import Job

if TYPE_CHECKING:
    from psutil import Process

MARKER = "GEMINI_CLI_GEMINORUM_RUN"
"""A variable that every descendant inherits, wherever it moves. The CLI's own redaction of
environments lets names with this beginning through."""
_KILL_ROUNDS, _KILL_PAUSE = 50, 0.005
_KILL_WAIT = 0.5
_KILL_SIGNAL = getattr(signal, "SIGKILL", signal.SIGTERM)
_EXEC_ROUNDS, _EXEC_PAUSE = 100, 0.002
_NO_PROGRAM = 0x00200000 | 0x00000004
"""Linux's flags of a thread of the kernel, and of a process that is ending."""


class MarkedProcess:
    """A child process; `Program` says what each name means."""

    is_lapsed = False
    """There are no leases without keepers."""

    def __init__(self, popen: subprocess.Popen[bytes], run_id: str, job: Job) -> None:
        self.pid, self._popen, self._run_id, self._job = popen.pid, popen, run_id, job
        self._tree: list[Process] = []
        self.is_signalled = False

    def end_fd(self) -> int | None:
        return pidfd(self.pid)

    def poll(self) -> int | None:
        return self._popen.poll()

    @property
    def is_gone(self) -> bool:
        with RESERVE.spend(), suppress(OSError):
            return not any(map(_alive, self._tree))
        return False

    def stop(self, grace: float) -> None:
        with RESERVE.spend(), self._signal_group_on_failure(signal.SIGTERM):
            # The snapshot comes first: once the parent is dead, nobody knows its children by it.
            self._tree = descendants(self._popen, self._run_id)
            _signal(self._tree, "terminate")
        self.is_signalled = True

    def kill(self) -> None:
        with RESERVE.spend(), self._signal_group_on_failure(_KILL_SIGNAL):
            _signal(self._tree, "kill")
            kill_everything(self._popen, self._run_id)

    @contextmanager
    def _signal_group_on_failure(self, number: signal.Signals) -> Iterator[None]:
        """Signals the group if descriptors are short and the tree cannot be read."""
        try:
            yield
        except OSError:
            if sys.platform == "win32":
                self._popen.kill()
            elif self._popen.poll() is None:
                os.killpg(self.pid, number)

    def hold(self, fd: int) -> None:
        pass  # There is nobody else to hold it.

    def release(self, fd: int) -> None:
        pass

    def close(self) -> None:
        self._job.close()
        if sys.platform != "win32":
            WATCHER.forget(self._run_id)


def start_marked(
    command: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str],
    stdio: tuple[int, int, int],
    run_id: str,
) -> MarkedProcess:
    stdin, stdout, stderr = stdio
    if sys.platform != "win32":
        WATCHER.watch(run_id)
    # A list and no shell: what the caller gave stands in `--flag=value` words or on stdin.
    popen = subprocess.Popen(  # nosec B603
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        **own_group(sys.platform),
    )
    job = Job()
    job.add(int(getattr(popen, "_handle", 0)))
    return MarkedProcess(popen, run_id, job)


def marked(env: Mapping[str, str], run_id: str) -> dict[str, str]:
    """The environment with the run's mark in it, beside those of runs around it."""
    return {**env, MARKER: f"{env.get(MARKER, '')},{run_id}"}


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


def descendants(popen: subprocess.Popen[bytes] | None, run_id: str) -> list[Process]:
    """Every living process of the run: the child, what descends from it, and what moved away."""
    found: dict[int, Process] = {}
    if popen is not None and popen.poll() is None:
        with suppress(psutil.Error):
            root = psutil.Process(popen.pid)
            found = {process.pid: process for process in (root, *root.children(recursive=True))}
    for process in find_marked(run_id):
        found.setdefault(process.pid, process)
    return [process for process in found.values() if _alive(process)]


def find_marked(run_id: str) -> list[Process]:
    """The processes that carry the run's mark in their environment.

    Shell tools run in sessions of their own, and lose their parent when the CLI dies; the mark is
    what they cannot lose.
    """
    mark = run_id.encode()
    pids = [pid for pid in _pids() if pid != os.getpid() and _is_marked(_environment(pid), mark)]
    if not pids:
        # The usual end of a run; it need not load psutil, which takes longer than the search.
        return []
    processes = []
    for pid in pids:
        with suppress(psutil.Error):
            processes.append(psutil.Process(pid))
    return processes


def _pids() -> list[int]:
    if sys.platform == "linux":
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return psutil.pids()


def _is_marked(environment: bytes, run_id: bytes) -> bool:
    """Is the run among those that the mark names? What other variables say is no mark."""
    if run_id not in environment:
        return False  # Nearly all; the rest is looked at closely.
    start = f"{MARKER}=".encode()
    marks = [one for one in environment.split(b"\0") if one.startswith(start)]
    return any(run_id in mark.removeprefix(start).split(b",") for mark in marks)


def _environment(pid: int) -> bytes:
    if sys.platform == "linux":
        # psutil would parse it into a dict first; there may be thousands of processes.
        with suppress(OSError):
            return _read_proc(pid, "environ") or _environ_after_exec(pid)
        return b""
    with suppress(psutil.Error, OSError):
        return f"{MARKER}={psutil.Process(pid).environ().get(MARKER, '')}".encode()
    return b""


def _environ_after_exec(pid: int) -> bytes:
    """The environment of a process. In the middle of an exec it is empty, so it is read again."""
    for _ in range(_EXEC_ROUNDS):
        # Asked before the read: what it has after the exec, it has from its end on.
        settled = not _is_in_exec(_read_proc(pid, "stat"))
        if (data := _read_proc(pid, "environ")) or settled:
            return data
        time.sleep(_EXEC_PAUSE)
    return b""


def _is_in_exec(stat: bytes) -> bool:
    """Whether a line of /proc/PID/stat tells of a living program whose environment has no place."""
    # The name stands in brackets and may hold anything; the state is the first field behind it.
    state, *fields = stat.rpartition(b")")[2].split()
    flags, environment_end = int(fields[5]), int(fields[47])
    return state not in b"ZX" and not flags & _NO_PROGRAM and environment_end == 0


def _read_proc(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - a Path each is slower
        return file.read()


def _alive(process: Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _signal(processes: Sequence[Process], name: str) -> None:
    if not processes:
        return
    for process in processes:
        with suppress(psutil.Error):
            getattr(process, name)()


def kill_everything(popen: subprocess.Popen[bytes] | None, run_id: str) -> None:
    """KILL until nothing of the run is left. Synchronous: it also runs while Python shuts down."""
    for _ in range(_KILL_ROUNDS):
        tree = descendants(popen, run_id)
        if not tree:
            break
        if sys.platform == "win32" and popen is not None and popen.poll() is None:
            kill = taskkill(popen.pid)  # A list and no shell, and of the caller only a number.
            subprocess.run(kill, capture_output=True, check=False, timeout=10)  # nosec B603
        _signal(tree, "kill")
        time.sleep(_KILL_PAUSE)
    if popen is not None:
        with suppress(subprocess.TimeoutExpired):
            popen.wait(_KILL_WAIT)
