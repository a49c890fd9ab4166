"""A store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminorum.credentials import shown_address
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.store.protocol import SessionStore
from geminorum.sessions.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from geminorum.sessions.store import objects, postgres
else:
    objects = lazy_module("geminorum.sessions.store.objects")
    postgres = lazy_module("geminorum.sessions.store.postgres")

_SQLITE = "sqlite:///"
_URLS = (
    "one of sqlite:///sessions.db, s3://bucket/folder (also gs:// and az://), "
    "postgresql://user@host/database"
)


def open_store(store: SessionStore | str) -> SessionStore:
    """The store that a URL names; a store is returned as it is.

    `sqlite:///sessions.db` is a file in the current folder, `sqlite:////srv/sessions.db` one with
    an absolute path; `s3://bucket/folder`, `gs://…` and `az://…` are folders in object storage, and
    `postgresql://user@host/database` is a database.
    """
    if not isinstance(store, str):
        return store
    if store.startswith(_SQLITE) and len(store) > len(_SQLITE):
        return SqliteStore(store.removeprefix(_SQLITE))
    scheme = store.partition("://")[0]
    if scheme in ("s3", "gs", "az"):
        return objects.ObjectStore(store)
    if scheme in ("postgresql", "postgres"):
        return postgres.PostgresStore(store)
    raise InvalidOptions(f"store={shown_address(store)!r} is not the URL of a store", hint=_URLS)
