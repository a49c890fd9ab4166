"""The store of saved sessions: found, listed, deleted and forked."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from geminorum import (
    Acp,
    Cli,
    Event,
    Options,
    Text,
    ToolResult,
    ToolUse,
    UserMessage,
    ask,
    errors,
    sessions,
    sync,
    usage,
)
from geminorum.errors import InvalidOptions, SessionBusy, SessionLost, SessionUnreadable
from geminorum.sessions import SessionInfo, places
from geminorum.sessions.lock import SessionLock
from geminorum.sessions.tailing import FileTail
from geminorum.testing import FakeGemini
from geminorum.views.messages import claude
from geminorum.wire.sessions.records import CONTEXT, text_of, words_of
from saved_sessions import Store

RECORDINGS = Path(__file__).parents[1] / "recordings" / "sessions"
A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
NEW = "99999999-0000-4000-8000-000000000000"


@pytest.fixture
def store(tmp_path):
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Store(tmp_path / "home", cwd)


# ---- listing


def test_sessions_are_listed_newest_first(store):
    """S3-31, B-4: what each is about, whose it is, how old and how large."""
    store.save(A, "What is a pipe?", "A tube.", day=1)
    path = store.save(B, "And a valve?", "A transport in it.", day=2)
    newest, oldest = store.list(store.cwd)
    assert (newest.id, oldest.id) == (B, A)
    assert (newest.title, newest.kind, newest.cwd) == ("And a valve?", "main", store.cwd)
    assert (newest.path, newest.size) == (path, path.stat().st_size)
    assert newest.started == newest.updated == 1767348000000
    assert newest.problem is None
    assert not newest.empty
    assert store.list() == [newest, oldest]


def test_a_folder_without_sessions_has_none(store, tmp_path):
    """B-6: nothing found is an empty list and None, not an error."""
    assert store.list(tmp_path) == []
    assert sessions.list(home=tmp_path / "nowhere") == []
    assert sessions.find(tmp_path, home=store.home) is None
    assert sessions.find(store.cwd, A, home=store.home) is None


def test_the_home_is_the_cli_s_own(store, monkeypatch, private_home):
    """B-4: GEMINI_CLI_HOME, else HOME."""
    store.save(A, "hello")
    assert sessions.list() == []
    monkeypatch.setenv("GEMINI_CLI_HOME", str(store.home))
    assert [info.id for info in sessions.list()] == [A]
    monkeypatch.delenv("GEMINI_CLI_HOME")
    (private_home / ".gemini").symlink_to(store.home / ".gemini")
    assert sessions.find().id == A


def test_old_and_new_places_are_searched(store, tmp_path):
    """S3-31, S3-32, B-3, B-4: registry, marker, hash; with `chats` and without."""
    digest = hashlib.sha256(str(store.cwd).encode()).hexdigest()
    store.save("in-hash", "hello", folder=store.tmp / digest / "chats")
    store.save("in-hash-bare", "hello", folder=store.tmp / digest)
    store.save("marked", "hello")
    registry = store.home / ".gemini" / "projects.json"
    registry.write_text(json.dumps({"projects": {str(store.cwd): "work-7", "/x": "../../../etc"}}))
    store.save("registered", "hello", folder=store.tmp / "work-7" / "chats")
    store.save("elsewhere", "hello", folder=store.tmp / "other" / "chats")
    everywhere = {"in-hash", "in-hash-bare", "marked", "registered"}
    assert set(store.ids(store.cwd)) == everywhere
    assert {info.id: info.cwd for info in store.list()} == {
        **dict.fromkeys(everywhere, store.cwd),
        "elsewhere": None,
    }
    link = tmp_path / "link"
    link.symlink_to(store.cwd)
    assert set(store.ids(link)) == everywhere


def test_a_session_in_two_files_is_listed_once(store):
    """A resumption leaves a stub, a newer CLI a copy of the folder, a migration the old format."""
    path = store.save(A, "hello", day=1)
    store.save(A, day=3)
    digest = hashlib.sha256(str(store.cwd).encode()).hexdigest()
    store.save(A, "hello", day=1, folder=store.tmp / digest / "chats")
    shutil.copy(path, path.with_suffix(".json"))
    (info,) = store.list()
    assert (info.path, info.title, info.empty) == (path, "hello", False)
    assert store.ids(store.cwd) == [A]


def test_a_session_in_which_nobody_spoke_is_marked_and_not_the_newest(store):
    store.save(A, "hello", day=1)
    store.save(B, day=2)
    shutil.copy(RECORDINGS / "0.61.0/after_api_error.jsonl", store.chats / "session-c.jsonl")
    assert [info.empty for info in store.list()] == [True, True, False]
    assert sessions.find(store.cwd, home=store.home).id == A


def test_subagents_belong_to_their_session(store):
    path = store.save(A, "hello")
    store.save(B, "look around", parent=A)
    (info,) = store.list()
    (agent,) = info.subagents
    assert (agent.id, agent.kind, agent.parent, agent.cwd) == (B, "subagent", A, store.cwd)
    assert [one.id for one in sessions.load(path).subagents] == [B]
    assert store.list(kind="subagent") == [agent]
    assert set(store.ids(kind="all")) == {A, B}
    assert sessions.find(None, B[:10], home=store.home) == agent


def test_the_recorded_subagent_is_found(store):
    shutil.copytree(RECORDINGS / "0.61.0/subagent", store.chats, dirs_exist_ok=True)
    (info,) = store.list()
    assert [agent.id[:8] for agent in info.subagents] == ["d467d082"]
    (agent,) = sessions.load(info).subagents
    assert agent.usage.total == 260


def test_sessions_are_chosen_by_date(store):
    for day, name in ((1, A), (2, B), (3, C)):
        store.save(name, "hello", day=day)
    second = datetime(2026, 1, 2, 10, tzinfo=UTC)
    assert store.ids(since=second) == [C, B]
    assert store.ids(until=second) == [B, A]
    assert store.ids(since=second, until=int(second.timestamp() * 1000)) == [B]
    assert store.ids(since=second + timedelta(days=9)) == []


def test_sessions_are_searched_for_what_was_said(store):
    """By a person or the model; not by the CLI, and not in the JSON around it."""
    store.save(A, "What is a Pipe?", "A tube, “more or less”.")
    store.save(B, "hello", "hi")
    assert store.ids(text="pipe") == [A]
    assert store.ids(text="“MORE") == [A]
    assert store.ids(text="session_context") == []
    assert store.ids(text="sessionId") == []


def test_a_title_is_the_summary_or_the_first_words(store):
    store.save(A, "one\n  two " + "x" * 100)
    (info,) = store.list()
    assert info.title == "one two " + "x" * 71 + "…"
    with info.path.open("a") as file:
        file.write('{"$set":{"summary":"Of pipes"}}\n')
    assert store.list()[0].title == sessions.load(info).title == "Of pipes"


# ---- large files: only their beginning and their end


def test_of_a_large_log_the_beginning_and_the_end_are_read(store):
    path = store.save(A, "hello", *("x" * 1000 for _ in range(60)))
    with path.open("ab") as file:
        hole = 1024**4
        os.truncate(path, hole)  # All zeros, and too long to be read through.
        file.seek(hole)
        file.write(b'\n{"$set":{"lastUpdated":"2026-01-09T10:00:00.000Z"}}\n')
    (info,) = store.list()
    assert (info.id, info.title, info.updated) == (A, "hello", 1767952800000)
    assert info.size > hole


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_large_document_is_listed(store, suffix, indent):
    messages = [{"id": "c", "type": "user", "content": f"{CONTEXT}…"}]
    messages += [
        {"id": f"m{number}", "type": "user", "content": [{"text": f"ü {number}" + "x" * 999}]}
        for number in range(99)
    ]
    top = {"sessionId": A, "projectHash": "p", "startTime": "2026-01-01T10:00:00.000Z"}
    path = store.chats / f"session-2026-01-01T10-00-aaaaaaaa{suffix}"
    for data in (top | {"messages": messages}, {"messages": messages} | top):
        path.write_text(json.dumps(data, indent=indent, ensure_ascii=False))
        (info,) = store.list()
        if suffix == ".jsonl" and indent:
            assert "no" in info.problem  # Neither of the two formats, at a glance.
        else:
            assert (info.id, info.title[:4], info.started) == (A, "ü 0x", 1767261600000)


def test_the_first_words_may_stand_far_below_the_cli_s_own(store):
    path = store.save(A, "hello")
    lines = path.read_text().replace("…", "x" * 200_000)
    path.write_text(lines)
    assert store.list()[0].title == "hello"
    path.write_text("".join(line + "\n" for line in lines.splitlines()[:2]))
    assert store.list()[0].empty


# ---- what is wrong is told, file by file


def test_what_is_no_session_does_not_spoil_the_list(store, tmp_path):
    store.save(A, "hello")
    outside = tmp_path / "outside.jsonl"
    shutil.copy(store.save(B, "secret"), outside)
    (store.chats / f"session-2026-01-01T10-00-{B[:8]}.jsonl").unlink()
    (store.chats / "session-0.jsonl").touch()
    (store.chats / "session-1.json").write_text("{bad json")
    (store.chats / "session-2.jsonl").mkdir()
    (store.chats / "session-3.jsonl").symlink_to(outside)
    (store.chats / "session-4.jsonl").symlink_to("nowhere")
    (store.chats / "session-5.jsonl").symlink_to("session-5.jsonl")
    os.mkfifo(store.chats / "session-6.jsonl")
    (store.chats / "session-7.jsonl").write_bytes(os.urandom(40_000))
    (store.chats / "notes.txt").touch()
    (store.tmp / "bin").touch()
    found = store.list()
    problems = {info.path.name: info.problem for info in found if info.problem}
    assert sorted(problems) == [f"session-{n}.json{'l' * (n != 1)}" for n in range(8)]
    assert "empty" in problems["session-0.jsonl"]
    assert "record" in problems["session-1.json"]
    assert "not a file" in problems["session-2.jsonl"]
    assert "link out of the store" in problems["session-3.jsonl"]
    assert "not a file" in problems["session-6.jsonl"]
    assert [info.id for info in found if not info.problem] == [A]
    assert store.ids(text="secret") == []
    assert sessions.find(home=store.home).id == A


@pytest.fixture
def nobody():
    """A way to become a user who is not root, whom nothing is forbidden; and a folder for them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        user = os.geteuid()
        yield lambda: os.seteuid(65534 if user == 0 else user), Path(name)
        os.seteuid(user)


