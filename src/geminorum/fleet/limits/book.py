"""The limits that a worker knows of: read again whenever somebody changes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from geminorum.errors import FleetUnavailable
from geminorum.fleet.database import Database
from geminorum.fleet.limits.rules import Rule
from geminorum.fleet.limits.table import rules_of
from geminorum.transports.gates import ModelCall

log = logging.getLogger("geminorum.fleet")

_RETRY_SECONDS = 0.25


class LimitBook:
    """So that requests which no limit is about need no database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rules: Sequence[Rule] = ()
        self._is_stale = asyncio.Event()

    def note_change(self) -> None:
        """The limits may have changed; they are read again at once."""
        self._is_stale.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            try:
                await self.read()
            except FleetUnavailable as error:
                log.debug("the limits are not read: %s", error.message)
                await self._retry_later()
            except Exception:  # Without a reader, the worker would keep to old limits for good.
                log.exception("the limits cannot be read")
                await self._retry_later()

    async def _retry_later(self) -> None:
        self._is_stale.set()
        await asyncio.sleep(_RETRY_SECONDS)

    async def read(self) -> None:
        async with self._database.transaction() as connection:
            self._rules = await rules_of(connection)

    @property
    def tells_tenants_apart(self) -> bool:
        return any(rule.tenant for rule in self._rules)

    def concerns(self, tenant: str) -> bool:
        """May requests of a tenant fall under a limit?"""
        return any(rule.tenant in ("", "*", tenant) for rule in self._rules)

    def rules_for(self, call: ModelCall, tenant: str) -> list[Rule]:
        return [rule for rule in self._rules if rule.applies_to(call, tenant)]
