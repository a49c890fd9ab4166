"""What the jobs of a worker have cost so far, in the database: a lost attempt stays on the bill."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from geminorum.errors import FleetUnavailable
from geminorum.fleet.database import Database
from geminorum.fleet.workers import claims

if TYPE_CHECKING:
    from geminorum.fleet.workers.attempt import Attempt

log = logging.getLogger("geminorum.fleet")

_LOOK_SECONDS = 1.0
_Spent: TypeAlias = dict[tuple[uuid.UUID, int], Decimal]


class RunningBill:
    """Writes the cost of all attempts of a worker with one statement, whenever any has changed."""

    def __init__(self, database: Database, attempts: Mapping[uuid.UUID, Attempt]) -> None:
        """`attempts` are those that go on; the worker changes them."""
        self._database, self._attempts = database, attempts
        self._written: _Spent = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._write()
            except (FleetUnavailable, OSError) as error:
                log.debug("the cost of running jobs is not written: %s", error)
            except Exception:
                log.exception("the cost of running jobs cannot be written")

    async def _write(self) -> None:
        spent = self._spent()
        changed = {key: usd for key, usd in spent.items() if self._written.get(key) != usd}
        if changed:
            async with self._database.transaction() as connection:
                await claims.note_spending(connection, changed)
        self._written = spent

    def _spent(self) -> _Spent:
        known = ((one.claim, one.spent()) for one in self._attempts.values())
        return {(claim.job, claim.attempt): usd for claim, usd in known if usd is not None}
