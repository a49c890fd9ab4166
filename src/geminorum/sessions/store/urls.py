"""A store by its URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from geminorum.errors import InvalidOptions
from geminorum.sessions.store.protocol import SessionStore
from geminorum.sessions.store.sqlite import SqliteStore

_SQLITE = "sqlite:///"


def open_store(store: SessionStore | str) -> SessionStore:
    """The store that a URL names; a store is returned as it is.

    `sqlite:///sessions.db` is a file in the current folder, `sqlite:////srv/sessions.db` one with
    an absolute path.
    """
    if not isinstance(store, str):
        return store
    if store.startswith(_SQLITE) and len(store) > len(_SQLITE):
        return SqliteStore(store.removeprefix(_SQLITE))
    raise InvalidOptions(f"store={shown_url(store)!r} is not the URL of a store", hint=_URLS)


def shown_url(url: str) -> str:
    """The URL without a password."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return "…"
    return url.replace(f":{password}@", ":…@") if password else url


_URLS = "one of sqlite:///sessions.db"
