"""A session goes from machine to machine through a store; nothing is overwritten silently."""

import json
from concurrent.futures import Future

import pytest
from two_homes import SESSION, machine, turn

from geminorum import Done, Error, Text, TextDelta, ToolResult, sessions
from geminorum.errors import InvalidOptions, SessionBusy, SessionLost, StoreError, Unsupported
from geminorum.sessions.lock import SessionLock
from geminorum.sessions.store import SqliteStore, listed
from geminorum.sessions.store import find as find_stored
from geminorum.sessions.store.local_files import gather_files
from geminorum.sessions.store.log import SessionLog
from geminorum.transports.stored.checkpoints import Checkpoints
from geminorum.wire.stored.entries import About


@pytest.fixture
def store(tmp_path):
    return SqliteStore(tmp_path / "sessions.db")


@pytest.fixture
def here(tmp_path):
    return machine(tmp_path, "here")


@pytest.fixture
def there(tmp_path):
    return machine(tmp_path, "there")


def test_a_session_goes_there_and_back(store, here, there):
    assert turn(here, store, "one") == []
    assert turn(there, store, "two") == []
    assert there.heard == ["one", "two"]
    assert turn(here, store, "three") == []
    assert here.heard == ["one", "two", "three"]
    assert there.heard == ["one", "two"]


def test_it_goes_to_another_folder_of_the_same_home(store, here, there):
    moved = here._replace(cwd=there.cwd)
    turn(here, store, "one")
    turn(moved, store, "two")
    assert (here.heard, moved.heard) == (["one"], ["one", "two"])


def test_a_file_that_was_rewritten_there_replaces_the_older_one_here(store, here, there):
    turn(here, store, "one", "two")
    turn(there, store)
    text = there.path.read_text().replace('"two"', '"2"')
    there.path.write_text(text)
    turn(there, store, "three")
    assert turn(here, store, "four") == []
    assert here.heard == ["one", "2", "three", "four"]


def test_subagents_and_tool_outputs_travel_too(store, here, there):
    here.say("one")
    chats = here.path.parent
    (chats / SESSION).mkdir()
    (chats / SESSION / "agent.jsonl").write_text("{}\n")
    outputs = chats.parent / "tool-outputs" / f"session-{SESSION}"
    outputs.mkdir(parents=True)
    (outputs / "shell_1.txt").write_text("out")
    turn(here, store)
    turn(there, store)
    names = ["main.jsonl", "output/shell_1.txt", "subagent/agent.jsonl"]
    assert sorted(gather_files(*there, SESSION)) == names
    (outputs / "shell_1.txt").unlink()
    turn(here, store)
    assert sorted(gather_files(*here, SESSION)) == [names[0], names[2]]


def test_a_link_among_its_files_is_not_followed(store, here, tmp_path):
    here.say("one")
    (tmp_path / "secret.jsonl").write_text("secret")
    folder = here.path.parent / SESSION
    folder.mkdir()
    (folder / "agent.jsonl").symlink_to(tmp_path / "secret.jsonl")
    turn(here, store)
    assert not any(b"secret" in entry for entry in store.load(SESSION))


def test_what_could_not_be_saved_is_saved_with_the_next_turn(store, here, there):
    turn(here, store, "one")
    here.say("two")  # And then it crashed.
    assert turn(here, store, "three") == []
    turn(there, store)
    assert there.heard == ["one", "two", "three"]


def test_a_rewritten_file_that_could_not_be_saved_is_saved_with_the_next_turn(store, here, there):
    turn(here, store, "one")
    here.path.write_text(here.path.read_text().replace('"one"', '"1"'))
    here.say("two")
    assert turn(here, store, "three") == []
    turn(there, store)
    assert there.heard == ["1", "two", "three"]


