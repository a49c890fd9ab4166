"""Judges, subjects and simulated APIs, forked from one process that has loaded everything already.

Each process of a trial is as real as one that was started; what it saves is the second in which
Python starts and the libraries load. `make chaos` starts each afresh; the tests use this.

`python -m chaos.nursery FD` serves at a socket until its other end has gone.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from chaos import judge
from chaos.__main__ import CLI, ROOT, Verdict
from chaos.plan import Plan, drawn
from chaos.stage import SimulatedApi

LARGEST = 128 * 1024
"""Bytes of a request that surely go through a socket in one piece."""
MOST_DESCRIPTORS = 100
_MODULES = ("chaos.subject", "chaos.api_process", "geminorum.price_list", "google.genai", "h11")


class Nursery:
    """The other process, seen from a test."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        with theirs:
            # By way of a process that ends at once: tests count the children of their own.
            subprocess.run(
                [sys.executable, "-m", "chaos.nursery", str(theirs.fileno())],
                env=env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                check=True,
            )

    def close(self) -> None:
        self._requests.close()

    def judge(self, seed: int, fault: str) -> Verdict:
        """As `chaos.__main__.judge`."""
        ours, theirs = socket.socketpair()
        job = {"seed": seed, "fault": fault, "env": {**os.environ, "CHAOS_CLI": str(CLI)}}
        with theirs:
            socket.send_fds(self._requests, [json.dumps(job).encode()], [theirs.fileno()])
        with ours, ours.makefile("rb") as said:
            found = said.read()
        violations = json.loads(found)["violations"] if found else ["the judge failed"]
        return Verdict(drawn(seed, fault), violations, 0.0)


class Forked:
    """A process that runs a function; of `subprocess.Popen` it has what the judge uses."""

    def __init__(
        self, body: Callable[[], int | None], env: Mapping[str, str], files: list[int]
    ) -> None:
        self.returncode: int | None = None
        if (pid := os.fork()) == 0:
            _run_and_exit(body, env, files)
        self.pid = pid

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _run_and_exit(
    body: Callable[[], int | None], env: Mapping[str, str], files: list[int]
) -> NoReturn:
    """As a Python of its own would, but for tidying the memory of what was loaded before."""
    code = 1
    try:
        for wanted, descriptor in enumerate(files):
            os.dup2(descriptor, wanted)
        os.closerange(len(files), MOST_DESCRIPTORS)
        os.environ.clear()
        os.environ.update(env)
        tempfile.tempdir = None
        random.seed()
        faulthandler.enable(2)
        code = body() or 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # Where a task is forgotten, Python says so.
    sys.stdout.flush()
    os._exit(code)


def start_process(command: list[str], **how: Any) -> Forked:
    """In the place of `subprocess.Popen`: for `python -m chaos.subject`, or `geminorum`."""
    _, _, module, *words = command
    body = {"chaos.subject": _play, "geminorum": _command}[module]
    with open(os.devnull, "r+b") as nowhere:  # noqa: PTH123
        files = [nowhere.fileno(), nowhere.fileno(), how["stderr"].fileno()]
        return Forked(partial(body, words), how["env"], files)


def _play(words: list[str]) -> None:
    from chaos import subject

    subject.main(Path(words[0]), is_calm="calm" in words[1:])


def _command(words: list[str]) -> int:
    from geminorum.apps.command import main

    sys.argv = ["geminorum", *words]
    return main()


@contextmanager
def simulated_api(plan: Plan, folder: Path) -> Iterator[SimulatedApi]:
    """In the place of the judge's own."""
    from chaos import api_process

    env = {**os.environ, "TMPDIR": str(folder / "api")}
    (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
    story = asdict(plan.story)
    files = [theirs_in, theirs_out, 2]
    process = Forked(lambda: api_process.serve(story), env, files)
    for descriptor in (theirs_in, theirs_out):
        os.close(descriptor)
    with open(ours_out) as said, open(ours_in, "w"):  # noqa: PTH123
        yield SimulatedApi(**json.loads(said.readline()))
    process.wait()


def _serve(requests: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LARGEST, 1)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            job = json.loads(message)
            _run_and_exit(partial(_judge, job), job["env"], [0, descriptors[0], 2])
        os.close(descriptors[0])


def _judge(job: dict[str, Any]) -> None:
    judge.start_process, judge.simulated_api = start_process, simulated_api
    judge.main(job["seed"], job["fault"])


def main(requests: int) -> None:
    if os.fork():
        os._exit(0)
    for name in _MODULES:
        importlib.import_module(name)
    command = importlib.import_module("geminorum.apps.command")
    for module in pkgutil.walk_packages(command.__path__, "geminorum.apps.command."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=requests))


if __name__ == "__main__":
    main(int(sys.argv[1]))
