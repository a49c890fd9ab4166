"""Real CLIs whose job is cancelled, or whose worker is killed: how long until all is over, and
until another worker has begun."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import psutil
from benchmarks.cold_start import MODEL
from benchmarks.figures import Figure

from geminorum import Init, Options
from geminorum.fleet import Fleet, Job
from geminorum.fleet.travel import Via
from geminorum.testing import FakeGemini
from load.fleet.machines import WorkerMachine, are_over, machines, query
from load.fleet.parts import Stage

SLEEP = "sleep 300"
_WAIT_SECONDS, _LOOK_SECONDS = 120.0, 0.001
_WANTED = {"cli": 0.3, "acp": 0.5}


@dataclass(frozen=True, slots=True)
class Cancelled:
    via: Via
    seconds: Sequence[float]
    """From `job.cancel()` until no process of the job is left."""
    processes: int
    """How many there were at least: a keeper, Node, the shell of a tool and its command."""

    def figures(self) -> list[Figure]:
        what = f"`{self.via}`: cancel to dead process tree, {len(self.seconds)} times"
        return [
            Figure(f"{what}, median", median(self.seconds) * 1000, "ms"),
            Figure("… the longest", max(self.seconds) * 1000, "ms",
                   at_most=_WANTED[self.via] * 1000),
            Figure("… processes of the tree", self.processes),
        ]  # fmt: skip


async def cancel(stage: Stage, via: Via, times: int) -> Cancelled:
    """The agent runs a shell command when it is cancelled."""
    url = await stage.postgres.new_fleet()
    seconds, least = [], 99
    with _fleet_of(stage, url, 1) as (workers, fake):
        async with Fleet(url) as fleet:
            (worker,) = workers
            await worker.until_ready()
            await _run_one(fleet, fake, via)
            idle = worker.processes()
            for _ in range(times):
                job = await _submit_sleeper(fleet, fake, via)
                tree = await _tree_with_sleep(worker, idle)
                least = min(least, len(tree))
                began = time.perf_counter()
                await job.cancel()
                await _until_over(tree)
                seconds.append(time.perf_counter() - began)
                await job.wait()
    return Cancelled(via, seconds, least)


@dataclass(frozen=True, slots=True)
class TakenOver:
    claimed: Sequence[float]
    """Seconds from kill -9 of a worker until another has its job."""
    begun: Sequence[float]
    """Until the agent there has said something: the start of a CLI is in it."""
    overlapping: int
    """How often a process of the first worker was alive when the other one began."""

    def figures(self) -> list[Figure]:
        return [
            Figure(f"kill -9 to another worker has the job, {len(self.claimed)} times, median",
                   median(self.claimed), "s"),
            Figure("… the longest", max(self.claimed), "s", at_most=5),
            Figure("… to the first event of its agent, median", median(self.begun), "s"),
            Figure("… agents of the dead worker that still lived", self.overlapping, at_most=0),
        ]  # fmt: skip


async def take_over(stage: Stage, times: int) -> TakenOver:
    found = [await _take_over_once(stage) for _ in range(times)]
    claimed, begun, overlapping = zip(*found, strict=True)
    return TakenOver(claimed, begun, sum(overlapping))


async def _take_over_once(stage: Stage) -> tuple[float, float, bool]:
    url = await stage.postgres.new_fleet()
    with _fleet_of(stage, url, 2) as (workers, fake):
        async with Fleet(url) as fleet, asyncio.timeout(_WAIT_SECONDS):
            for one in workers:
                await one.until_ready()
            job = await _submit_sleeper(fleet, fake, "cli")
            first, tree = await _owner(job, workers)
            fake.say("Done.")
            killed, began = time.time(), time.perf_counter()
            first.kill()
            lived, begun = False, 0.0
            async for (attempt, _), event in job.numbered_events():
                lived |= attempt > 1 and not are_over(tree)
                if attempt > 1 and isinstance(event, Init):
                    begun = time.perf_counter() - began
            return _claimed_at(url) - killed, begun, lived


def _claimed_at(url: str) -> float:
    statement = "SELECT extract(epoch FROM started_at) FROM geminorum_attempts WHERE number = 2"
    return float(str(query(url, statement)[0][0]))


@contextmanager
def _fleet_of(
    stage: Stage, url: str, count: int
) -> Iterator[tuple[list[WorkerMachine], FakeGemini]]:
    """Workers with the real CLI, and the model that they talk to."""
    assert stage.cli is not None
    with FakeGemini(default="Hello") as fake:
        # Each machine has a home of its own.
        env = {name: value for name, value in fake.env.items() if name != "GEMINI_CLI_HOME"}
        flags = ("--slots", "2", "--via", "cli,acp")
        with machines(stage.place, url, stage.cli, count, *flags, env=env) as workers:
            yield workers, fake


async def _run_one(fleet: Fleet, fake: FakeGemini, via: Via) -> None:
    fake.say("Hello.")
    await (await fleet.submit("Say hello", Options(model=MODEL), via=via)).result()


async def _submit_sleeper(fleet: Fleet, fake: FakeGemini, via: Via) -> Job[object]:
    fake.call("run_shell_command", command=SLEEP)
    options: Options[object] = Options(model=MODEL, approval="yolo")
    return await fleet.submit("Run the long test", options, via=via)


async def _tree_with_sleep(worker: WorkerMachine, idle: set[psutil.Process]) -> set[psutil.Process]:
    """The processes of a job, as soon as its command runs."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            found = worker.processes() - idle
            if any(map(_sleeps, found)):
                return found
            await asyncio.sleep(0.05)


def _sleeps(process: psutil.Process) -> bool:
    try:
        return process.cmdline() == SLEEP.split()
    except psutil.Error:
        return False


async def _owner(
    job: Job[object], workers: Sequence[WorkerMachine]
) -> tuple[WorkerMachine, set[psutil.Process]]:
    """The worker that runs a job, and the processes of its agent."""
    while (name := (await job.info()).worker) is None:
        await asyncio.sleep(0.05)
    (owner,) = [one for one in workers if one.name == name]
    return owner, await _tree_with_sleep(owner, set())


async def _until_over(tree: set[psutil.Process]) -> None:
    async with asyncio.timeout(_WAIT_SECONDS):
        while not are_over(tree):
            await asyncio.sleep(_LOOK_SECONDS)
