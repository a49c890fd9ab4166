"""Processes that run our command, forked from one that has loaded everything already.

A test wants a real process: pipes, a terminal, signals, an exit code. What it does not want is to
wait each time while Python starts and the libraries load, which takes longer than most commands
do. So one process per test worker loads them once and then forks: a child of it is where a fresh
`python -m geminorum` is when its imports are done.

Run as a program this is that process. It serves until its other end has gone.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 128 * 1024
"""Bytes of a request that surely go through a socket in one piece."""
_PACKAGES = ("geminorum.apps.command", "geminorum.transports", "geminorum.testing")
_MODULES: tuple[str, ...] = (
    "geminorum.doctor",
    "geminorum.models",
    "geminorum.price_list",
    "geminorum.usage",
    "geminorum.install",
    "h11",
)
_MODULES += ("google.genai.types", "httpcore2", "rich.live", "rich.markdown", "tomllib", "tomli_w")
_MODULES += ("geminorum.fleet.client", "geminorum.fleet.workers.worker", "geminorum.fleet.sync")
_MODULES += ("geminorum.inbox.sync", "geminorum.sessions.store.postgres", "psycopg_pool")
_MODULES += ("platformdirs.unix", "prompt_toolkit", "pydantic.type_adapter", "truststore")


class Forked:
    """A process of the server's; of `subprocess.Popen` it has what tests use."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        (self.pid,) = struct.unpack("i", told.recv(4))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("geminorum", timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                (status,) = struct.unpack("i", self._told.recv(4))
            except (TimeoutError, BlockingIOError):
                return None
            self.returncode = os.waitstatus_to_exitcode(status)
            self._told.close()
        return self.returncode


class Server:
    """The other process, seen from a test."""

    def __init__(self, source: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            # By way of a process that ends at once: tests count the children of their own.
            subprocess.run(
                [sys.executable, __file__, str(theirs.fileno())],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source)},
                close_fds=False,
                start_new_session=True,
                check=True,
            )

    def close(self) -> None:
        self._socket.close()

    def start(
        self,
        arguments: Sequence[str],
        files: tuple[int, int, int],
        env: Mapping[str, str],
        cwd: Path | None,
        *,
        terminal: bool = False,
    ) -> Forked:
        """The command with these as its stdin, stdout and stderr."""
        job = {"arguments": [*arguments], "env": {**env}, "terminal": terminal}
        job["cwd"] = str(cwd or Path.cwd())
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [json.dumps(job).encode()], [*files, theirs.fileno()])
        return Forked(ours)


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Returns in each child that is to run a command, and never in the server itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LARGEST * 2, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            return _kept(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _kept(job: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Forks once more: one process is the command, the other waits to tell how it ended."""
    *files, told = descriptors
    if (pid := os.fork()) == 0:
        os.close(told)
        for wanted, descriptor in enumerate(files):
            os.dup2(descriptor, wanted)
            os.close(descriptor)
        return job
    for descriptor in (*files, 0, 1, 2):
        os.close(descriptor)
    os.write(told, struct.pack("i", pid))
    os.write(told, struct.pack("i", os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(job: dict[str, Any]) -> None:
    """All that differs from process to process."""
    if job["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    sys.argv = ["geminorum", *job["arguments"]]
    random.seed()
    letters = job["env"].get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=letters, closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding=letters, errors="backslashreplace", buffering=1, closefd=False
    )


def _load() -> None:
    """What any command might load; a library that this machine lacks is not missed."""
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if module.name != "geminorum.testing.pytest_plugin":
                importlib.import_module(module.name)
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Every command that sends a request would read all certificates of this machine.
    importlib.import_module("geminorum.transports.api.client")._trusted()


def _leave(code: int) -> NoReturn:
    """As Python ends, but for tidying its memory: with all this loaded, that takes longest."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    os._exit(code)


def _main() -> NoReturn:
    if os.fork():
        os._exit(0)
    _load()
    gc.collect()
    gc.freeze()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
    from geminorum.apps.command import main

    try:
        code = main()
    except SystemExit as end:
        code = int(end.code or 0)
    _leave(code)


if __name__ == "__main__":
    _main()
