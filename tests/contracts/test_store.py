"""Sessions are remembered between runs, threads and processes."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pytest

from geminorum.errors import SetupError
from geminorum.store import SCHEMA_VERSION, AgentSessions, SqliteSessions, StoredSession


@pytest.fixture
def store(tmp_path):
    return SqliteSessions(tmp_path / "state" / "sessions.db")


def a_run(cwd: Path, session_id: str = "s-1", **values: object) -> StoredSession:
    plain = {"agent": "writer", "last_run": 1_000, "tokens": 10, "cost_usd": Decimal("0.01")}
    return StoredSession(**{**plain, "cwd": str(cwd), "session_id": session_id, **values})


def test_a_session_is_found_again_by_another_instance(store, tmp_path):
    """S1-36, S1-49: a recorded session is read back by a second store on the same file."""
    assert store.get("writer", tmp_path) is None
    store.record(a_run(tmp_path, model="gemini-2.5-flash"))
    assert SqliteSessions(store.path).get("writer", tmp_path) == a_run(
        tmp_path, model="gemini-2.5-flash"
    )


def test_agents_and_folders_are_kept_apart(store, tmp_path):
    store.record(a_run(tmp_path))
    assert store.get("editor", tmp_path) is None
    assert store.get("writer", tmp_path / "other") is None


def test_a_folder_is_the_same_however_it_is_spelled(store, tmp_path):
    """B-22: links and dots do not make another folder."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    store.record(a_run(tmp_path / "link"))
    assert store.get("writer", tmp_path / "x" / ".." / "real").cwd == str(real)
    assert store.forget("writer", tmp_path / "link")


def test_one_sessions_runs_add_up_and_a_new_session_begins_at_nothing(store, tmp_path):
    store.record(a_run(tmp_path, cost_usd=Decimal("0.0000000375")))
    store.record(a_run(tmp_path, cost_usd=Decimal("0.1"), last_run=2_000))
    both = store.get("writer", tmp_path)
    assert (both.tokens, both.cost_usd, both.last_run) == (20, Decimal("0.1000000375"), 2_000)
    store.record(a_run(tmp_path, "s-2", tokens=3))
    new = store.get("writer", tmp_path)
    assert (new.session_id, new.tokens, new.cost_usd) == ("s-2", 3, Decimal("0.01"))


def test_a_sum_with_an_unknown_part_is_unknown(store, tmp_path):
    """B-16: a total cost with an unknown part is None."""
    store.record(a_run(tmp_path))
    store.record(a_run(tmp_path, cost_usd=None))
    store.record(a_run(tmp_path))
    assert store.get("writer", tmp_path).cost_usd is None
    store.record(a_run(tmp_path, "s-2"))
    assert store.get("writer", tmp_path).cost_usd == Decimal("0.01")


def test_the_model_that_was_last_told_stays(store, tmp_path):
    store.record(a_run(tmp_path, model="gemini-2.5-pro"))
    store.record(a_run(tmp_path, model=None))
    assert store.get("writer", tmp_path).model == "gemini-2.5-pro"


def test_the_list_begins_with_the_latest(store, tmp_path):
    for number, agent in enumerate(("a", "b", "a")):
        store.record(a_run(tmp_path / str(number), agent=agent, last_run=number))
    assert [run.last_run for run in store.list()] == [2, 1, 0]
    assert [run.last_run for run in store.list("a")] == [2, 0]


def test_what_is_forgotten_is_gone(store, tmp_path):
    """S1-50: `forget` removes the session and returns whether there was one."""
    store.record(a_run(tmp_path))
    assert store.forget("writer", tmp_path)
    assert not store.forget("writer", tmp_path)
    assert store.list() == []


def test_a_session_that_has_been_replaced_is_not_forgotten_by_the_old_ones_id(store, tmp_path):
    """S1-50: another run may have put a good session there in the meantime."""
    store.record(a_run(tmp_path, "new"))
    assert not store.forget("writer", tmp_path, "old")
    assert store.forget("writer", tmp_path, "new")


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_only_the_user_may_read_it(store, tmp_path):
    before = os.umask(0)
    try:
        store.record(a_run(tmp_path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_readers_do_not_wait_for_a_writer(store, tmp_path):
    store.record(a_run(tmp_path))
    writer = sqlite3.connect(store.path, isolation_level=None)
    try:
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM sessions")
        assert store.get("writer", tmp_path) is not None
    finally:
        writer.close()


def test_many_threads_write_at_once(store, tmp_path):
    def work() -> None:
        for _ in range(10):
            store.record(a_run(tmp_path))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("writer", tmp_path).tokens == 800


def test_many_processes_create_it_and_write_at_once(store, tmp_path):
    code = f"""
from geminorum.store import SqliteSessions, StoredSession
store = SqliteSessions({str(store.path)!r})
for _ in range(10):
    run = StoredSession(agent="writer", cwd={str(tmp_path)!r}, session_id="s", last_run=1, tokens=1)
    store.record(run)
"""
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [child.wait(60) for child in children] == [0, 0, 0, 0]
    assert store.get("writer", tmp_path).tokens == 40


def test_it_lies_where_the_user_keeps_state(private_home, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert SqliteSessions().path == private_home / ".local/state/geminorum/sessions.db"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert SqliteSessions().path == tmp_path / "geminorum/sessions.db"


def test_a_file_of_a_newer_version_is_left_alone(store, tmp_path):
    store.record(a_run(tmp_path))
    with sqlite3.connect(store.path) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(SetupError, match="newer geminorum") as caught:
        store.record(a_run(tmp_path, "s-2"))
    assert "pip install --upgrade" in caught.value.hint


def test_a_file_that_is_no_database_is_named(store):
    store.path.parent.mkdir()
    store.path.write_text("not a database, " * 100)
    with pytest.raises(SetupError, match=r"sessions\.db.*not a database") as caught:
        store.list()
    assert "move the file away" in caught.value.hint


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot use the session store"):
        SqliteSessions(tmp_path / "file" / "sessions.db").list()


def test_a_file_that_was_deleted_is_made_again(store, tmp_path):
    store.record(a_run(tmp_path))
    store.path.unlink()
    assert store.list() == []


def test_it_is_a_session_store(store):
    as_protocol: AgentSessions = store
    assert {"get", "record", "list", "forget"} <= set(dir(as_protocol))
