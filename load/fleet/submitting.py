"""A thousand jobs into the queue: at once, at once with keys, and one after the other."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.figures import Figure

from geminorum.fleet import Fleet, JobRequest
from load.fleet.parts import Stage


@dataclass(frozen=True, slots=True)
class Submitted:
    jobs: int
    queued: int
    """Jobs that are there afterwards, of three times as many."""
    at_once: float
    with_keys: float
    one_by_one: float
    """Seconds, all of them."""
    database: float
    """Seconds of PostgreSQL's processor time for those at once."""

    def figures(self) -> list[Figure]:
        many = f"{self.jobs:,} jobs"
        return [
            Figure(f"{many} with one `submit_many`", self.at_once, "s", at_most=2),
            Figure(f"{many} at once, each with a key", self.with_keys, "s", at_most=2),
            Figure(f"{many} with one `submit` after the other", self.one_by_one, "s"),
            Figure("CPU per job at once: PostgreSQL", self.database / self.jobs * 1e3, "ms"),
        ]


async def submit(stage: Stage, jobs: int) -> Submitted:
    url = await stage.postgres.new_fleet()
    plain = [JobRequest(prompt=f"Fix test {number}") for number in range(jobs)]
    keyed = [
        JobRequest(prompt=f"Fix test {number}", idempotency_key=f"nightly-{number}")
        for number in range(jobs)
    ]
    async with Fleet(url) as fleet:
        await fleet.submit("warm up", tenant="another")
        before = stage.postgres.cpu_seconds()
        at_once = await _seconds(lambda: fleet.submit_many(plain))
        database = stage.postgres.cpu_seconds() - before
        with_keys = await _seconds(lambda: fleet.submit_many(keyed))
        one_by_one = await _seconds(lambda: _one_by_one(fleet, jobs))
        queued = sum(tenant.queued for tenant in (await fleet.status()).tenants) - 1
    return Submitted(jobs, queued, at_once, with_keys, one_by_one, database)


async def _one_by_one(fleet: Fleet, jobs: int) -> None:
    for number in range(jobs):
        await fleet.submit(f"Fix test {number}")


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