def test_a_file_that_may_not_be_read_is_told(nobody):
    become, folder = nobody
    store = Store(folder / "home", folder)
    store.save(A, "hello").chmod(0)
    store.save(B, "hello")
    become()
    assert {info.id: info.problem and info.problem[-17:] for info in store.list()} == {
        B: None,
        "": "Permission denied",
    }


def test_a_date_in_the_future_is_told_and_does_not_lead_the_list(store):
    path = store.save(A, "hello", startTime="2999-01-01T00:00:00Z", lastUpdated="2999-01-01")
    os.utime(path, (1, 1))
    store.save(B, "hello")
    assert store.ids() == [B, A]
    assert "future: 2999" in store.list()[1].problem
    assert sessions.load(A, home=store.home).title == "hello"


def test_odd_dates_are_those_of_the_file(store):
    path = store.save(A, "hello", startTime="soon", lastUpdated=7)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (info,) = store.list()
    assert info.started == info.updated == 1_700_000_000_000


def test_a_log_without_a_header_is_listed_by_its_name(store):
    path = store.save(A, "hello")
    path.write_text(path.read_text().split("\n", 1)[1])
    (info,) = store.list()
    assert (info.id, info.title) == (path.stem, "hello")
    assert "which session" in info.problem
    assert sessions.load(info).id == info.id


