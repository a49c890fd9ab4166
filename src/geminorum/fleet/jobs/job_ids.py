"""What people type for a job: its id, or the beginning of it."""

from __future__ import annotations

import re
import uuid

from geminorum.errors import InvalidOptions, UnknownJob
from geminorum.fleet.database import Connection

_DIGITS = 32
_SHOWN = 3
_BEGINNING = re.compile(r"[0-9a-f]{1,32}")


async def whole_id(connection: Connection, beginning: str) -> uuid.UUID:
    """The id of the only job that begins like that."""
    first, last = _range_of(beginning)
    query = """SELECT id FROM geminorum_jobs WHERE id BETWEEN %s AND %s
        ORDER BY submitted_at DESC LIMIT %s"""
    cursor = await connection.execute(query, (first, last, _SHOWN + 1))
    found = [str(job) for (job,) in await cursor.fetchall()]
    if not found:
        raise UnknownJob(f"the fleet has no job {beginning}")
    if len(found) > 1:
        more = ", …" if len(found) > _SHOWN else ""
        text = f"{beginning} is the beginning of several jobs: {', '.join(found[:_SHOWN])}{more}"
        raise InvalidOptions(text, hint="type more of the id")
    return uuid.UUID(found[0])


def _range_of(beginning: str) -> tuple[uuid.UUID, uuid.UUID]:
    """The first and the last id that begin like that: ids have an index, their texts have none."""
    digits = beginning.strip().lower().replace("-", "")
    if not _BEGINNING.fullmatch(digits):
        hint = "`geminorum jobs list` shows the ids"
        raise InvalidOptions(f"{beginning!r} is no id of a job", hint=hint)
    return uuid.UUID(digits.ljust(_DIGITS, "0")), uuid.UUID(digits.ljust(_DIGITS, "f"))
