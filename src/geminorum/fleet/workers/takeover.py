"""Frees jobs that nobody runs, so that a worker takes them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence

from geminorum.errors import FleetUnavailable, Incomplete
from geminorum.fleet.database import Connection, Database, explained
from geminorum.fleet.workers import claims
from geminorum.fleet.workers.claims import Orphan

log = logging.getLogger("geminorum.fleet")

_SWEEP_SECONDS = 0.5


async def sweep(database: Database) -> None:
    """Frees the jobs of workers that are lost, until it is cancelled; every worker does so."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        try:
            async with database.transaction() as connection:
                await _free_all(database, connection, await claims.lose_workers(connection))
        except FleetUnavailable as error:
            log.debug("%s", error.message)
        except Exception:  # Without a sweeper, nobody would notice workers that are lost.
            log.exception("jobs of lost workers cannot be freed")


async def free_strays(database: Database, worker: int, known: Sequence[uuid.UUID]) -> None:
    """Frees the jobs that are a worker's by the database, and that it does not know of."""
    async with database.transaction() as connection:
        strays = await claims.hold_strays(connection, worker, known)
        await _free_all(database, connection, strays)


async def _free_all(database: Database, connection: Connection, orphans: Sequence[Orphan]) -> None:
    for orphan in orphans:
        try:
            # One that cannot be freed must not keep the others from it.
            with explained(database.url):
                async with connection.transaction():
                    await _free(connection, orphan)
        except FleetUnavailable:
            raise
        except Exception:
            log.exception("job %s of a lost worker cannot be freed", orphan.job)


async def _free(connection: Connection, orphan: Orphan) -> None:
    """Lets another worker continue a job; ends one that was cancelled, or tried often enough."""
    if orphan.is_cancelled or orphan.attempt < orphan.max_attempts:
        await claims.put_back(connection, orphan, [], "lost")
    else:
        error = Incomplete(f"the worker was lost in each of {orphan.attempt} attempts")
        await claims.finish_with(connection, orphan, error)
