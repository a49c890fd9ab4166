"""Events of a job that are in the database now, for readers who do not follow it."""

from __future__ import annotations

import uuid

from geminorum.fleet.database import Database
from geminorum.fleet.events.feed import Numbered, in_range, numbered

_CHUNKS_AT_ONCE = 50
_CHUNKS = """
SELECT attempt, seq, data FROM geminorum_events
WHERE job = %s AND (attempt, seq) > (%s, %s) ORDER BY attempt, seq LIMIT %s
"""


async def read_events(
    database: Database, job: uuid.UUID, after: tuple[int, int], limit: int
) -> Numbered:
    """Those behind the cursor `after`, in order, no more than `limit`; does not wait for others."""
    found: Numbered = []
    cursor, is_last = in_range(after), False
    while len(found) < limit and not is_last:
        values = (job, *cursor, _CHUNKS_AT_ONCE)
        async with database.transaction() as connection:
            rows = await (await connection.execute(_CHUNKS, values, binary=True)).fetchall()
        for attempt, seq, data in rows:
            # A cursor may point into a chunk.
            found += [pair for pair in numbered(attempt, seq, bytes(data)) if pair[0] > cursor]
            cursor = attempt, seq
        is_last = len(rows) < _CHUNKS_AT_ONCE
    return found[:limit]
