"""Checks that a session store keeps its promises; for stores of your own.

    import pytest
    from geminorum.testing.stores import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_store(check):
        check(MyStore())

Each check uses sessions with names of its own, so all of them may share a store. It raises
AssertionError with what is wrong.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from geminorum.errors import StoreConflict
from geminorum.sessions.store import SessionStore

_WRITERS, _ENTRIES = 4, 8
_SHORT_SECONDS = 0.5
_LARGE_BYTES = 4 * 1024 * 1024 + 1024
"""As much as geminorum puts into an entry, and what it adds to it."""
_EVERY_BYTE = bytes(range(256))


def entries_come_back_in_order(store: SessionStore) -> None:
    session = _new_session()
    entries = [f"entry {number}".encode() + _EVERY_BYTE for number in range(1, 13)]
    for number, data in enumerate(entries, 1):
        store.append(session, number, data)
    _require([*map(bytes, store.load(session))] == entries, "load() returns what was appended")
    rest = [*map(bytes, store.load(session, 9))]
    _require(rest == entries[9:], "load(after=9) returns what follows entry 9")
    _require([*store.load(session, 12)] == [], "load(after=12) of 12 returns nothing")


def an_unknown_session_is_empty(store: SessionStore) -> None:
    session = _new_session()
    _require([*store.load(session)] == [], "load() of an unknown session returns nothing")
    _require(session not in dict(store.list()), "list() leaves it out")
    store.delete(session)
    store.release(session, "nobody")


def an_entry_that_is_not_the_next_is_refused(store: SessionStore) -> None:
    session = _new_session()
    _require(_is_refused(store, session, 2), "the first entry has the number 1")
    store.append(session, 1, b"first")
    for number in (0, 1, 3):
        _require(_is_refused(store, session, number), f"after 1, {number} is refused")
    _require([*map(bytes, store.load(session))] == [b"first"], "a refused entry leaves no trace")


def sessions_are_apart(store: SessionStore) -> None:
    one, other = (session := _new_session()), f"{session}-2"
    store.append(one, 1, b"one")
    store.append(other, 1, b"other")
    store.append(other, 2, b"more")
    _require([*map(bytes, store.load(one))] == [b"one"], "a session has its own entries only")
    found = dict(store.list())
    _require((found.get(one), found.get(other)) == (1, 2), "list() has each with its last number")


def a_deleted_session_is_gone(store: SessionStore) -> None:
    one, other = _new_session(), _new_session()
    for session in (one, other):
        store.append(session, 1, b"data")
        store.append(session, 2, b"more")
        store.acquire(session, "me", 60)
    store.delete(one)
    _require([*store.load(one)] == [], "delete() removes the entries")
    _require(one not in dict(store.list()), "list() leaves a deleted session out")
    _require(store.acquire(one, "you", 60) == "you", "delete() removes the lease")
    _require(_is_refused(store, one, 3), "a deleted session begins with 1 again")
    _require(len([*store.load(other)]) == 2, "delete() leaves other sessions alone")


def a_large_entry_comes_back_whole(store: SessionStore) -> None:
    session, data = _new_session(), _EVERY_BYTE * (_LARGE_BYTES // 256)
    store.append(session, 1, data)
    store.append(session, 2, b"")
    _require([*map(bytes, store.load(session))] == [data, b""], "entries of 4 MB and of 0 bytes")


def of_two_writers_one_succeeds(store: SessionStore) -> None:
    session = _new_session()

    def write(writer: int) -> int:
        return sum(
            not _is_refused(store, session, number, f"{writer}".encode())
            for number in range(1, _ENTRIES + 1)
        )

    with ThreadPoolExecutor(_WRITERS) as threads:
        succeeded = sum(threads.map(write, range(_WRITERS)))
    _require(succeeded == _ENTRIES, "of several writers, one appends each entry")
    _require(len([*store.load(session)]) == _ENTRIES, "and no entry is lost")


def a_lease_has_one_holder(store: SessionStore) -> None:
    session = _new_session()
    _require(store.acquire(session, "me", 60) == "me", "a free lease is given")
    _require(store.acquire(session, "you", 60) == "me", "one that is held is not")
    _require(store.acquire(session, "me", 60) == "me", "its holder renews it")
    store.release(session, "you")
    _require(store.acquire(session, "you", 60) == "me", "only its holder releases it")
    store.release(session, "me")
    _require(store.acquire(session, "you", 60) == "you", "one that was released is given")


def of_many_who_want_a_lease_one_gets_it(store: SessionStore) -> None:
    session, names = _new_session(), [f"holder-{number}" for number in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as threads:
        told = [*threads.map(lambda name: store.acquire(session, name, 60), names)]
    _require(len({*told}) == 1, "all are told the same holder")
    _require(store.acquire(session, "late", 60) == told[0], "who holds it from then on")


def a_lease_ends(store: SessionStore) -> None:
    session = _new_session()
    store.acquire(session, "me", _SHORT_SECONDS)
    time.sleep(_SHORT_SECONDS * 3)
    _require(store.acquire(session, "you", 60) == "you", "a lease ends after its seconds")
    _require(store.acquire(session, "me", 60) == "you", "its old holder has lost it")


CHECKS: tuple[Callable[[SessionStore], None], ...] = (
    entries_come_back_in_order,
    an_unknown_session_is_empty,
    an_entry_that_is_not_the_next_is_refused,
    sessions_are_apart,
    a_deleted_session_is_gone,
    a_large_entry_comes_back_whole,
    of_two_writers_one_succeeds,
    a_lease_has_one_holder,
    of_many_who_want_a_lease_one_gets_it,
    a_lease_ends,
)


def _new_session() -> str:
    return f"check-{uuid.uuid4()}"


def _is_refused(store: SessionStore, session: str, number: int, data: bytes = b"data") -> bool:
    try:
        store.append(session, number, data)
    except StoreConflict:
        return True
    return False


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(promise)
