"""Jobs by the hundred on two workers, whose events all go to one submitter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.figures import Figure

from geminorum import Options, TextDelta
from geminorum.fleet import Fleet, Job, JobRequest
from load.fleet.machines import WorkerMachine, machines
from load.fleet.parts import Stage, percentile

WORKERS, SLOTS = 2, 50
WARM_JOBS = 20
_WAIT_SECONDS = 300.0


@dataclass(slots=True)
class Received:
    """What the submitter has got of all jobs."""

    latencies: list[float] = field(default_factory=list)
    """Seconds from an agent's write to its reader, of each event that an agent stamped."""
    in_order: int = 0
    """Of these, the events that came exactly behind the one before."""
    failures: int = 0

    async def follow(self, job: Job[object]) -> None:
        wanted = 0
        async for batch in job.event_batches():
            now = time.time_ns()
            for _, event in batch:
                if not isinstance(event, TextDelta):
                    continue
                number, stamp, *_ = event.text.split()
                self.latencies.append((now - int(stamp)) / 1e9)
                self.in_order += int(number) == wanted
                wanted = int(number) + 1
        self.failures += not (await job.wait()).ok


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds of processor time since the start of a measurement."""

    workers: float
    """The worker processes themselves."""
    agents: float
    """Their keepers and the stand-ins."""
    database: float
    submitter: float

    @classmethod
    def so_far(cls, stage: Stage, workers: Sequence[WorkerMachine]) -> Used:
        own = sum(one.own_seconds() for one in workers)
        rest = sum(one.all_seconds() for one in workers) - own
        return cls(own, rest, stage.postgres.cpu_seconds(), time.process_time())

    def since(self, before: Used) -> Used:
        names = self.__slots__
        return Used(*(getattr(self, name) - getattr(before, name) for name in names))


@dataclass(frozen=True, slots=True)
class Streamed:
    jobs: int
    events: int
    """Those that the agents wrote."""
    received: Received
    seconds: float
    used: Used
    memory_mb: float
    """The most that a worker had."""
    connections: int

    def figures(self) -> list[Figure]:
        late, used = self.received.latencies, self.used
        each = 1000 / self.jobs
        return [
            Figure(f"events received in order, of {self.events:,}", self.received.in_order,
                   at_least=self.events),
            Figure("jobs that failed", self.received.failures, at_most=0),
            Figure("latency p50", percentile(late, 50) * 1000, "ms"),
            Figure("latency p99", percentile(late, 99) * 1000, "ms", at_most=300),
            Figure("all jobs, from their submission to the last result", self.seconds, "s"),
            Figure("events per second", self.events / self.seconds, "/s"),
            Figure("CPU per job: worker", used.workers * each, "ms"),
            Figure("CPU per job: keepers and stand-ins", used.agents * each, "ms"),
            Figure("CPU per job: PostgreSQL", used.database * each, "ms"),
            Figure("CPU per job: submitter", used.submitter * each, "ms"),
            Figure("memory of a worker, at its peak", self.memory_mb, "MB"),
            Figure("connections of a worker", self.connections),
        ]  # fmt: skip


async def stream(stage: Stage, jobs: int, events: int, pause_ms: int) -> Streamed:
    url = await stage.postgres.new_fleet()
    flags = ("--slots", str(SLOTS), "--via", "cli")
    with machines(stage.place, url, stage.stand_in, WORKERS, *flags) as workers:
        async with Fleet(url) as fleet, asyncio.timeout(_WAIT_SECONDS):
            for one in workers:
                await one.until_ready()
            await _run(fleet, WARM_JOBS, 1, 0)
            before, began = Used.so_far(stage, workers), time.perf_counter()
            received = await _run(fleet, jobs, events, pause_ms)
            seconds = time.perf_counter() - began
            used = Used.so_far(stage, workers).since(before)
            # The pool of a worker keeps its connections for minutes.
            connections = max(one.connections() for one in workers)
            memory = max(one.peak_mb() for one in workers)
    return Streamed(jobs, jobs * events, received, seconds, used, memory, connections)


async def _run(fleet: Fleet, jobs: int, events: int, pause_ms: int) -> Received:
    options = Options(env={"LOAD_EVENTS": str(events), "LOAD_PAUSE_MS": str(pause_ms)})
    received = Received()
    made = await fleet.submit_many(
        JobRequest(prompt="Tell a story", options=options) for _ in range(jobs)
    )
    await asyncio.gather(*map(received.follow, made))
    return received