# ---- finding and loading


def test_a_session_is_found_by_its_id_or_how_it_begins(store):
    """S3-33, B-6: `find` and `load` accept an id or its beginning; `find` gives None for an unknown
    one."""
    store.save(A, "hello", day=1)
    store.save(B, "hello", day=2)
    for wanted in (A, A[:12], A[:8], "a"):
        assert sessions.find(store.cwd, wanted, home=store.home).id == A
        assert sessions.load(wanted, store.cwd, home=store.home).id == A
    assert sessions.find(store.cwd, home=store.home).id == B
    assert sessions.find(None, "c", home=store.home) is None


def test_a_beginning_that_several_have_is_refused(store):
    other = f"{A[:-1]}1"
    store.save(A, "hello", day=1)
    store.save(other, "hello", day=2)
    with pytest.raises(InvalidOptions, match=f"{A}, {other}.*\n.*more of the id"):
        sessions.find(None, A[:12], home=store.home)
    store.save(A[:12], "hello", day=3)
    assert sessions.find(None, A[:12], home=store.home).id == A[:12]


@pytest.mark.parametrize("wanted", ["../../etc", "*", "a?", "[a]", "a/b", "", " ", "a\n", "ä", "."])
def test_an_id_that_is_a_path_or_a_pattern_is_refused(store, wanted):
    store.save(A, "hello")
    with pytest.raises(InvalidOptions, match="letters, digits"):
        sessions.find(None, wanted, home=store.home)


