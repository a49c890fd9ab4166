"""Every store keeps the promises of the protocol."""

import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from geminorum.errors import InvalidOptions, StoreConflict, StoreError, Unsupported
from geminorum.sessions.store import SessionStore, SqliteStore, listed, open_store
from geminorum.sessions.store.failures import explain_failures
from geminorum.testing.stores import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_sqlite(check, tmp_path):
    check(SqliteStore(tmp_path / "sessions.db"))


class Forgetful:
    """Keeps every promise but one: whoever is late overwrites."""

    def __init__(self):
        self.entries, self.leases = {}, {}

    def append(self, session, number, data):
        known = self.entries.setdefault(session, [])
        known[number - 1 : number] = [data]

    def load(self, session, after=0):
        return self.entries.get(session, [])[after:]

    def list(self):
        return [(session, len(entries)) for session, entries in self.entries.items()]

    def delete(self, session):
        self.entries.pop(session, None)
        self.leases.pop(session, None)

    def acquire(self, session, holder, seconds):
        return self.leases.setdefault(session, holder)

    def release(self, session, holder):
        if self.leases.get(session) == holder:
            del self.leases[session]


def test_the_checks_find_what_a_store_gets_wrong():
    failed = {check.__name__ for check in CHECKS if _fails(check)}
    assert failed == {
        "an_entry_that_is_not_the_next_is_refused",
        "a_deleted_session_is_gone",
        "of_two_writers_one_succeeds",
        "a_lease_ends",
    }


def _fails(check) -> bool:
    try:
        check(Forgetful())
    except AssertionError:
        return True
    return False


class Together(SqliteStore):
    """Answers only if four ask at the same time."""

    gate = threading.Barrier(4)

    def load(self, session, after=0):
        self.gate.wait(60)
        return super().load(session, after)


def test_sessions_are_looked_at_together(tmp_path):
    """There may be thousands, and in a bucket each takes two round trips."""
    store = Together(tmp_path / "sessions.db")
    for number in range(8):
        store.append(f"session-{number}", 1, b"junk")
    assert {info.problem for info in listed(store)} == {"no entry of a session"}


def test_who_looks_into_an_sqlite_store_waits_for_nobody(tmp_path):
    store = SqliteStore(tmp_path / "sessions.db")
    store.append("seven", 1, b"data")
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert [*store.load("seven")] == [b"data"]
        assert store.list() == [("seven", 1)]


def test_a_store_by_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///here.db").append("seven", 1, b"data")
    absolute = open_store(f"sqlite:///{tmp_path}/here.db")
    assert [*absolute.load("seven")] == [b"data"]
    assert open_store(absolute) is absolute
    assert isinstance(absolute, SessionStore)


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite:///", "nfs://host/x", "sessions.db"])
def test_a_url_of_nothing_is_refused(url):
    with pytest.raises(InvalidOptions, match="not the URL of a store"):
        open_store(url)


def test_a_refused_url_does_not_show_its_password():
    with pytest.raises(InvalidOptions) as caught:
        open_store("nfs://me:swordfish@host/x")
    assert "swordfish" not in str(caught.value)
    assert "me" in str(caught.value)


def test_keys_in_the_url_of_a_bucket_are_refused_and_not_shown():
    with pytest.raises(InvalidOptions, match="keys, which are not read there") as caught:
        open_store("s3://me:swordfish@bucket/folder")
    assert "swordfish" not in str(caught.value)
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


def test_a_file_that_is_no_database_is_named_as_the_problem(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 100)
    with pytest.raises(StoreError, match="file is not a database") as caught:
        SqliteStore(path).list()
    assert (caught.value.retryable, "check the address" in caught.value.hint) == (False, True)
    assert path.read_text().startswith("not a database")


@pytest.mark.parametrize(
    ("said", "hint", "retryable"),
    [
        ('FATAL:  password authentication failed for user "me"', "check the user", False),
        ("Generic S3 error: AccessDenied: no", "check the user", False),
        ('FATAL:  database "nothere" does not exist', "check the address", False),
        ("database or disk is full", "make room", True),
        ("something that no store has said before", "can be reached", True),
    ],
)
def test_a_failing_store_says_what_to_do_about_it(said, hint, retryable):
    with pytest.raises(StoreError) as caught, explain_failures():
        raise OSError(said)
    assert hint in caught.value.hint
    assert "is still on this machine" in caught.value.hint
    assert caught.value.retryable is retryable


def test_an_sqlite_store_is_private(tmp_path):
    path = tmp_path / "deep" / "sessions.db"
    store = SqliteStore(path)
    store.append("seven", 1, b"data")
    with sqlite3.connect(path) as keep_open:  # Otherwise the files beside it are gone again.
        keep_open.execute("SELECT * FROM entries").fetchall()
        store.append("seven", 2, b"data")
        files = [*path.parent.iterdir()]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    keep_open.close()


def test_an_sqlite_store_of_a_newer_geminorum_is_refused(tmp_path):
    path = tmp_path / "sessions.db"
    SqliteStore(path).append("seven", 1, b"data")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(Unsupported, match="newer geminorum"):
        SqliteStore(path).list()


def test_what_was_refused_is_a_conflict(tmp_path):
    with pytest.raises(StoreConflict, match="not the next"):
        SqliteStore(tmp_path / "sessions.db").append("seven", 2, b"data")
