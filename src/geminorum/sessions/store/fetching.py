"""A session of a store, to be read: into a folder, without a run."""

from __future__ import annotations

from pathlib import Path

from geminorum.errors import SessionLost
from geminorum.sessions.reading import Session, load
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.listing import ids_beginning, listed, named, only_id, with_turns
from geminorum.sessions.store.local_files import write_files
from geminorum.sessions.store.protocol import SessionStore
from geminorum.wire.stored.journal import Journal


def find(store: SessionStore, session_id: str) -> str:
    """The whole id of a session in the store, by the start of it, or "latest"."""
    if session_id == "latest":
        found = next((info.id for info in with_turns(listed(store))), None)
    else:
        whole = only_id(session_id, ids_beginning(store, session_id))
        found = whole if whole in dict(named(store)) else None
    if found is None:
        raise SessionLost(f"the store has no session {session_id!r}", hint=_LIST)
    return found


def fetch(store: SessionStore, session_id: str, folder: Path) -> Session:
    """Writes the last whole turn of a session into a folder, and loads it from there."""
    session = find(store, session_id)
    journal = Journal(session)
    with explain_failures():
        journal.extend(store.load(session))
    if not journal.files:
        raise SessionLost(f"the store has no whole turn of session {session!r}", hint=_LIST)
    return load(write_files(folder, session, journal.files))


_LIST = "list its sessions: geminorum sessions list --store URL"
