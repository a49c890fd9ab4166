"""All that the database has about one job: its prompt, its options, and each of its attempts."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from geminorum.fleet.database import Connection
from geminorum.fleet.jobs.rows import JobInfo, decode_spec, info_of

_ATTEMPTS = """
SELECT number, worker, started_at, ended_at, ending, session, usd
FROM geminorum_attempts WHERE job = %s ORDER BY number
"""


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job."""

    number: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    ending: str | None
    """As `Result.status`, or "lost" with its worker; None while it runs."""
    session: str | None
    usd: Decimal | None


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A job in full, without its events and its result."""

    info: JobInfo
    prompt: str
    options: dict[str, Any]
    """Those that are not the default, as `Options.from_dict` takes them."""
    source: str | None
    """The git address of its workspace."""
    has_pack: bool
    """Its workspace is a folder that travels."""
    has_patch: bool
    """It is over, and has changes to apply."""
    attempts: list[AttemptInfo]


async def details_of(connection: Connection, job: uuid.UUID) -> JobDetails | None:
    info = await info_of(connection, job)
    query = "SELECT spec, patch IS NOT NULL FROM geminorum_jobs WHERE id = %s"
    row = await (await connection.execute(query, (job,))).fetchone()
    if info is None or row is None:
        return None
    spec = decode_spec(bytes(row[0]))
    return JobDetails(
        info=info,
        prompt=spec.prompt,
        options=spec.options,
        source=spec.source,
        has_pack=spec.has_pack,
        has_patch=row[1],
        attempts=await _attempts(connection, job),
    )


async def _attempts(connection: Connection, job: uuid.UUID) -> list[AttemptInfo]:
    names = AttemptInfo.__struct_fields__
    rows = await (await connection.execute(_ATTEMPTS, (job,))).fetchall()
    return [AttemptInfo(**dict(zip(names, row, strict=True))) for row in rows]