def test_a_file_with_another_name_is_found_by_what_it_says(store):
    store.save(A, "hello").rename(store.chats / "session-renamed.jsonl")
    assert sessions.find(None, A, home=store.home).id == A


def test_a_session_is_loaded_by_file_by_id_or_from_the_list(store):
    """S3-33: `load` accepts a path, an entry of the list, an id or its beginning."""
    path = store.save(A, "hello")
    (info,) = store.list()
    for session in (path, str(path), info, A, A[:9]):
        loaded = sessions.load(session, home=store.home)
        assert (loaded.id, loaded.cwd, loaded.path) == (A, store.cwd, path)


def test_a_session_that_is_not_there_is_an_error_when_loaded(store):
    """S3-34, B-6: in the words of the document."""
    with pytest.raises(SessionLost) as caught:
        sessions.load(A, store.cwd, home=store.home)
    assert caught.value.message == f"No Gemini session found for project: {store.cwd}"
    with pytest.raises(SessionLost, match=r"sessions\.list"):
        sessions.load(A, home=store.home)
    with pytest.raises(SessionUnreadable):
        sessions.load("../../etc", home=store.home)


# ---- deleting


def test_deleting_removes_all_files_of_a_session_and_no_other(store):
    path = store.save(A, "hello")
    stub = store.save(A, day=3)
    agent = store.save(C, "look", parent=A)
    kept = [store.save(B, "hello"), store.save(f"{A[:8]}-other", "hello", day=5)]
    kept += [store.save(C, "look", parent=B)]
    output = store.project / "tool-outputs" / f"session-{A}" / "shell.txt"
    output.parent.mkdir(parents=True)
    output.touch()
    removed = sessions.delete(A, home=store.home)
    assert set(removed) == {path, stub, agent.parent, output.parent}
    assert removed[-1] == path
    assert not any(gone.exists() for gone in (path, stub, agent, output))
    assert all(file.exists() for file in kept)
    with pytest.raises(SessionLost):
        sessions.delete(A, home=store.home)


def test_a_broken_file_or_a_subagent_s_is_deleted_alone(store):
    path, agent = store.save(A, "hello"), store.save(C, "look", parent=A)
    broken = store.chats / "session-broken.jsonl"
    broken.touch()
    assert sessions.delete(broken, home=store.home) == [broken]
    assert sessions.delete(sessions.load(agent), home=store.home) == [agent]
    assert [file.name for file in store.chats.iterdir() if file.is_file()] == [path.name]


def test_nothing_outside_the_store_is_deleted(store, tmp_path):
    outside = tmp_path / "session-outside.jsonl"
    shutil.copy(store.save(A, "hello"), outside)
    with pytest.raises(InvalidOptions, match="not in the store"):
        sessions.delete(outside, home=store.home)
    traversing = store.chats / ".." / ".." / ".." / ".." / ".." / outside.name
    with pytest.raises(InvalidOptions, match="not in the store"):
        sessions.delete(traversing, home=store.home)
    link = store.chats / "session-link.jsonl"
    link.symlink_to(outside)
    with pytest.raises(InvalidOptions, match="not in the store"):
        sessions.delete(link, home=store.home)
    assert outside.exists()


def test_a_folder_that_leads_out_of_the_store_is_not_followed(store, tmp_path):
    """Nothing at all is removed then: not even the session itself."""
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "x.jsonl").touch()
    path = store.save(A, "hello")
    (store.chats / A).symlink_to(outside)
    with pytest.raises(InvalidOptions, match="not in the store"):
        sessions.delete(A, home=store.home)
    assert path.exists()
    (store.chats / A).unlink()
    (store.chats / A).mkdir()
    (store.chats / A / "deeper").symlink_to(outside)
    sessions.delete(A, home=store.home)
    assert (outside / "x.jsonl").exists()
    assert not path.exists()