def test_turns_on_both_sides_are_both_kept(store, here, there):
    turn(here, store, "one")
    here.say("only here")  # Its save failed.
    turn(there, store, "two")
    (told,) = turn(here, store, "three")
    assert "continued elsewhere" in told
    assert here.heard == ["one", "two", "three"]
    (copy,) = [one for one in sessions.list(here.cwd, home=here.home) if one.id != SESSION]
    assert copy.forked_from == SESSION
    assert [message.id for message in sessions.load(copy).messages] == ["one", "only here"]


def test_a_turn_that_was_never_saved_is_named(store, here, there):
    turn(here, store, "one")
    sync = here.sync(store)
    sync.restore(SESSION)
    sync.begin_turn()
    sync.close()  # As if its lease had ended: it was killed.
    (told,) = turn(there, store, "two")
    assert "was never saved" in told
    assert turn(there, store, "three") == []


def test_two_cannot_have_it_at_once(store, here, there):
    turn(here, store, "one")
    first = here.sync(store)
    first.restore(SESSION)
    with pytest.raises(SessionBusy, match="open elsewhere, by"):
        there.sync(store).restore(SESSION)
    first.close()
    there.sync(store).restore(SESSION)


def test_who_lost_the_lease_cannot_save(store, here, there):
    turn(here, store, "one")
    first = here.sync(store)
    first.restore(SESSION)
    first.begin_turn()
    first.close()  # Its lease has ended without its knowledge.
    here.say("late")
    second = there.sync(store)
    second.restore(SESSION)
    second.begin_turn()
    (told,) = first.save(SESSION)
    assert "continued elsewhere" in told.message
    there.say("two")
    assert second.save(SESSION) == []
    with pytest.raises(SessionBusy, match="continued elsewhere"):
        first.begin_turn()
    second.close()
    assert "continued elsewhere" in turn(here, store)[0]
    assert here.heard == ["one", "two"]


def test_who_lost_it_before_a_turn_does_not_begin_it(store, here, there):
    turn(here, store, "one")
    first = here.sync(store)
    first.restore(SESSION)
    first.close()
    turn(there, store, "two")
    with pytest.raises(SessionBusy, match="continued elsewhere"):
        first.begin_turn()


def test_who_sees_another_holder_forbids_the_save(store, here):
    turn(here, store, "one")
    sync = here.sync(store)
    sync.restore(SESSION)
    sync.renew()
    sync.close()
    store.acquire(SESSION, "another", 60)
    sync.renew()
    here.say("late")
    assert "continued elsewhere" in sync.save(SESSION)[0].message


def test_a_session_that_runs_here_is_not_replaced(store, here, there):
    turn(here, store, "one")
    turn(there, store, "two")
    with SessionLock(here.home, SESSION), pytest.raises(SessionBusy):
        here.sync(store).restore(SESSION)
    assert here.heard == ["one"]


def test_an_older_cli_is_refused(store, here, there):
    turn(here, store, "one")
    with pytest.raises(Unsupported, match="written by CLI") as caught:
        (old := there.sync(store, "0.60.5")).restore(SESSION)
    old.close()
    assert "npm install -g @google/gemini-cli@0.61.0" in str(caught.value)
    there.sync(store, "0.61.0").restore(SESSION)


def test_the_latest_is_the_newest_of_store_and_folder(store, here, there):
    turn(here, store, "one")
    sync = there.sync(store)
    assert sync.restore("latest")[0] == SESSION
    sync.close()
    there.say("local", session="fedcba98-0000-4000-8000-000000000000")
    assert there.sync(store).restore("latest")[0].startswith("fedcba98")


def test_the_latest_of_nothing_is_left_to_the_run(store, here):
    assert here.sync(store).restore("latest") == ("latest", [])


def test_the_start_of_an_id_will_do_if_it_fits_one(store, here):
    turn(here, store, "one")
    sync = here.sync(store)
    assert sync.restore(SESSION[:4])[0] == SESSION
    sync.close()
    turn(here, store, "other", session=f"{SESSION[:4]}-other")
    with pytest.raises(InvalidOptions, match="may be any of"):
        here.sync(store).restore(SESSION[:4])


