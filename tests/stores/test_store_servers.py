"""Stores on real servers: one that speaks S3's protocol, and PostgreSQL."""

import uuid

import psycopg
import pytest
from servers import postgres_server, s3_server
from two_homes import SESSION, machine, turn

from geminorum.errors import InvalidOptions, StoreError, Unsupported
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


@pytest.fixture(scope="module")
def database_url():
    with postgres_server() as url:
        yield url


class TestPostgres:
    """In one class, so that one process runs them all, with one server."""

    def test_postgres(self, database_url, subtests):
        for check in CHECKS:
            with subtests.test(check.__name__):
                check(PostgresStore(database_url))

    def test_a_session_travels_through_postgres(self, database_url, tmp_path):
        _check_travel(open_store(database_url), tmp_path)

    def test_its_name_has_no_password(self, database_url):
        password = database_url.partition("tests:")[2].partition("@")[0]
        assert password not in repr(open_store(database_url))

    def test_a_wrong_password_does_not_end_a_run(self, database_url, tmp_path):
        here = machine(tmp_path, "here")
        here.say("one")
        password = database_url.partition("tests:")[2].partition("@")[0]
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


def _check_travel(store, folder):
    here, there = machine(folder, "here"), machine(folder, "there")
    store.delete(SESSION)
    assert turn(here, store, "one") == []
    assert turn(there, store, "two") == []
    assert turn(here, store, "three") == []
    assert here.heard == ["one", "two", "three"]
    assert [info.title for info in listed(store) if info.id == SESSION] == ["one"]
