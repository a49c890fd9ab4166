"""Workers that have nothing to do: what each of them takes of the database all the same."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.figures import Figure

from geminorum import Cli
from geminorum.fleet import Fleet, Worker
from load.fleet.machines import query
from load.fleet.parts import Stage

_WAIT_SECONDS = 60.0
_ACTIVITY = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
    xact_commit FROM pg_stat_database WHERE datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Idle:
    workers: int
    seconds: float
    cpu: float
    """PostgreSQL's, in seconds."""
    connections: int
    transactions: int

    def figures(self) -> list[Figure]:
        each = 1 / self.workers
        return [
            Figure(f"{self.workers} idle workers: connections of each", self.connections * each),
            Figure("… transactions per second of each", self.transactions / self.seconds * each),
            Figure("… CPU of PostgreSQL for each", self.cpu / self.seconds * each * 1000, "ms/s"),
        ]


async def idle(stage: Stage, workers: int, seconds: float) -> Idle:
    """All in this process: what they tell the database is the same."""
    url = await stage.postgres.new_fleet()
    transports = {"cli": Cli(executable=stage.stand_in)}
    crew = [Worker(url, transports, name=f"idle-{number}") for number in range(workers)]
    tasks = [asyncio.create_task(one.run()) for one in crew]
    try:
        await _until_all_are_there(url, workers)
        cpu, began, (_, before) = stage.postgres.cpu_seconds(), time.perf_counter(), _activity(url)
        await asyncio.sleep(seconds)
        connections, after = _activity(url)
        took, cpu = time.perf_counter() - began, stage.postgres.cpu_seconds() - cpu
    finally:
        for one in crew:
            one.stop()
        await asyncio.wait(tasks)
    return Idle(workers, took, cpu, connections - 1, after - before)


def _activity(url: str) -> tuple[int, int]:
    connections, transactions = query(url, _ACTIVITY)[0]
    return int(str(connections)), int(str(transactions))


async def _until_all_are_there(url: str, workers: int) -> None:
    async with Fleet(url) as fleet, asyncio.timeout(_WAIT_SECONDS):
        while len((await fleet.status()).workers) < workers:
            await asyncio.sleep(0.1)