@pytest.mark.parametrize("wanted", ["user-1", "user-10"])
def test_an_id_with_which_others_begin_is_itself(store, here, there, wanted):
    """Whichever of them is in the store, and which in the folder."""
    turn(there, store, "in the store", session="user-1")
    here.say("only here", session="user-10")
    assert here.sync(store).restore(wanted)[0] == wanted


def test_an_id_that_fits_one_in_the_store_and_another_here_is_refused(store, here, there):
    turn(there, store, "in the store", session="user-1")
    here.say("only here", session="user-2")
    with pytest.raises(InvalidOptions, match="may be any of user-1, user-2"):
        here.sync(store).restore("user")


def test_a_session_that_only_this_machine_has_is_saved_whole(store, here, there):
    here.say("one", "two")
    turn(here, store, "three")
    turn(there, store)
    assert there.heard == ["one", "two", "three"]


def test_a_listing_reads_the_last_entries(store, here):
    turn(here, store, "Remember seven")
    (info,) = listed(store)
    assert (info.id, info.title, info.cwd) == (SESSION, "Remember seven", str(here.cwd))
    assert (info.cli_version, info.size) == ("0.61.0", here.path.stat().st_size)
    assert 0 < info.started <= info.updated


def test_a_document_of_an_older_cli_travels(store, here, there):
    path = here.new_file(suffix=".json")
    data = json.loads(path.read_text())
    said = {"id": "one", "type": "user", "content": "one"}
    path.write_text(json.dumps(data | {"messages": [said]}, indent=2))
    turn(here, store)
    turn(there, store)
    assert there.path.read_bytes() == path.read_bytes()
    assert there.path.name == path.name


def test_nothing_whole_in_the_store_is_a_lost_session(store, here):
    store.append(SESSION, 1, b"torn")
    with pytest.raises(SessionLost, match="no whole turn"):
        here.sync(store).restore(SESSION)


def test_torn_data_costs_the_last_turn_only(store, here, there):
    turn(here, store, "one")
    turn(here, store, "two")
    torn = SqliteStore(here.home / "torn.db")
    kept = [*store.load(SESSION)]
    for number, entry in enumerate([*kept[:-1], kept[-1][:-3]], 1):
        torn.append(SESSION, number, entry)
    told = turn(there, torn, "three")
    assert "damaged" in told[0]
    assert there.heard == ["one", "three"]


class Broken:
    """A store of which every call fails."""

    def __getattr__(self, name):
        def fail(*_):
            raise RuntimeError("no route to host")

        return fail


def test_a_broken_store_lets_the_session_here_go_on(here, store):
    turn(here, store, "one")
    broken = turn(here, Broken(), "two")
    assert ["no route to host" in text for text in broken] == [True, True]
    assert turn(here, store, "three") == []
    assert here.heard == ["one", "two", "three"]


@pytest.mark.parametrize("wanted", [SESSION[:6], "latest"])
def test_a_broken_store_lets_a_session_here_go_on_whatever_it_is_called(here, wanted):
    here.say("one")
    session, told = here.sync(Broken()).restore(wanted)
    assert (session, len(told)) == (SESSION, 1)


class Panics(SqliteStore):
    """As a library in Rust does: what it raises is no Exception."""

    def append(self, session, number, data):
        raise PanicException("index out of bounds")


class PanicException(BaseException):
    pass


def test_a_store_that_panics_is_a_failing_one(here, tmp_path):
    here.say("one")
    told = turn(here, Panics(tmp_path / "sessions.db"), "two")
    assert ["index out of bounds" in text for text in told] == [True, True]
    assert here.heard == ["one", "two"]


# ---- a session that begins under an id of the caller's


def test_a_session_that_is_begun_is_held_from_its_beginning(store, here, there):
    first = here.sync(store)
    assert first.claim(SESSION) == []
    with pytest.raises(SessionBusy, match="open elsewhere"):
        there.sync(store).claim(SESSION)
    assert first.begin_turn() == []
    assert store.list() == []  # Who finds an entry takes it for a session.
    here.say("one")
    assert first.save(SESSION) == []
    first.close()
    turn(there, store, "two")
    assert there.heard == ["one", "two"]


