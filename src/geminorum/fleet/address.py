"""Where the fleet's database is: an address, GEMINORUM_DB, or a PostgreSQL of geminorum's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from geminorum.credentials import shown_address
from geminorum.fleet import schema
from geminorum.fleet.database import Database, require_driver
from geminorum.inbox.postgres import PostgresDatabase
from geminorum.runtime.lazy import lazy_module
from geminorum.runtime.off_loop import run_off_loop
from geminorum.sessions.store.postgres import PostgresStore

if TYPE_CHECKING:
    from geminorum.fleet.embedded import lease as embedded
else:
    embedded = lazy_module("geminorum.fleet.embedded.lease")

VARIABLE = "GEMINORUM_DB"


class Initialised(msgspec.Struct, frozen=True, kw_only=True):
    """What `initialise` found and made."""

    database: str
    """Its address, without the password."""
    before: int
    """The version of the tables that were there; 0: there were none."""
    version: int

    @property
    def has_changed(self) -> bool:
        return self.before != self.version


async def initialise(url: str | None = None) -> Initialised:
    """Makes the fleet's tables, or brings them up to date; with tables that are, does nothing."""
    async with _running(url) as address, Database(address) as database:
        before = await schema.initialise(database)
        # Makes the tables of sessions and questions, too: workers then need no right to make any.
        await run_off_loop(lambda: PostgresStore(address).release("", ""))
        await run_off_loop(PostgresDatabase(address).prepare)
    return Initialised(database=shown_url(address), before=before, version=schema.VERSION)


@asynccontextmanager
async def database_url(url: str | None = None) -> AsyncIterator[str]:
    """The address of the fleet's database, with its password, for as long as the block.

    `url`, or GEMINORUM_DB. With neither, it is that of the embedded PostgreSQL, which runs at least
    as long as the block, and has its tables.
    """
    async with _running(url) as address:
        if not _named(url):
            async with Database(address) as database:
                await schema.initialise(database)
        yield address


def shown_url(url: str) -> str:
    """An address for people, without its password."""
    return shown_address(url)


def _named(url: str | None) -> str | None:
    return url or os.environ.get(VARIABLE)


@asynccontextmanager
async def _running(url: str | None) -> AsyncIterator[str]:
    require_driver()
    if named := _named(url):
        yield named
        return
    blocking = ExitStack()
    try:
        yield await run_off_loop(lambda: blocking.enter_context(embedded.embedded_postgres()))
    finally:
        await run_off_loop(blocking.close)
