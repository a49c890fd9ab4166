"""Session stores: sessions that several machines share, by URL or with a store of your own."""

from geminorum.errors import StoreConflict as StoreConflict
from geminorum.errors import StoreError as StoreError
from geminorum.sessions.store.fetching import fetch as fetch
from geminorum.sessions.store.fetching import find as find
from geminorum.sessions.store.listing import StoredInfo as StoredInfo
from geminorum.sessions.store.listing import listed as listed
from geminorum.sessions.store.protocol import SessionStore as SessionStore
from geminorum.sessions.store.sqlite import SqliteStore as SqliteStore
from geminorum.sessions.store.urls import open_store as open_store

__all__ = [
    "SessionStore",
    "SqliteStore",
    "StoreConflict",
    "StoreError",
    "StoredInfo",
    "fetch",
    "find",
    "listed",
    "open_store",
]
