"""The sessions of a store, for the commands that list, show, export and delete them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from geminorum.sessions import Session, SessionInfo
from geminorum.sessions.store import SessionStore, StoredInfo, fetch, find, listed, open_store


def stored_sessions(url: SessionStore | str) -> list[StoredInfo]:
    return listed(open_store(url))


def as_sessions(infos: list[StoredInfo]) -> list[SessionInfo]:
    """As the list of a folder's sessions shows them."""
    return [
        SessionInfo(
            id=info.id,
            path=Path(info.id),
            cwd=Path(info.cwd) if info.cwd else None,
            started=info.started,
            updated=info.updated,
            title=info.title,
            size=info.size,
            problem=info.problem,
        )
        for info in infos
    ]


@contextmanager
def stored_session(url: SessionStore | str, name: str) -> Iterator[Session]:
    """The session as files, for one block."""
    with TemporaryDirectory(prefix="geminorum-") as folder:
        yield fetch(open_store(url), name, Path(folder))


def chosen_in(url: str, names: list[str]) -> tuple[SessionStore, list[str]]:
    """The store, and the whole ids of these sessions in it."""
    store = open_store(url)
    return store, [find(store, name) for name in names]
