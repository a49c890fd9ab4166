"""The limit that a running job waits for, in its row, for those who look at the fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from geminorum.errors import FleetError
from geminorum.fleet.database import Database
from geminorum.fleet.workers.claims import Claim

log = logging.getLogger("geminorum.fleet")

_MARK = """
UPDATE geminorum_jobs SET waits_for = %s WHERE id = %s AND attempt = %s AND state = 'running'
"""


class WaitMark:
    """Writes the last word about one attempt in the background; earlier ones may be skipped."""

    def __init__(self, database: Database, claim: Claim, on_change: Callable[[], object]) -> None:
        self._database, self._claim, self._on_change = database, claim, on_change
        self.label: str | None = None
        """What the job waits for; None: it does not wait."""
        self._written: str | None = None
        self._writing: asyncio.Task[None] | None = None

    def set(self, label: str | None) -> None:
        self.label = label
        self._on_change()
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Before the end of the attempt is written, which clears the mark."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        while self._written != self.label:
            label = self.label
            try:
                async with self._database.transaction() as connection:
                    values = label, self._claim.job, self._claim.attempt
                    await connection.execute(_MARK, values)
            except FleetError as error:
                log.debug("job %s: %s", self._claim.job, error.message)
                return
            self._written = label
