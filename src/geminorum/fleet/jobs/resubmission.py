"""A job once more: a new one with the same prompt, options and workspace.

Not another attempt of the same job: what was read as its result stays its only result.
"""

from __future__ import annotations

import uuid

from geminorum.errors import FleetError, UnknownJob
from geminorum.fleet import queue
from geminorum.fleet.database import Connection
from geminorum.fleet.jobs.rows import announce_jobs, decode_spec, lock_of
from geminorum.fleet.queue import QueueEntry

_COPY = """
INSERT INTO geminorum_jobs (id, entry, tenant, via, spec, pack, priority, max_attempts, digest)
SELECT %s, %s, tenant, via, spec, pack, priority, max_attempts, digest
FROM geminorum_jobs WHERE id = %s
"""


async def resubmit(connection: Connection, job: uuid.UUID) -> uuid.UUID:
    """Queues the job again, if it is over and has failed; returns the id of the new one."""
    query = """SELECT state, status, via, tenant, priority, spec FROM geminorum_jobs
        WHERE id = %s FOR KEY SHARE"""
    row = await (await connection.execute(query, (job,))).fetchone()
    if row is None:
        raise UnknownJob(f"the fleet has no job {job}")
    state, status, via, tenant, priority, spec = row
    _require_failure(job, state, status)
    lock = lock_of(tenant, decode_spec(bytes(spec)))
    (entry,) = await queue.put(connection, [QueueEntry(f"{via}/{tenant}", priority, lock)])
    new = uuid.uuid4()
    # In the database: a pack may have many megabytes.
    await connection.execute(_COPY, (new, entry, job))
    await announce_jobs(connection)
    return new


def _require_failure(job: uuid.UUID, state: str, status: str | None) -> None:
    if state != "done":
        hint = f"follow it with `geminorum jobs watch {job}`"
        raise FleetError(f"job {job} is not over: it is {state}", hint=hint)
    if status == "success":
        hint = "submit its prompt again if it is to run once more"
        raise FleetError(f"job {job} has succeeded", hint=hint)
