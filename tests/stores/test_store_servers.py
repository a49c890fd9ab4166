"""Stores on real servers: one that speaks S3's protocol, and PostgreSQL."""

import threading
import time
import uuid
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from buckets import bucket_server
from servers import empty_database, s3_server
from two_homes import SESSION, machine, turn

from geminorum.errors import InvalidOptions, StoreConflict, StoreError, Unsupported
from geminorum.sessions.store import ObjectStore, PostgresStore, listed, open_store
from geminorum.testing.stores import CHECKS


@pytest.fixture(scope="module")
def s3():
    with s3_server() as address:
        yield address


@pytest.fixture
def s3_url(s3, monkeypatch):
    """A folder of its own for each test."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return f"s3://sessions/{uuid.uuid4().hex}?endpoint={s3}&region=us-east-1"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_object_storage(check, s3_url):
    check(open_store(s3_url))


def test_a_session_travels_through_object_storage(s3_url, tmp_path):
    _check_travel(open_store(s3_url), tmp_path)


@pytest.fixture(scope="module")
def bucket():
    with bucket_server() as address:
        yield address


def others(bucket: str) -> dict[str, str]:
    """The URL of a folder of its own on each other kind of storage; none asks for a token."""
    folder = uuid.uuid4().hex
    return {
        "gs": f"gs://sessions/{folder}?endpoint={bucket}&bearer_token=secret",
        "az": f"az://sessions/{folder}?endpoint={bucket}&account_name=me&account_key=c2VjcmV0",
    }


@pytest.mark.parametrize("kind", ["gs", "az"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_other_object_storage(check, kind, bucket):
    check(open_store(others(bucket)[kind]))


@pytest.mark.parametrize("kind", ["gs", "az"])
def test_a_session_travels_through_other_object_storage(kind, bucket, tmp_path):
    _check_travel(open_store(others(bucket)[kind]), tmp_path)


def test_an_object_that_is_no_entry_is_passed_over(s3_url, tmp_path):
    """Whoever may write to the bucket may write anything."""
    import obstore

    store = ObjectStore(s3_url)
    here = machine(tmp_path, "here")
    turn(here, store, "one")
    before = [*store.load(SESSION)]
    for name in (f"entries/{SESSION}/notes", f"entries/{SESSION}/0000000099", "entries/x"):
        obstore.put(store._bucket, name, b"junk")
    obstore.put(store._bucket, f"leases/{SESSION}", b"junk")
    assert [*store.load(SESSION)] == before
    assert turn(here, store, "two") == []


def test_a_bucket_that_is_not_there_is_a_failure_of_the_store(s3, s3_url, tmp_path):
    here = machine(tmp_path, "here")
    here.say("one")
    gone = open_store(s3_url.replace("sessions", "elsewhere"))
    told = turn(here, gone, "two")
    assert len(told) == 2
    with pytest.raises(StoreError, match="the store failed"):
        machine(tmp_path, "there").sync(gone).restore(SESSION)


def test_a_url_without_a_bucket_is_refused():
    for url in ("s3://", "s3:///folder"):
        with pytest.raises(InvalidOptions, match="names no bucket"):
            open_store(url)


def test_the_usual_variable_has_the_address(s3, s3_url, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_store(s3_url.partition("?")[0])
    store.append("seven", 1, b"data")
    assert [*store.load("seven")] == [b"data"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_lease_does_not_depend_on_the_clocks_of_the_machines(s3_url, monkeypatch, hours):
    store, now = open_store(s3_url), time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600 * hours)
    assert store.acquire("seven", "me", 60) == "me"
    assert store.acquire("eight", "me", 0) == "me"
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert store.acquire("seven", "you", 60) == "me"
    assert store.acquire("eight", "you", 60) == "you"


def test_who_was_too_late_does_not_take_a_lease_that_was_renewed(s3_url):
    """Between the look at a lease and its replacement, its holder may have renewed it."""
    store = ObjectStore(s3_url)
    store.acquire("seven", "me", 60)
    known, _, version = store._lease_of("seven")
    store.acquire("seven", "me", 60)
    assert not store._put_lease("seven", known, version)


def test_a_session_that_is_deleted_while_it_is_read_is_only_shorter(s3_url):
    store = open_store(s3_url)
    entries = [b"%d" % number for number in range(1, 41)]
    for number, data in enumerate(entries, 1):
        store.append("seven", number, data)
    reading = iter(store.load("seven"))
    found = [next(reading)]
    store.delete("seven")
    found += reading
    assert found == entries[: len(found)] != entries


@pytest.fixture(scope="module")
def database_url(server):
    return empty_database(server)


class TestPostgres:
    """In one class, so that one process runs them all, with one server."""

    def test_postgres(self, database_url, subtests):
        for check in CHECKS:
            with subtests.test(check.__name__):
                check(PostgresStore(database_url))

    def test_a_session_travels_through_postgres(self, database_url, tmp_path):
        _check_travel(open_store(database_url), tmp_path)

    def test_its_name_has_no_password(self, database_url):
        password = urlsplit(database_url).password
        assert password not in repr(open_store(database_url))

    def test_a_wrong_password_does_not_end_a_run(self, database_url, tmp_path):
        here = machine(tmp_path, "here")
        here.say("one")
        password = urlsplit(database_url).password
        told = turn(here, open_store(database_url.replace(password, "wrong")), "two")
        assert len(told) == 2
        assert "password authentication failed" in told[0]

    def test_a_database_of_a_newer_geminorum_is_refused(self, database_url):
        PostgresStore(database_url).list()
        with psycopg.connect(database_url) as database:
            database.execute("UPDATE geminorum_store_version SET version = 99")
        with pytest.raises(Unsupported, match="newer geminorum"):
            PostgresStore(database_url).list()
        with psycopg.connect(database_url) as database:
            database.execute("UPDATE geminorum_store_version SET version = 1")

    def test_an_entry_cannot_follow_one_that_is_being_deleted(self, database_url):
        store = PostgresStore(database_url)
        for number in (1, 2):
            store.append("deleted", number, b"data")
        with _slow_deletion(database_url):
            deleting = threading.Thread(target=store.delete, args=("deleted",))
            deleting.start()
            _await_query(database_url, "DELETE FROM geminorum_entries%")
            with pytest.raises(StoreConflict):
                store.append("deleted", 3, b"late")
            deleting.join()
        assert [*store.load("deleted")] == []
        store.append("deleted", 1, b"anew")

    def test_a_connection_that_is_cut_is_a_failure_of_one_call(self, database_url):
        store, failures = PostgresStore(database_url), []
        store.append("cut", 1, b"one")

        def append():
            try:
                store.append("cut", 2, b"two")
            except StoreError as error:
                failures.append(error)

        with psycopg.connect(database_url) as blocking:
            blocking.execute("LOCK TABLE geminorum_entries IN ACCESS EXCLUSIVE MODE")
            cut = threading.Thread(target=append)
            cut.start()
            pid = _await_query(database_url, "%INSERT INTO geminorum_entries%")
            blocking.execute("SELECT pg_terminate_backend(%s)", (pid,))
            cut.join()
        assert "AdminShutdown" in failures[0].message
        store.append("cut", 2, b"two")
        assert [*store.load("cut")] == [b"one", b"two"]

    def test_the_users_own_options_of_the_connection_are_kept(self, database_url):
        with psycopg.connect(database_url) as database:
            database.execute("CREATE SCHEMA elsewhere")
        url = f"{database_url}&options={quote('-c search_path=elsewhere')}"
        # The first call makes the tables, though it is refused itself.
        with pytest.raises(StoreConflict):
            (store := PostgresStore(url)).append("seven", 2, b"data")
        store.append("seven", 1, b"data")
        with psycopg.connect(database_url) as database:
            query = "SELECT session FROM elsewhere.geminorum_entries"
            assert database.execute(query).fetchall() == [("seven",)]

    def test_who_may_only_use_the_tables_can_use_them(self, database_url):
        PostgresStore(database_url).list()
        with psycopg.connect(database_url) as database:
            database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            database.execute("CREATE ROLE modest LOGIN PASSWORD 'modest'")
            tables = "geminorum_entries, geminorum_leases, geminorum_store_version"
            database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO modest")
        _, _, place = database_url.partition("@")
        store = PostgresStore(f"postgresql://modest:modest@{place}")
        store.append("modest", 1, b"data")
        assert store.acquire("modest", "me", 60) == "me"
        store.delete("modest")


@contextmanager
def _slow_deletion(url):
    with psycopg.connect(url) as database:
        database.execute("""CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN PERFORM pg_sleep(0.7); RETURN OLD; END'""")
        database.execute("""CREATE TRIGGER slowly BEFORE DELETE ON geminorum_entries
            FOR EACH ROW EXECUTE FUNCTION take_time()""")
    try:
        yield
    finally:
        with psycopg.connect(url) as database:
            database.execute("DROP FUNCTION take_time CASCADE")


def _await_query(url, pattern) -> int:
    """The process of the server that is at work on such a statement."""
    query = """SELECT pid FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE %s AND pid <> pg_backend_pid()"""
    deadline = time.monotonic() + 60
    with psycopg.connect(url, autocommit=True) as database:
        while not (found := database.execute(query, (pattern,)).fetchone()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    return found[0]


def _check_travel(store, folder):
    here, there = machine(folder, "here"), machine(folder, "there")
    store.delete(SESSION)
    assert turn(here, store, "one") == []
    assert turn(there, store, "two") == []
    assert turn(here, store, "three") == []
    assert here.heard == ["one", "two", "three"]
    assert [info.title for info in listed(store) if info.id == SESSION] == ["one"]