@pytest.mark.parametrize("evil", ["..", "../..", "", ".", "/", "chats", "*"])
def test_an_id_in_a_file_leads_nowhere_else(store, evil):
    """The id is only what the file says."""
    other = store.save(B, "hello")
    bare = store.save("bare", "hello", folder=store.project)
    agent = store.save(C, "look", parent=B)
    for path in (store.chats / "session-evil.jsonl", store.project / "session-evil.jsonl"):
        path.write_text(other.read_text().replace(B, evil))
        assert sessions.delete(path, home=store.home) == [path]
    assert all(file.exists() for file in (other, bare, agent))


def test_a_session_at_work_is_not_deleted(store):
    path, agent = store.save(A, "hello"), store.save(C, "look", parent=A)
    with SessionLock(store.home, A):
        for session in (A, path, C):
            with pytest.raises(SessionBusy):
                sessions.delete(session, home=store.home)
    assert path.exists()
    assert agent.exists()


# ---- forking


def test_a_fork_is_the_same_session_under_another_name(store):
    path = store.save(A, "hello", "hi", extra={"kept": True})
    store.save(C, "look", parent=A)
    before = path.read_bytes()
    info = sessions.fork(A, new_id=NEW, home=store.home)
    assert path.read_bytes() == before
    assert info.path.name == "session-2026-01-01T10-00-99999999.jsonl"
    assert (info.id, info.cwd, info.title, info.problem) == (NEW, store.cwd, "hello", None)
    original, copy = sessions.load(A, home=store.home), sessions.load(info)
    assert [m.raw for m in copy.messages] == [m.raw for m in original.messages]
    assert copy.started == original.started
    assert abs(copy.updated - time.time() * 1000) < 60_000
    assert json.loads(info.path.read_bytes().splitlines()[0])["extra"] == {"kept": True}
    assert [agent.id for agent in info.subagents] == [C]
    assert set(store.ids()) == {A, NEW}
    top, rest = info.path.read_text().split("\n", 1)
    assert (json.loads(top)["forkedFrom"], A in rest) == (A, False)
    assert [p.name for p in store.chats.iterdir() if p.name.startswith(".")] == []
    sessions.delete(A, home=store.home)
    assert [agent.id for agent in sessions.find(None, NEW, home=store.home).subagents] == [C]


def test_a_fork_keeps_its_duration_and_says_what_it_was_forked_from(store):
    """Also a fork of a fork; from its first turn on, its own time counts."""
    path = store.save(A, "hello", "hi", lastUpdated="2026-01-01T10:00:07.000Z")
    info = sessions.fork(A, new_id=NEW, home=store.home)
    again = sessions.fork(NEW, home=store.home)
    for one in (A, NEW, again.id):
        *_, done = sessions.load(one, home=store.home).events()
        assert (done.duration, done.timestamp) == (7.0, 1767261607000)
    told = {one.id: one.forked_from for one in store.list()}
    assert told == {A: None, NEW: A, again.id: NEW}
    with info.path.open("a") as file:
        file.write('{"$set": {"lastUpdated": "2026-01-01T11:00:00.000Z"}}\n')
    *_, done = sessions.load(NEW, home=store.home).events()
    assert done.duration == 3600.0
    assert b"forked" not in path.read_bytes()


def test_a_fork_of_a_document_is_a_document(store):
    """Older CLIs save a session as one document, and do not find one that is saved as lines."""
    path = store.save(A, "hello", "hi")
    top, *lines = map(json.loads, path.read_text().splitlines())
    messages = [line for line in lines if "type" in line]
    path.with_suffix(".json").write_text(json.dumps({**top, "messages": messages}, indent=2))
    path.unlink()
    info = sessions.fork(A, new_id=NEW, home=store.home)
    assert info.path.name.endswith("-99999999.json")
    saved = json.loads(info.path.read_text())
    assert (saved["sessionId"], saved["forkedFrom"]) == (NEW, A)
    assert saved["messages"] == messages
    assert [message.type for message in sessions.load(info).messages] == ["user", "gemini"]


def test_a_fork_gets_an_id_of_its_own(store):
    store.save(A, "hello")
    first, second = sessions.fork(A, home=store.home), sessions.fork(A, home=store.home)
    assert len({A, first.id, second.id}) == 3


@pytest.mark.parametrize("name", [A, "../../etc", "*", "a b"])
def test_a_fork_under_a_bad_or_taken_id_is_refused(store, name):
    store.save(A, "hello")
    with pytest.raises(InvalidOptions):
        sessions.fork(A, new_id=name, home=store.home)
    assert store.ids() == [A]


