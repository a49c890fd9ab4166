"""What the fleet does now: workers, queues, running jobs, limits that jobs wait for, spending."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from geminorum.fleet.database import Connection
from geminorum.fleet.workers.lease_times import LOST_SECONDS

_WORKERS = """
SELECT name, slots, about, is_draining, is_lost OR heartbeat_at < now() - %s * interval '1 s',
    started_at, heartbeat_at, extract(epoch FROM now() - heartbeat_at)::float, (
        SELECT count(*) FROM geminorum_jobs AS job
        WHERE job.worker = worker.id AND job.state = 'running')
FROM geminorum_workers AS worker ORDER BY name, id
"""
# Money of jobs that run counts as soon as it is noted, and that of attempts that were lost.
_TENANTS = """
SELECT tenant, count(*) FILTER (WHERE state = 'queued'),
    count(*) FILTER (WHERE state = 'running'),
    count(*) FILTER (WHERE waits_for IS NOT NULL) + CASE WHEN geminorum_obstacle(tenant) IS NULL
        THEN 0 ELSE count(*) FILTER (WHERE state = 'queued' AND waits_for IS NULL) END,
    coalesce(sum(bill.today), 0), coalesce(sum(bill.usd), 0)
FROM geminorum_jobs AS job LEFT JOIN (
    SELECT attempt.job, sum(attempt.usd) AS usd, sum(attempt.usd) FILTER (
        WHERE coalesce(ended_at, now()) >= date_trunc('day', now(), 'UTC')) AS today
    FROM geminorum_attempts AS attempt GROUP BY attempt.job
) AS bill ON bill.job = job.id
GROUP BY tenant ORDER BY tenant
"""
# `OFFSET 0` keeps PostgreSQL from looking for the obstacle of each job instead of each tenant.
_WAITING = """
SELECT label, sum(jobs)::bigint, min(oldest) FROM (
    SELECT waits_for AS label, count(*) AS jobs, min(submitted_at) AS oldest FROM geminorum_jobs
    WHERE state <> 'done' AND waits_for IS NOT NULL GROUP BY waits_for
    UNION ALL
    SELECT geminorum_obstacle(tenant), jobs, oldest FROM (
        SELECT tenant, count(*) AS jobs, min(submitted_at) AS oldest FROM geminorum_jobs
        WHERE state = 'queued' AND waits_for IS NULL GROUP BY tenant OFFSET 0) AS queued
) AS waits
WHERE label IS NOT NULL GROUP BY label ORDER BY label
"""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last reported."""

    name: str
    slots: int
    running: int
    """Jobs that it runs."""
    vias: list[str]
    tenants: list[str] | None
    """Those that it works for; None: all."""
    version: str
    is_draining: bool
    """It takes no more jobs."""
    is_lost: bool
    """It is silent, and others take over its jobs."""
    started_at: datetime
    heartbeat_at: datetime
    silent_seconds: float
    """Since its last heartbeat, by the database's clock."""


class TenantInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's jobs, and what they cost."""

    tenant: str
    queued: int
    running: int
    waiting: int
    """Of these, the jobs that wait for a limit."""
    usd_today: Decimal
    """Of attempts that ended today or go on; the day is UTC's."""
    usd: Decimal
    """Of all jobs that have not been pruned."""


class WaitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and the jobs that wait for it."""

    waits_for: str
    jobs: int
    since: datetime
    """When the oldest of them was submitted."""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet at one moment."""

    at: datetime
    """By the database's clock."""
    workers: list[WorkerInfo]
    tenants: list[TenantInfo]
    waiting: list[WaitInfo]

    @property
    def queued(self) -> int:
        return sum(one.queued for one in self.tenants)

    @property
    def running(self) -> int:
        return sum(one.running for one in self.tenants)


async def status_of(connection: Connection) -> FleetStatus:
    """In a transaction of the caller's, so that all figures are of one moment."""
    # Otherwise each of the queries would see what was committed while the one before ran.
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    ((now,),) = await _rows(connection, "SELECT now()")
    return FleetStatus(
        at=now,
        workers=[_worker(*row) for row in await _rows(connection, _WORKERS, LOST_SECONDS)],
        tenants=[_named(TenantInfo, row) for row in await _rows(connection, _TENANTS)],
        waiting=[_named(WaitInfo, row) for row in await _rows(connection, _WAITING)],
    )


async def _rows(connection: Connection, query: str, *values: Any) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query.encode(), values or None)).fetchall()


def _worker(name: str, slots: int, about: dict[str, Any], *rest: Any) -> WorkerInfo:
    is_draining, is_lost, started_at, heartbeat_at, silent, running = rest
    return WorkerInfo(
        name=name,
        slots=slots,
        running=running,
        vias=about.get("vias", []),
        tenants=about.get("tenants"),
        version=about.get("version", ""),
        is_draining=is_draining,
        is_lost=is_lost,
        started_at=started_at,
        heartbeat_at=heartbeat_at,
        silent_seconds=max(0.0, silent),
    )


def _named(kind: Any, row: tuple[Any, ...]) -> Any:
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))
