"""What a store holds: its sessions by their last entries, and the one that an id means."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from geminorum.errors import InvalidOptions, StoreError, Unsupported
from geminorum.sessions.reading import ID
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.protocol import Listing, SessionStore
from geminorum.wire.stored.entries import Damaged, decoded

_WHOLE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_READERS = 8
"""Sessions that are looked at together: there may be thousands, and each takes a round trip."""
_MAX_TEXT = 4096
"""Of what a listing says about a session; a title has 80 letters, a path no more than this."""


class StoredInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session in the listing of a store."""

    id: str
    title: str = ""
    cwd: str = ""
    """The folder of its last turn, on the machine where that ran."""
    cli_version: str | None = None
    started: int = 0
    """Milliseconds since 1970."""
    updated: int = 0
    size: int = 0
    """Bytes of its files."""
    problem: str | None = None
    """What is wrong with its last entry. None: nothing found."""


def listed(store: SessionStore) -> list[StoredInfo]:
    """The sessions of a store, the last updated first. Reads one entry of each."""
    with ThreadPoolExecutor(_READERS) as readers:
        infos = [*readers.map(lambda one: _info_of(store, *one), named(store))]
    return sorted(infos, key=lambda info: info.updated, reverse=True)


def with_turns(infos: Sequence[StoredInfo]) -> list[StoredInfo]:
    """Those that can be continued: a first turn that was never saved leaves nothing."""
    return [info for info in infos if info.size or info.problem]


def named(store: SessionStore) -> Listing:
    """The sessions of a store, without those whose ids are none: they become names of files."""
    with explain_failures():
        return [(session, number) for session, number in store.list() if ID.fullmatch(session)]


def ids_beginning(store: SessionStore, wanted: str) -> set[str]:
    """The ids in the store that begin so. A whole one is not looked for: no other begins so."""
    if _WHOLE_ID.fullmatch(wanted):
        return {wanted}
    return {session for session, _ in named(store) if session.startswith(wanted)}


def only_id(wanted: str, found: Collection[str]) -> str:
    """The one that is meant; raises InvalidOptions if several may be, returns one of none as it is.

    One that is exactly so is meant, whatever others begin with it: user-1 and user-10.
    """
    if wanted in found or not found:
        return wanted
    if len(found) > 1:
        names = ", ".join(sorted(found)[:10])
        raise InvalidOptions(f"{wanted!r} may be any of {names}", hint="write more of the id")
    return next(iter(found))


def _info_of(store: SessionStore, session: str, number: int) -> StoredInfo:
    try:
        with explain_failures():
            last = next(iter(store.load(session, number - 1)), None)
        if last is None:
            return StoredInfo(id=session, problem="its last entry is missing")
        about = decoded(last, session).about
    except (Damaged, StoreError, Unsupported) as error:
        return StoredInfo(id=session, problem=str(error)[:_MAX_TEXT])
    return StoredInfo(
        id=session,
        title=about.title[:_MAX_TEXT],
        cwd=about.cwd[:_MAX_TEXT],
        cli_version=about.cli_version,
        started=about.created,
        updated=about.updated,
        size=about.size,
    )
