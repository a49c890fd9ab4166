"""A simulated crowd: rows of many jobs and workers, and what the statements of a worker take then.

The rows are made by SQL, and no agent runs; the statements are those of the fleet. This shows how
the database's work grows with the size of a fleet that this machine could not run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.figures import Figure

from geminorum.fleet import Fleet
from geminorum.fleet.database import Connection, Database
from geminorum.fleet.workers import claims
from load.fleet.machines import query
from load.fleet.parts import Stage

SLOTS, TENANTS = 50, 20
_LEAST_SECONDS, _LEAST_TIMES, _BEAT_SECONDS = 0.5, 10, 1.0
_WORKERS = """
INSERT INTO geminorum_workers (id, name, slots, about)
SELECT -number, 'simulated-' || number, {slots}, '{{}}' FROM generate_series(1, {workers}) AS number
"""
_BEAT = "UPDATE geminorum_workers SET heartbeat_at = clock_timestamp() WHERE NOT is_lost"
# As their owner would leave them: one attempt each, of a worker that lives.
_JOBS = """
INSERT INTO procrastinate_jobs (queue_name, task_name, priority, status, args)
SELECT 'geminorum/cli/tenant-' || number % {tenants}, 'geminorum.run', 0,
    '{status}'::procrastinate_job_status, '{{}}' FROM generate_series(1, {count}) AS number;
INSERT INTO geminorum_jobs (id, entry, tenant, via, spec, priority, max_attempts, digest, state,
    attempt, worker, submitted_at, finished_at)
SELECT gen_random_uuid(), job.id, split_part(job.queue_name, '/', 3), 'cli', '{{"prompt":"hi"}}', 0,
    3, '', '{state}', {attempt}, {worker}, clock_timestamp() - interval '{age}',
    CASE '{state}' WHEN 'done' THEN clock_timestamp() - interval '{age}' END
FROM procrastinate_jobs AS job LEFT JOIN geminorum_jobs AS known ON known.entry = job.id
WHERE known.id IS NULL;
INSERT INTO geminorum_attempts (job, number, worker, usd)
SELECT id, 1, 'simulated', 0.01 FROM geminorum_jobs AS job
WHERE attempt = 1 AND NOT EXISTS (SELECT FROM geminorum_attempts WHERE job = job.id)
"""


@dataclass(frozen=True, slots=True)
class Size:
    running: int
    queued: int
    done: int

    @property
    def workers(self) -> int:
        return -(-self.running // SLOTS)


@dataclass(frozen=True, slots=True)
class Crowded:
    size: Size
    milliseconds: dict[str, float]
    """Of the database's time for each thing, the mean of several."""

    def figures(self) -> list[Figure]:
        size = self.size
        kind = f"{size.running:,} running, {size.queued:,} queued, {size.done:,} done"
        first, *others = self.milliseconds.items()
        named = [(f"{kind}: {first[0]}", first[1]), *((f"… {name}", ms) for name, ms in others)]
        return [Figure(name, ms, "ms") for name, ms in named]


async def crowd(stage: Stage, size: Size) -> Crowded:
    url = await stage.postgres.new_fleet()
    _fill(url, size)
    async with Fleet(url) as fleet, Database(url, connections=2) as database:
        async with database.transaction() as connection:
            worker = await claims.register(connection, "measured", SLOTS, {})
        beating = asyncio.create_task(_beat(database))
        cpu_of = _Clock(stage, database).cpu_of
        found = {
            "heartbeat": await cpu_of(lambda one: claims.beat(one, worker, is_draining=False)),
            "look for lost workers": await cpu_of(claims.lose_workers),
            "take a job": await cpu_of(lambda one: _take(one, worker)),
            "submit a job": await cpu_of(lambda _: fleet.submit("hi")),
            "`jobs list`": await cpu_of(lambda _: fleet.jobs()),
            "`fleet status`": await cpu_of(lambda _: fleet.status()),
        }
        beating.cancel()
        await asyncio.wait([beating])
    return Crowded(size, found)


async def _beat(database: Database) -> None:
    """For all workers, none of which must be lost."""
    while True:
        async with database.transaction() as connection:
            await connection.execute(_BEAT)
        await asyncio.sleep(_BEAT_SECONDS)


class _Clock:
    """PostgreSQL's processor time for something that is done again and again."""

    def __init__(self, stage: Stage, database: Database) -> None:
        self._stage, self._database = stage, database

    async def cpu_of(self, work: Callable[[Connection], Awaitable[object]]) -> float:
        """Milliseconds for each: the system counts in hundredths of a second."""
        before, began, times = self._stage.postgres.cpu_seconds(), time.perf_counter(), 0
        while time.perf_counter() - began < _LEAST_SECONDS or times < _LEAST_TIMES:
            async with self._database.transaction() as connection:
                await work(connection)
            times += 1
        return (self._stage.postgres.cpu_seconds() - before) / times * 1000


async def _take(connection: Connection, worker: int) -> None:
    assert await claims.take(connection, worker, "measured", ["cli"], None)


def _fill(url: str, size: Size) -> None:
    workers = max(size.workers, 1)
    query(url, _WORKERS.format(slots=SLOTS, workers=workers))
    kinds = (
        ("done", "succeeded", size.done, 1, "NULL", "10 days"),
        ("running", "doing", size.running, 1, f"-1 - job.id % {workers}", "1 minute"),
        ("queued", "todo", size.queued, 0, "NULL", "1 minute"),
    )
    names = ("state", "status", "count", "attempt", "worker", "age")
    for kind in kinds:
        query(url, _JOBS.format(**dict(zip(names, kind, strict=True)), tenants=TENANTS))
    query(url, _BEAT)
    query(url, "VACUUM ANALYZE")
