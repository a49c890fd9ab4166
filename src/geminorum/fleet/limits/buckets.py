"""Takes a request out of the buckets of all limits that it falls under, or of none.

A bucket is one row. Of rates it has the moment when it will be full again: taking moves that ahead,
and time fills it. All by the database's clock: those of the workers may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from geminorum.fleet.database import Connection

# All rows are locked, in one order, before one is judged: two requests cannot take the last room.
_TAKE = """
WITH mine AS (
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::numeric[])
        AS mine (limit_id, key, tenant, model, wanted)
), held AS MATERIALIZED (
    SELECT bucket.limit_id, bucket.key, bucket.tenant, bucket.model, bucket.full_at, bucket.day,
        bucket.used, mine.wanted, limits.kind, limits.amount, limits.burst, limits.refuses,
        limits.label, geminorum_wait(limits, bucket, mine.wanted) AS seconds
    FROM geminorum_buckets AS bucket JOIN mine USING (limit_id, key, tenant, model)
        JOIN geminorum_limits AS limits ON limits.id = bucket.limit_id
    ORDER BY bucket.limit_id FOR UPDATE OF bucket
), taken AS (
    UPDATE geminorum_buckets AS bucket SET
        full_at = CASE WHEN held.kind = 'usd_per_day' THEN held.full_at
            ELSE greatest(held.full_at, clock_timestamp())
                + (held.wanted * 60 / held.amount)::double precision * interval '1 s' END,
        used = held.wanted + CASE WHEN held.day = today.day THEN held.used ELSE 0 END,
        day = today.day
    FROM held, (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
    WHERE (bucket.limit_id, bucket.key, bucket.tenant, bucket.model)
            = (held.limit_id, held.key, held.tenant, held.model)
        AND NOT EXISTS (SELECT FROM held WHERE seconds > 0)
        AND (SELECT count(*) FROM held) = (SELECT count(*) FROM mine)
)
SELECT label, refuses, seconds, (burst * 60 / amount)::double precision FROM held
"""
_MAKE = """
INSERT INTO geminorum_buckets (limit_id, key, tenant, model)
SELECT mine.* FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])
    AS mine (limit_id, key, tenant, model) JOIN geminorum_limits ON id = limit_id
ON CONFLICT DO NOTHING
"""
_CORRECT = """
WITH held AS MATERIALIZED (
    SELECT bucket.*, mine.more, limits.kind, limits.amount
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::numeric[])
            AS mine (limit_id, key, tenant, model, more)
        JOIN geminorum_buckets AS bucket USING (limit_id, key, tenant, model)
        JOIN geminorum_limits AS limits ON limits.id = bucket.limit_id
    ORDER BY bucket.limit_id FOR UPDATE OF bucket
)
UPDATE geminorum_buckets AS bucket SET
    full_at = CASE held.kind WHEN 'tokens_per_minute' THEN held.full_at
        + (held.more * 60 / held.amount)::double precision * interval '1 s' ELSE held.full_at END,
    used = greatest(0, held.more + CASE WHEN held.day = today.day THEN held.used ELSE 0 END),
    day = today.day
FROM held, (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
WHERE (bucket.limit_id, bucket.key, bucket.tenant, bucket.model)
    = (held.limit_id, held.key, held.tenant, held.model)
"""


class Share(NamedTuple):
    """What a request takes of one bucket."""

    limit_id: int
    key: str
    tenant: str
    model: str
    amount: Decimal


class Obstacle(NamedTuple):
    """A limit that has no room for a request."""

    label: str
    refuses: bool
    seconds: float
    """Until it has, if nobody else comes first."""
    fill_seconds: float
    """How long its bucket takes to fill."""


class LimitsChanged(Exception):
    """One of the limits is not there any more. Never leaves the package."""


async def take(connection: Connection, shares: Sequence[Share]) -> list[Obstacle]:
    """Takes all shares and returns nothing, or takes none and returns what is in the way. Raises
    LimitsChanged."""
    for _ in range(2):
        rows = await (await connection.execute(_TAKE, _columns(shares))).fetchall()
        if len(rows) == len(shares):
            return [Obstacle(*row) for row in rows if row[2] > 0]
        await connection.execute(_MAKE, _columns(shares)[:-1])
    raise LimitsChanged


async def correct(connection: Connection, shares: Sequence[Share]) -> None:
    """Takes these, too, or gives back what is negative. A bucket that is gone needs nothing."""
    await connection.execute(_CORRECT, _columns(shares))


def _columns(shares: Sequence[Share]) -> list[list[object]]:
    return [list(column) for column in zip(*sorted(shares), strict=True)]