def test_an_id_that_the_store_has_cannot_be_begun_again(store, here, there):
    turn(here, store, "one")
    second = there.sync(store)
    with pytest.raises(InvalidOptions, match=r"has a session .* already"):
        second.claim(SESSION)
    second.close()
    turn(here, store, "two")


def test_a_session_whose_first_turn_was_never_saved_can_be_begun_again(store, here, there):
    ghost = SessionLog(store, SESSION, "somebody")
    ghost.read()
    ghost.begin_turn(About())
    sync = here.sync(store)
    assert sync.claim(SESSION) == []
    here.say("one")
    assert sync.save(SESSION) == []


def test_a_broken_store_lets_a_session_begin(here):
    (told,) = here.sync(Broken()).claim(SESSION)
    assert "no route to host" in told.message


def test_a_broken_store_and_no_session_here_is_an_error(here):
    with pytest.raises(StoreError, match="no route to host"):
        here.sync(Broken()).restore(SESSION)


def test_a_turn_that_was_saved_while_it_went_on_is_there_and_its_end_is_missed(store, here, there):
    turn(here, store, "one")
    killed = here.sync(store)
    killed.restore(SESSION)
    killed.begin_turn()
    here.say("two")
    assert killed.save_checkpoint(SESSION) == []
    here.say("never saved")
    killed.close()
    _, told = there.sync(store).restore(SESSION)
    assert there.heard == ["one", "two"]
    assert ["was never saved" in notice.message for notice in told] == [True]


def test_a_checkpoint_follows_a_finished_step_and_no_other_too_soon():
    saved: list[str] = []

    def save(session: str) -> Future[list[Error]]:
        saved.append(session)
        done: Future[list[Error]] = Future()
        done.set_result([])
        return done

    often = Checkpoints(0.0, save)
    often.see([TextDelta(text="a")], SESSION)
    often.see([Text(text="a")], None)
    assert saved == []  # Nothing is finished, and then nobody knows in which session.
    often.see([], SESSION)
    often.see([ToolResult(id="1", name="read_file", status="success")], SESSION)
    assert saved == [SESSION] * 2
    often.see([Text(text="b"), Done(status="success")], SESSION)
    assert len(saved) == 2  # The turn is saved as a whole.
    seldom, never = Checkpoints(3600.0, save), Checkpoints(None, save)
    for _ in range(3):
        seldom.see([Text(text="c")], SESSION)
        never.see([Text(text="c")], SESSION)
    assert len(saved) == 3


@pytest.mark.parametrize("wanted", ["latest", "abcd"])
def test_a_resume_of_nothing_leaves_nothing_in_the_store(store, here, wanted):
    """It would be the latest session from then on, and have no turn."""
    lost = here.sync(store)
    lost.restore(wanted)
    lost.begin_turn()
    lost.close()
    assert store.list() == []


def test_the_latest_session_is_one_that_has_a_turn(store, here, there, tmp_path):
    turn(here, store, "one")
    ghost = SessionLog(store, "abcd", "somebody")
    ghost.read()
    ghost.begin_turn(About())
    assert there.sync(store).restore("latest")[0] == SESSION
    assert find_stored(store, "latest") == SESSION


def test_a_turn_that_is_here_but_not_in_the_store_is_not_said_to_be_missing(store, here):
    turn(here, store, "one")
    killed = here.sync(store)
    killed.restore(SESSION)
    killed.begin_turn()
    here.say("two")
    killed.close()
    _, told = here.sync(store).restore(SESSION)
    assert here.heard == ["one", "two"]
    assert ["what it left on this machine is kept" in notice.hint for notice in told] == [True]


def test_to_look_into_a_store_makes_no_file(tmp_path):
    absent = SqliteStore(tmp_path / "mistyped" / "sessions.db")
    assert absent.list() == []
    assert [*absent.load(SESSION)] == []
    assert not (tmp_path / "mistyped").exists()
