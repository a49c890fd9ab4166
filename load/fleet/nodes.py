"""What real CLIs cost on a worker: a process for each job, or sessions of shared warm ones."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from benchmarks.cold_start import MODEL
from benchmarks.figures import Figure

from geminorum import Options
from geminorum.fleet import Fleet, JobRequest
from geminorum.fleet.travel import Via
from geminorum.testing import FakeGemini
from load.fleet.machines import WorkerMachine, machines
from load.fleet.parts import Stage

_WAIT_SECONDS, _LOOK_SECONDS = 300.0, 0.2
_KINDS: dict[Via, str] = {
    "cli": "`cli`, a process for each job",
    "acp": "`acp` with `--pool`, warm processes",
}


@dataclass(frozen=True, slots=True)
class RealAgents:
    via: Via
    jobs: int
    failures: int
    seconds: float
    cpu: float
    """Of the worker and all below it."""
    worker_cpu: float
    nodes: int
    """Processes of Node at the same time, at most."""
    memory_mb: float
    """Of all processes of Node together, at most; shared pages are divided among them."""

    def figures(self) -> list[Figure]:
        kind = _KINDS[self.via]
        return [
            Figure(f"{kind}: jobs that failed, of {self.jobs}", self.failures, at_most=0),
            Figure("… jobs per second", self.jobs / self.seconds, "/s"),
            Figure("… CPU per job: CLI and worker", self.cpu / self.jobs, "s"),
            Figure("… CPU per job: the worker alone", self.worker_cpu / self.jobs * 1000, "ms"),
            Figure("… processes of Node at once", self.nodes),
            Figure("… memory of each", self.memory_mb / max(self.nodes, 1), "MB"),
        ]


async def run_real(stage: Stage, via: Via, jobs: int, slots: int) -> RealAgents:
    assert stage.cli is not None
    url = await stage.postgres.new_fleet()
    flags = ["--slots", str(slots), "--via", via, *(["--pool"] if via == "acp" else [])]
    with FakeGemini(default="Hello") as fake:
        env = {name: value for name, value in fake.env.items() if name != "GEMINI_CLI_HOME"}
        with machines(stage.place, url, stage.cli, 1, *flags, env=env) as (worker,):
            async with Fleet(url) as fleet, asyncio.timeout(_WAIT_SECONDS):
                await worker.until_ready()
                await _run(fleet, via, 1)  # So that a warm process is.
                return await _measure(fleet, worker, via, jobs)


async def _measure(fleet: Fleet, worker: WorkerMachine, via: Via, jobs: int) -> RealAgents:
    peak = _Peak(worker)
    watching = asyncio.create_task(peak.watch())
    cpu, own, began = worker.all_seconds(), worker.own_seconds(), time.perf_counter()
    failures = await _run(fleet, via, jobs)
    seconds = time.perf_counter() - began
    watching.cancel()
    await asyncio.wait([watching])
    used = worker.all_seconds() - cpu, worker.own_seconds() - own
    return RealAgents(via, jobs, failures, seconds, *used, peak.nodes, peak.memory_mb)


async def _run(fleet: Fleet, via: Via, jobs: int) -> int:
    """How many have failed."""
    options: Options[object] = Options(model=MODEL)
    requests = [JobRequest(prompt="Say hello", options=options, via=via) for _ in range(jobs)]
    made = await fleet.submit_many(requests)
    results = await asyncio.gather(*(job.wait() for job in made))
    failures = [result for result in results if not result.ok]
    for result in failures:
        sys.stderr.write(f"{result.exception()!r}\n")
    return len(failures)


class _Peak:
    """The most Node processes of a worker, and the most memory of all of them."""

    def __init__(self, worker: WorkerMachine) -> None:
        self._worker = worker
        self.nodes, self.memory_mb = 0, 0.0

    async def watch(self) -> None:
        while True:
            sizes = await asyncio.to_thread(self._sizes)
            self.nodes = max(self.nodes, len(sizes))
            self.memory_mb = max(self.memory_mb, sum(sizes))
            await asyncio.sleep(_LOOK_SECONDS)

    def _sizes(self) -> list[float]:
        return [size for one in self._worker.processes() if (size := _node_mb(one)) is not None]


def _node_mb(process: psutil.Process) -> float | None:
    """None for any other process, and for one that has ended."""
    try:
        is_node = Path(process.exe()).name == "node"  # Its name is that of a thread.
        return process.memory_full_info().pss / 2**20 if is_node else None
    except psutil.Error:
        return None
