"""Programs of ours that run agents, to be killed or stopped; and what is left of them."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

StartOwner = Callable[[str], subprocess.Popen[bytes]]


@contextmanager
def owners() -> Iterator[StartOwner]:
    """Starts Python programs from their text; all are killed at the end of the block."""
    started = []

    def start(code: str) -> subprocess.Popen[bytes]:
        one = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=dict(os.environ))
        started.append(one)
        return one

    try:
        yield start
    finally:
        for one in started:
            one.kill()
            one.wait()


def wait_until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def keeper_of(pid: int) -> int:
    return psutil.Process(pid).ppid()
