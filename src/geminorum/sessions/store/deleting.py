"""Removes a session from a store, unless a run is at work in it."""

from __future__ import annotations

from geminorum.errors import SessionBusy
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.holder import new_holder, shown_holder, take_lease
from geminorum.sessions.store.protocol import SessionStore

_SECONDS = 60.0


def delete(store: SessionStore, session: str) -> None:
    """Removes a session, by its whole id; raises SessionBusy while a conversation is open in it."""
    me = new_holder()
    with explain_failures():
        holder = take_lease(store, session, me, _SECONDS)
        if holder != me:
            raise SessionBusy(f"session {session!r} is open, by {shown_holder(holder)}")
        store.delete(session)  # The lease goes with it.
