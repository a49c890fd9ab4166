"""Events alone, as fast as wanted: what one PostgreSQL carries, and what an event leaves in it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass

import msgspec
from benchmarks.figures import Figure

from geminorum.fleet import Fleet, JobRequest
from load.fleet.machines import query
from load.fleet.parts import Stage, percentile
from load.fleet.streaming import Received
from load.fleet.writer import Settings, Written
from load.page import ROOT

WRITERS = 2
_SIZES = """
SELECT count(*), sum(length(data)), pg_total_relation_size('geminorum_events'),
    pg_current_wal_lsn() - '0/0' FROM geminorum_events
"""


@dataclass(frozen=True, slots=True)
class Carried:
    """One rate of events, offered by writers to one database and read by one follower."""

    runs: int
    offered: float
    """Events per second."""
    events: int
    seconds: float
    received: Received
    rows: int
    data_bytes: int
    disk_bytes: int
    wal_bytes: int
    cpu: float
    """PostgreSQL's, in seconds."""
    writer_cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    def figures(self) -> list[Figure]:
        late, each = self.received.latencies, 1 / max(self.events, 1)
        kind = f"{self.runs} runs, {self.offered:,.0f} events/s offered"
        return [
            Figure(f"{kind}: written", self.rate, "/s"),
            Figure("… received in order, of all", self.received.in_order / self.events, at_least=1),
            Figure("… latency p50", percentile(late, 50) * 1000, "ms"),
            Figure("… latency p99", percentile(late, 99) * 1000, "ms"),
            Figure("… rows per event", self.rows * each),
            Figure("… bytes per event: as JSON", self.data_bytes * each),
            Figure("… bytes per event: on disk, with its index", self.disk_bytes * each),
            Figure("… bytes per event: in the log of PostgreSQL (WAL)", self.wal_bytes * each),
            Figure("… CPU per event: PostgreSQL", self.cpu * each * 1e6, "µs"),
            Figure("… CPU per event: worker", self.writer_cpu * each * 1e6, "µs"),
        ]


async def carry(stage: Stage, runs: int, rate: float, seconds: float) -> Carried:
    url = await stage.postgres.new_fleet()
    received = Received()
    settings = Settings(url, runs // WRITERS, rate / WRITERS, seconds)
    async with Fleet(url) as fleet:
        jobs = await fleet.submit_many([JobRequest(prompt="Tell a story")] * runs)
        wal, cpu = _sizes(url)[3], stage.postgres.cpu_seconds()
        following = asyncio.gather(*map(received.follow, jobs))
        written = await asyncio.gather(*(_start_writer(settings) for _ in range(WRITERS)))
        await following
        cpu = stage.postgres.cpu_seconds() - cpu
    rows, data, disk, wal_after = _sizes(url)
    sizes = rows, data, disk, wal_after - wal
    events, took = sum(one.events for one in written), max(one.seconds for one in written)
    writers = sum(one.cpu for one in written)
    return Carried(runs, rate, events, took, received, *sizes, cpu, writers)


def _sizes(url: str) -> list[int]:
    return [int(str(value or 0)) for value in query(url, _SIZES)[0]]


async def _start_writer(settings: Settings) -> Written:
    words = ["-m", "load.fleet.writer", msgspec.json.encode(settings).decode()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=subprocess.PIPE, cwd=ROOT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"a writer ended with {process.returncode}")
    return msgspec.json.decode(said, type=Written)