def test_what_is_empty_or_broken_is_not_forked(store):
    store.save(A)
    (store.chats / "session-broken.jsonl").touch()
    for session in store.list():
        with pytest.raises(SessionUnreadable, match="cannot fork"):
            sessions.fork(session, home=store.home)
    assert len(list(store.chats.iterdir())) == 2


def test_a_fork_is_never_named_for_the_present_minute(store):
    """Resumed in the minute of its name, a session would be damaged by the CLI."""
    now = datetime.now(UTC).isoformat()
    store.save(A, "hello", startTime=now)
    stamp = sessions.fork(A, home=store.home).path.name.removeprefix("session-")[:16]
    named = datetime.strptime(f"{stamp}+0000", "%Y-%m-%dT%H-%M%z")
    assert named < datetime.now(UTC).replace(second=0, microsecond=0)


# ---- with the real CLI


@pytest.fixture
def options(fake_gemini, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model="gemini-2.5-flash")


def history(fake_gemini) -> str:
    return json.dumps(fake_gemini.requests[-1].contents)


async def test_real_sessions_are_listed_found_forked_and_deleted(
    fake_gemini, options, real_transport
):
    """S3-31, S3-33, B-4: two sessions, one of them resumed in another minute."""
    home = fake_gemini.home
    fake_gemini.call("list_directory", dir_path=".").say("Noted.").say("Red.").say("It was seven.")
    first = await ask("Remember seven", options, via=real_transport)
    second = await ask("A colour?", options, via=real_transport)
    path = sessions.find(options.cwd, first.session_id, home=home).path
    path.rename(path.with_name(f"session-2026-01-01T10-00-{path.stem[-8:]}.jsonl"))
    resume = options.changed(resume=first.session_id)
    await ask("What was it?", resume, via=real_transport)

    # The empty file that a resumption begins is taken away again.
    assert len(list(path.parent.glob("session-*"))) == 2
    listed = sessions.list(options.cwd, home=home)
    assert [info.id for info in listed] == [first.session_id, second.session_id]
    assert [info.title for info in listed] == ["Remember seven", "A colour?"]
    assert {info.cwd for info in listed} == {Path(options.cwd)}
    assert sessions.list(home=home) == listed
    assert sessions.find(options.cwd, home=home).id == first.session_id
    assert [i.id for i in sessions.list(home=home, text="it was seven")] == [first.session_id]
    loaded = sessions.load(listed[0])
    spoken = [text for message in loaded.messages if (text := words_of(message))]
    assert spoken == ["Remember seven", "Noted.", "What was it?", "It was seven."]
    await a_fork_goes_on(fake_gemini, options, real_transport, listed[0])

    removed = sessions.delete(listed[0], home=home)
    assert len([gone for gone in removed if gone.suffix == ".jsonl"]) >= 1
    assert first.session_id not in [info.id for info in sessions.list(home=home)]
    assert [*home.rglob(f"*{first.session_id[:8]}*")] == []
    with pytest.raises(SessionLost):
        sessions.load(first.session_id, home=home)


async def a_fork_goes_on(
    fake_gemini: FakeGemini, options: Options, via: Cli, original: SessionInfo
) -> None:
    """The original's bytes stay as they are; the fork goes on with tools and all."""
    home, before = fake_gemini.home, original.path.read_bytes()
    info = sessions.fork(original, home=home)
    fake_gemini.say("From the fork.")
    result = await ask("And now?", options.changed(resume=info.id), via=via)
    assert (result.text, result.session_id) == ("From the fork.", info.id)
    assert "Remember seven" in history(fake_gemini)
    assert "functionResponse" in history(fake_gemini)
    assert original.path.read_bytes() == before
    forked = sessions.load(info.id, home=home)
    assert text_of(forked.messages[-1].content) == "From the fork."
    assert [c.name for m in forked.messages for c in m.tool_calls or ()] == ["list_directory"]
    assert len(sessions.list(options.cwd, home=home)) == 3


OLD_OR_DAMAGED = {
    "0.11.3/session-2026-11-15T19-18-51286bac.json": "echo hi",
    "0.61.0/same_minute_resume_then_wiped.jsonl": "fourth",
}
"""And what somebody said in it."""


