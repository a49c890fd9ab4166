"""What a trial does to the run, to its agent, to its keepers or to itself."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from chaos.plan import Plan
from chaos.stage import STEPS, Stage
from chaos.telling import Reader
from geminorum.transports.process.keeper import KEEPERS


@dataclass
class Scene:
    """What a fault may touch."""

    plan: Plan
    stage: Stage
    reader: Reader
    chance: random.Random


def agents() -> list[psutil.Process]:
    """Our agents: the programs that the keepers keep."""
    return [one for one in _below(psutil.Process()) if _is_agent(one)]


def jobs() -> list[psutil.Process]:
    """What the agents have started; what they left behind is below their keepers."""
    known = {one.pid for one in (*agents(), *keepers())}
    below = [one for keeper in keepers() for one in _below(keeper)]
    return [one for one in below if one.pid not in known]


def keepers() -> list[psutil.Process]:
    if KEEPERS.pid is None:
        return []
    with suppress(psutil.Error):
        return psutil.Process(KEEPERS.pid).children()
    return []


def _below(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _is_agent(process: psutil.Process) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "storyteller.py" in line or ("gemini" in line.split(" --")[0] and "node" in line)


def send(number: signal.Signals, processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


async def kill_agent(scene: Scene) -> None:
    send(signal.SIGKILL, agents())


async def kill_tools(scene: Scene) -> None:
    send(signal.SIGKILL, jobs())


async def kill_keeper(scene: Scene) -> None:
    send(signal.SIGKILL, keepers())


async def kill_keeper_server(scene: Scene) -> None:
    if KEEPERS.pid is not None:
        os.kill(KEEPERS.pid, signal.SIGKILL)


async def kill_api(scene: Scene) -> None:
    os.kill(scene.stage.apis[0].pid, signal.SIGKILL)


async def kill_us(scene: Scene) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def freeze_agent(scene: Scene) -> None:
    send(signal.SIGSTOP, agents())


async def freeze_us(scene: Scene) -> None:
    """The judge lets us go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


async def cancel(scene: Scene) -> None:
    scene.reader.cancel(scene.plan.scope)


async def leave(scene: Scene) -> None:
    scene.reader.wants_to_leave = True


async def step_clock(scene: Scene) -> None:
    step = scene.chance.choice([-1, 1]) * scene.chance.choice(STEPS)
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + step
    time.time_ns = lambda: right_ns() + step * 10**9


async def fork(scene: Scene) -> None:
    """A child that ends as a program does, with everything that runs at its end."""
    if (pid := os.fork()) == 0:
        _end_as_a_program_does(scene.chance.choice(["exit", "collect", "at once"]))
    await asyncio.to_thread(os.waitpid, pid, 0)


def _end_as_a_program_does(how: str) -> None:
    import atexit
    import gc

    try:
        if how == "collect":
            gc.collect()
        if how != "at once":
            atexit._run_exitfuncs()
    finally:
        os._exit(0)


class FullDisk:
    """Nothing can be written: opening for writing fails as on a full disk.

    It is the interpreter that refuses: a disk that is really full takes an administrator.
    """

    def __init__(self) -> None:
        self._is_full = False
        sys.addaudithook(self._refuse)

    def fill(self) -> None:
        self._is_full = True

    def empty(self) -> None:
        self._is_full = False

    def _refuse(self, event: str, given: tuple[Any, ...]) -> None:
        if self._is_full and event == "open" and self._is_writing(*given[:3]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _is_writing(self, path: object, mode: str | None, flags: int) -> bool:
        if isinstance(path, int) or str(path).startswith(("/dev", "/proc")):
            return False
        return bool(flags & (os.O_WRONLY | os.O_RDWR))


class Descriptors:
    """All that this process may still open."""

    def __init__(self) -> None:
        self._taken: list[int] = []

    def take(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.append(os.open(os.devnull, os.O_RDONLY))

    def give_back(self) -> None:
        for fd in self._taken:
            os.close(fd)
        self._taken.clear()


@contextmanager
def lifted(plan: Plan) -> Iterator[Callable[[Scene], Any]]:
    """The fault of a plan, which is over at the end of the block."""
    disk, descriptors, clock = FullDisk(), Descriptors(), (time.time, time.time_ns)

    async def fill_disk(scene: Scene) -> None:
        disk.fill()

    async def take_descriptors(scene: Scene) -> None:
        descriptors.take()

    faults = {
        **DEEDS,
        "full disk": fill_disk,
        "no descriptors": take_descriptors,
    }
    try:
        yield faults.get(plan.fault, nothing)
    finally:
        disk.empty()
        descriptors.give_back()
        time.time, time.time_ns = clock


async def nothing(scene: Scene) -> None:
    """The agent itself, the consumer or the judge does it."""


DEEDS = {
    "kill agent": kill_agent,
    "kill tools": kill_tools,
    "kill keeper": kill_keeper,
    "kill keeper server": kill_keeper_server,
    "kill api": kill_api,
    "kill us": kill_us,
    "freeze agent": freeze_agent,
    "freeze us": freeze_us,
    "cancel": cancel,
    "leave": leave,
    "clock": step_clock,
    "fork": fork,
}
