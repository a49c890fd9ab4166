"""The page's connection to the fleet's database: opened when it is first needed."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import fleet as fleets
else:
    # psycopg takes its time, and most pages have no fleet.
    fleets = lazy_module("geminorum.fleet")

_SCHEMES = ("postgres://", "postgresql://")


def fleet_url(db: str | None) -> str | None:
    """The fleet's database: the page's own, if that is PostgreSQL, else GEMINORUM_DB; or none."""
    is_postgres = db is not None and db.startswith(_SCHEMES)
    return db if is_postgres else os.environ.get("GEMINORUM_DB") or None


class FleetLink:
    """Opens the fleet once, for all requests; `close` ends it."""

    def __init__(self, db: str | None) -> None:
        """`db`: the page's own database; see `fleet_url`."""
        self._url = fleet_url(db)
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._fleet: fleets.Fleet | None = None

    @property
    def is_there(self) -> bool:
        return bool(self._url)

    async def open(self) -> fleets.Fleet:
        """The fleet. Raises FleetError if its database is away, and tries again next time."""
        if not self._url:
            raise HTTPException(404, NO_FLEET)
        async with self._lock:
            if self._fleet is None:
                self._fleet = await self._stack.enter_async_context(fleets.Fleet(self._url))
        return self._fleet

    async def close(self) -> None:
        self._fleet = None
        await self._stack.aclose()


NO_FLEET = "there is no fleet; start the page with --db postgresql://… or set GEMINORUM_DB"
