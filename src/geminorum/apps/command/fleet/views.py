"""Jobs and workers to what people read: tables, and the facts of one job."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from geminorum.apps.command.failures import command_hint, command_words
from geminorum.apps.command.flags.moments import when
from geminorum.apps.command.render.facts import dollars
from geminorum.apps.command.render.tables import Column, Sheet
from geminorum.runtime.lazy import msgspec

if TYPE_CHECKING:
    from geminorum import Result
    from geminorum.fleet import (
        AttemptInfo,
        FleetStatus,
        JobDetails,
        JobInfo,
        LimitInfo,
        WorkerInfo,
    )

_SHORT_ID = 8
_COLOURS = {
    **dict.fromkeys(("success", "ready"), "green"),
    **dict.fromkeys(("error", "lost"), "red"),
    **dict.fromkeys(("interrupted", "draining", "max_turns", "max_budget"), "yellow"),
}


def short_id(job: str) -> str:
    """What to type: whole in a pipe, where a program may need it."""
    return job[:_SHORT_ID] if sys.stdout.isatty() else job


def listing(jobs: Sequence[JobInfo], more: str | None) -> Sheet:
    """A table of jobs."""
    columns = [
        Column("id", style="cyan"),
        Column("state", colours=_COLOURS),
        Column("submitted"),
        Column("tenant", spare=2),
        Column("via", spare=4),
        Column("attempt", right=True, spare=5),
        Column("worker", style="dim", spare=6),
        Column("cost", right=True, spare=3),
        Column("prompt", elastic=True),
    ]
    return Sheet(columns, [_row(job) for job in jobs], notes=[more] if more else [])


def _row(job: JobInfo) -> list[str]:
    return [
        *(short_id(job.id), job.stage, _moment(job.submitted_at), job.tenant, job.via),
        *(f"{job.attempt}/{job.max_attempts}", job.worker or "-", _usd(job.usd), job.title),
    ]


def _usd(usd: Decimal | None) -> str:
    return "-" if usd is None else dollars(usd)


def _moment(at: datetime) -> str:
    return when(int(at.timestamp() * 1000))


# ---- one job


def facts_of(job: JobDetails, result: Result | None) -> Iterator[tuple[str, str]]:
    """What is to be said of a job, line by line."""
    info = job.info
    yield "job", info.id
    yield "state", info.stage
    if info.waits_for:
        yield "waits for", info.waits_for
    yield "tenant", info.tenant
    yield "via", info.via
    yield "priority", str(info.priority)
    yield from _moments_of(info)
    if info.usd is not None:
        yield "cost", dollars(info.usd)
    if workspace := job.source or ("a folder that travelled" if job.has_pack else ""):
        yield "workspace", workspace
    if job.options:
        yield "options", msgspec.json.encode(job.options).decode()
    for attempt in job.attempts:
        yield f"attempt {attempt.number}", _attempt(attempt)
    yield "prompt", " ".join(job.prompt.split())
    if result is not None:
        yield from _ending(result)


def _ending(result: Result) -> Iterator[tuple[str, str]]:
    error = result.exception()
    if error is None:
        yield "answer", " ".join(result.text.split())
        return
    yield "error", command_words(error.message)
    if hint := command_hint(error.hint):
        yield "next", hint


def _moments_of(info: JobInfo) -> Iterator[tuple[str, str]]:
    moments = (
        ("submitted", info.submitted_at),
        ("started", info.started_at),
        ("finished", info.finished_at),
    )
    for name, at in moments:
        if at is not None:
            yield name, f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _attempt(attempt: AttemptInfo) -> str:
    session = f", session {attempt.session}" if attempt.session else ""
    return f"{attempt.ending or 'running'} on {attempt.worker}{session}"


# ---- the whole fleet


def status_sheets(status: FleetStatus) -> Iterator[Sheet]:
    """Workers, tenants, and the limits that jobs wait for; none of those that are empty."""
    if status.workers:
        yield _workers(status)
    yield _tenants(status)
    if status.waiting:
        columns = [Column("jobs", right=True), Column("since"), Column("wait for", elastic=True)]
        rows = [[f"{one.jobs:,}", _moment(one.since), one.waits_for] for one in status.waiting]
        yield Sheet(columns, rows)


def _workers(status: FleetStatus) -> Sheet:
    columns = [
        Column("worker", style="cyan"),
        Column("state", colours=_COLOURS),
        Column("running", right=True),
        Column("heartbeat", right=True),
        Column("via", spare=2),
        Column("tenants", spare=3, elastic=True),
        Column("version", style="dim", spare=4),
    ]
    return Sheet(columns, [_worker(worker) for worker in status.workers])


def _worker(worker: WorkerInfo) -> list[str]:
    state = "lost" if worker.is_lost else "draining" if worker.is_draining else "ready"
    return [
        *(worker.name, state, f"{worker.running}/{worker.slots}", _ago(worker.silent_seconds)),
        *(",".join(worker.vias), ",".join(worker.tenants or ["all"]), worker.version),
    ]


def limits_sheet(limits: Sequence[LimitInfo]) -> Sheet:
    """A table of limits."""
    columns = [
        Column("limit", style="cyan"),
        Column("amount", right=True),
        Column("burst", right=True, spare=2),
        *(Column(title, elastic=True) for title in ("key", "tenant", "model")),
        Column("above it"),
        Column("used", right=True),
        Column("waiting", right=True),
    ]
    return Sheet(columns, [_limit(limit) for limit in limits])


def _limit(limit: LimitInfo) -> list[str]:
    kind, burst = limit.kind.replace("_", "-"), "-"
    if limit.kind.endswith("per_minute"):
        burst = _number(limit.burst)
    return [
        *(kind, _number(limit.amount), burst),
        *(_whose(each) for each in (limit.key, limit.tenant, limit.model)),
        *(limit.reaction, _number(limit.used), f"{limit.waiting:,}"),
    ]


def _whose(name: str | None) -> str:
    return "all" if name is None else "each" if name == "*" else name


def _number(amount: Decimal) -> str:
    return f"{round(amount, 2).normalize():,f}"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.1f} s ago"


def _tenants(status: FleetStatus) -> Sheet:
    columns = [
        Column("tenant", style="cyan"),
        *(Column(title, right=True) for title in ("queued", "running", "waiting")),
        *(Column(title, right=True) for title in ("today (UTC)", "in all")),
    ]
    rows = [
        [
            *(one.tenant, f"{one.queued:,}", f"{one.running:,}", f"{one.waiting:,}"),
            *(dollars(one.usd_today), dollars(one.usd)),
        ]
        for one in status.tenants
    ]
    return Sheet(columns, rows, None if len(rows) < 2 else _total(status))


def _total(status: FleetStatus) -> list[str]:
    counts = status.queued, status.running, sum(one.waiting for one in status.tenants)
    today = sum((one.usd_today for one in status.tenants), Decimal(0))
    usd = sum((one.usd for one in status.tenants), Decimal(0))
    return ["total", *(f"{count:,}" for count in counts), dollars(today), dollars(usd)]