async def test_the_real_cli_resumes_forks_of_old_or_damaged_sessions(
    fake_gemini, options, real_transport
):
    """B-5: of older formats, and of a session that a resumption within the minute wiped; on a warm
    CLI, and on one of its own a fork of a session that it has just written."""
    home = fake_gemini.home
    chats = home / ".gemini/tmp/workspace/chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text(str(options.cwd))
    async with Acp(executable=real_transport.executable).warm(options) as warm:
        for name, said in OLD_OR_DAMAGED.items():
            source = chats / f"session-2026-01-01T10-00-recorded{Path(name).suffix}"
            shutil.copy(RECORDINGS / name, source)
            info = sessions.fork(source, home=home)
            fake_gemini.say("From another fork.")
            result = await ask("Go on", options.changed(resume=info.id), via=warm)
            assert result.text == "From another fork."
            assert said in history(fake_gemini)
            assert source.read_bytes() == (RECORDINGS / name).read_bytes()
            assert sessions.load(info.id, home=home).usage.tool_calls == 4


class TestHostileStores:
    """What lies in a store may come from anywhere, and must harm nobody."""

    @pytest.fixture
    def chats(self, tmp_path) -> Path:
        project = tmp_path / ".gemini" / "tmp" / "work"
        (project / "chats").mkdir(parents=True)
        (project / ".project_root").write_text(str(tmp_path))
        return project / "chats"

    def saved(self, file: Path, session_id: str) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        top = {"sessionId": session_id, "projectHash": "x", "kind": "main"}
        said = {"id": "1", "type": "user", "content": "Hi", "timestamp": "2026-01-01T00:00:00Z"}
        file.write_text(json.dumps(top) + "\n" + json.dumps(said) + "\n")
        return file

    @pytest.mark.parametrize("name", ["{victim}/yarn", "../../../../victim/yarn", "a\0b"])
    def test_an_id_that_is_a_path_deletes_nothing_else(self, tmp_path, chats, name):
        victim = tmp_path / "victim"
        victim.mkdir()
        (victim / "yarn.lock").write_text("mine")
        file = self.saved(chats / "session-1-aaaaaaaa.jsonl", name.format(victim=victim))
        assert sessions.delete(file, home=tmp_path) == [file]
        assert (victim / "yarn.lock").read_text() == "mine"

    def test_only_a_session_s_file_is_deleted(self, tmp_path, chats):
        self.saved(chats / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        for path in (chats.parent, chats, chats.parent / ".project_root", chats / "nothing.jsonl"):
            with pytest.raises(errors.GeminorumError):
                sessions.delete(path, home=tmp_path)
        assert (chats / "session-1-aaaaaaaa.jsonl").exists()
        assert (chats.parent / ".project_root").exists()

    def test_a_deleted_fork_takes_nothing_from_the_original(self, tmp_path, chats):
        self.saved(chats / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        sub = self.saved(chats / "aaaaaaaa-1" / "sub-1.jsonl", "sub-1")
        sub.write_text(sub.read_text().replace('"main"', '"subagent"'))
        kept = chats.parent / "tool-outputs" / "session-sub-1" / "out.txt"
        kept.parent.mkdir(parents=True)
        kept.write_text("mine")
        copy = sessions.fork("aaaaaaaa-1", home=tmp_path)
        sessions.delete(copy, home=tmp_path)
        assert kept.read_text() == "mine"
        assert sub.exists()
        assert kept in [path / "out.txt" for path in sessions.delete("aaaaaaaa-1", home=tmp_path)]

    def test_a_pipe_keeps_nobody_waiting(self, tmp_path, chats):
        self.saved(chats / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        os.mkfifo(chats / "session-2-bbbbbbbb.jsonl")
        assert places.latest(tmp_path, tmp_path) == "aaaaaaaa-1"
        assert usage.report(home=tmp_path).problems
        assert not list(FileTail(chats / "session-2-bbbbbbbb.jsonl").messages())

    @pytest.mark.parametrize("text", ["a\0b", "/loop/loop"])
    def test_a_project_that_cannot_be_named_is_listed_all_the_same(self, tmp_path, chats, text):
        self.saved(chats / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        (chats.parent / ".project_root").write_text(text)
        (tmp_path / ".gemini" / "projects.json").write_text("[" * 100_000)
        assert [info.id for info in sessions.list(home=tmp_path)] == ["aaaaaaaa-1"]

    def test_the_end_of_time_spoils_no_report(self, tmp_path, chats):
        file = self.saved(chats / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        tokens = {"input": 5, "total": 5}
        late = {"id": "2", "type": "gemini", "model": "gemini-2.5-flash", "tokens": tokens}
        with file.open("a") as log:
            log.write(json.dumps({**late, "timestamp": "9999-12-31T23:59:59-14:00"}) + "\n")
        assert usage.report(home=tmp_path, tz="Pacific/Kiritimati").total.tokens.input == 5
        assert sessions.export(sessions.load(file), "html")

    def test_a_document_that_was_rewritten_says_so(self, tmp_path):
        file = tmp_path / "session-1.json"
        messages = [{"id": str(n), "type": "user", "content": "Hi"} for n in range(3)]
        document = {"sessionId": "s", "projectHash": "x", "messages": messages}
        file.write_text(json.dumps(document, indent=2))
        loaded = sessions.load(file)
        file.write_text(json.dumps({**document, "messages": messages * 2}, indent=2))
        with pytest.raises(errors.SessionUnreadable, match="changed since"):
            list(loaded.messages)

    def test_a_large_log_whose_end_tells_no_time_has_the_file_s(self, tmp_path, chats):
        """A run that was killed leaves its last answer at the end."""
        file = self.saved(chats / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        top = {"sessionId": "aaaaaaaa-1", "projectHash": "x", "lastUpdated": "2020-01-01T00:00:00Z"}
        long = {"id": "2", "type": "gemini", "content": "x" * 50_000}
        file.write_text("\n".join(map(json.dumps, [top, {"id": "1", "type": "user"}, long])) + "\n")
        (info,) = sessions.list(home=tmp_path)
        assert info.updated == int(file.stat().st_mtime * 1000)

    @pytest.mark.parametrize("linked", ["work", "work/chats"])
    def test_a_folder_that_is_a_link_out_of_the_store_is_told(self, tmp_path, linked):
        elsewhere = tmp_path / "elsewhere"
        inside = elsewhere / "chats" if linked == "work" else elsewhere
        self.saved(inside / "session-1-aaaaaaaa.jsonl", "aaaaaaaa-1")
        link = tmp_path / ".gemini" / "tmp" / linked
        link.parent.mkdir(parents=True)
        link.symlink_to(elsewhere)
        (info,) = sessions.list(home=tmp_path)
        assert (info.id, "link out of the store" in info.problem) == ("", True)


@pytest.mark.gemini_cli
def test_a_saved_warm_session_has_each_call_in_its_own_turn(
    real_transport, fake_gemini, tmp_path: Path
) -> None:
    """The CLI saves the calls of all turns in the first message with any, and no refused call."""
    look = ("list_directory", {"dir_path": "."})
    fake_gemini.calls(look, ("glob", {"pattern": "*.txt"})).say("One.").calls(
        ("glob", {"pattern": "*.md"}), look
    ).say("Two.").call("write_file", file_path="a.txt", content="a").say("Three.")
    options = Options(cwd=tmp_path, env=fake_gemini.env)
    live: list[Event] = []
    with sync.connect(options, via=Acp(executable=real_transport.executable)) as chat:
        for prompt in ("First", "Second", "Third"):
            with chat.turn(prompt) as turn:
                live += turn
    saved = sessions.load(str(turn.session_id), home=fake_gemini.home)
    kinds = (UserMessage, ToolUse, ToolResult, Text)
    assert [story(event) for event in saved.events() if isinstance(event, kinds)] == [
        ("user_message", "First"),
        *[("tool_use", "list_directory"), ("tool_use", "glob")],
        *[("success", "list_directory"), ("success", "glob")],
        *[("text", "One."), ("user_message", "Second")],
        *[("tool_use", "glob"), ("tool_use", "list_directory")],
        *[("success", "glob"), ("success", "list_directory")],
        *[("text", "Two."), ("user_message", "Third"), ("tool_use", "write_file")],
        *[("denied", "write_file"), ("text", "Three.")],
    ]
    (refused,) = (e for e in live if isinstance(e, ToolResult) and e.name == "write_file")
    assert refused.status == "denied"
    told = [one["content"] for one in claude(saved) if one["role"] == "assistant"]
    assert sum("'tool_use'" in str(content) for content in told) == 3
    assert saved.usage.total == sum(request.total for request in saved.requests)


def story(event: Any) -> tuple[str, str]:
    """What an event is about, and whether it went well."""
    return getattr(event, "status", event.type), getattr(event, "name", None) or event.text
