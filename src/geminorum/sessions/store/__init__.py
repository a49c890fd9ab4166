"""Session stores: sessions that several machines share, by URL or with a store of your own."""

from importlib import import_module
from typing import TYPE_CHECKING

from geminorum.errors import StoreConflict as StoreConflict
from geminorum.errors import StoreError as StoreError
from geminorum.sessions.store.deleting import delete as delete
from geminorum.sessions.store.fetching import fetch as fetch
from geminorum.sessions.store.fetching import find as find
from geminorum.sessions.store.listing import StoredInfo as StoredInfo
from geminorum.sessions.store.listing import listed as listed
from geminorum.sessions.store.protocol import SessionStore as SessionStore
from geminorum.sessions.store.sqlite import SqliteStore as SqliteStore
from geminorum.sessions.store.urls import open_store as open_store

if TYPE_CHECKING:
    from geminorum.sessions.store.objects import ObjectStore as ObjectStore
    from geminorum.sessions.store.postgres import PostgresStore as PostgresStore

_MODULE_OF = {"ObjectStore": "objects", "PostgresStore": "postgres"}

__all__ = [
    "ObjectStore",
    "PostgresStore",
    "SessionStore",
    "SqliteStore",
    "StoreConflict",
    "StoreError",
    "StoredInfo",
    "delete",
    "fetch",
    "find",
    "listed",
    "open_store",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
