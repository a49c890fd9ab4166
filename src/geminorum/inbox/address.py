"""Where the inbox is: an address, GEMINORUM_INBOX, the fleet's database, or the user's own file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum.credentials import shown_address
from geminorum.errors import InvalidOptions
from geminorum.inbox.database import Database
from geminorum.inbox.sqlite import SqliteDatabase
from geminorum.runtime.lazy import lazy_module, platformdirs

if TYPE_CHECKING:
    from geminorum.inbox import postgres
else:
    postgres = lazy_module("geminorum.inbox.postgres")

VARIABLES = ("GEMINORUM_INBOX", "GEMINORUM_DB")
"""The first that is set counts."""
_SQLITE = "sqlite:///"
_ADDRESSES = "one of inbox.db, sqlite:///inbox.db, postgresql://user@host/database"


def open_database(address: str | os.PathLike[str] | None) -> Database:
    """The database of that address. Nothing is opened or made yet."""
    named = address or next(filter(None, map(os.environ.get, VARIABLES)), None)
    if named is None:
        return SqliteDatabase(default_path())
    if not isinstance(named, str):
        return SqliteDatabase(_absolute(named))
    scheme, has_scheme, _ = named.partition("://")
    if scheme in ("postgresql", "postgres") and has_scheme:
        return postgres.PostgresDatabase(named)
    if named.startswith(_SQLITE) and len(named) > len(_SQLITE):
        return SqliteDatabase(_absolute(named.removeprefix(_SQLITE)))
    if has_scheme:
        text = f"{shown_address(named)!r} is not the address of an inbox"
        raise InvalidOptions(text, hint=_ADDRESSES)
    return SqliteDatabase(_absolute(named))


def default_path() -> Path:
    """The file in the user's state folder: `~/.local/state/geminorum/inbox.db` on Linux."""
    return platformdirs.user_state_path("geminorum", appauthor=False) / "inbox.db"


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(path).expanduser().absolute()
