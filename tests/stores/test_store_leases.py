"""Leases and crashes: who holds a session, who is dead, and what a kill leaves behind."""

import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from two_homes import SESSION, machine, turn

from geminorum.errors import ConfigError, SessionBusy
from geminorum.sessions.store import SqliteStore, session_sync
from geminorum.sessions.store.holder import is_dead, new_holder, shown_holder
from geminorum.sessions.store.local_files import gather_files
from geminorum.transports.stored.store_thread import StoreThread


@pytest.fixture
def store(tmp_path):
    return SqliteStore(tmp_path / "sessions.db")


@pytest.fixture
def here(tmp_path):
    return machine(tmp_path, "here")


@pytest.fixture
def there(tmp_path):
    return machine(tmp_path, "there")


# ---- a holder that was killed

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, nothing is known")

_HOLD = """
import sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from two_homes import Machine, SESSION
from geminorum.sessions.store import SqliteStore
sync = Machine(Path(sys.argv[1]), Path(sys.argv[2])).sync(SqliteStore(sys.argv[3]))
sync.restore(SESSION)
sync.begin_turn()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_process(store, here, tmp_path):
    """A process with the session open."""
    turn(here, store, "one")
    words = [*map(str, here), str(tmp_path / "sessions.db"), str(Path(__file__).parent)]
    command = [sys.executable, "-c", _HOLD, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@only_linux
def test_a_session_whose_run_was_killed_here_is_free_at_once(store, here, there, other_process):
    with pytest.raises(SessionBusy, match=f"open elsewhere, by .*:{other_process.pid}\n"):
        there.sync(store).restore(SESSION)
    other_process.kill()
    os.waitid(os.P_PID, other_process.pid, os.WEXITED | os.WNOWAIT)  # It stays as a zombie.
    sync = there.sync(store)
    _, told = sync.restore(SESSION)
    assert ["was never saved" in one.message for one in told] == [True]
    sync.close()
    other_process.wait()
    turn(there, store, "two")
    assert there.heard == ["one", "two"]


@only_linux
def test_of_many_who_find_a_run_dead_one_gets_its_session(store, here, tmp_path, other_process):
    other_process.kill()
    other_process.wait()
    places = [machine(tmp_path, f"m{number}") for number in range(6)]
    gate, found = threading.Barrier(len(places)), queue.SimpleQueue()

    def restore(at):
        gate.wait()
        try:
            at.sync(store).restore(SESSION)
            found.put("got it")
        except SessionBusy:
            found.put("busy")

    threads = [threading.Thread(target=restore, args=(at,)) for at in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found.get() for _ in places) == ["busy"] * 5 + ["got it"]


def _changed(holder: str, place: int, to: str) -> str:
    parts = holder.split(":")
    return ":".join([*parts[:place], to, *parts[place + 1 :]])


@only_linux
def test_what_is_known_about_a_holder():
    me = new_holder()
    assert not is_dead(me)
    assert is_dead(_changed(me, 2, "12345"))  # Another process has its number by now.
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead = _changed(me, 1, str(gone.pid))
    assert is_dead(dead)
    assert is_dead(_changed(me, 1, "9999999999"))
    # Another machine, another container, another boot: nothing is known.
    assert not is_dead(_changed(dead, 3, "0" * 32))
    assert not is_dead(_changed(dead, 3, ""))
    assert not any(map(is_dead, ["", "somebody", "host:1:abc", f"{dead}:more", dead[:-1]]))
    assert shown_holder(me).endswith(f":{os.getpid()}")


def test_a_holder_on_another_machine_is_waited_for(store, here):
    turn(here, store, "one")
    away = _changed(_changed(new_holder(), 1, "999999"), 3, "0" * 32)
    store.acquire(SESSION, away, 60)
    with pytest.raises(SessionBusy, match="open elsewhere"):
        here.sync(store).restore(SESSION)


# ---- renewals


class Owner:
    def __init__(self):
        self.ticks = 0
        self.thread = StoreThread(self.tick, 0.05)

    def tick(self):
        self.ticks += 1


def test_a_lease_is_renewed_though_one_call_follows_another():
    owner = Owner()
    for _ in range(30):
        owner.thread.start(lambda: time.sleep(0.02)).result()
    assert owner.ticks > 2
    owner.thread.finish(lambda: None).result()


def test_a_conversation_that_nobody_has_any_more_is_not_renewed():
    owner = Owner()
    owner.thread.start(lambda: None).result()
    thread = owner.thread._thread
    del owner
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_what_was_asked_for_is_done_though_the_owner_is_gone():
    owner, go_on = Owner(), threading.Event()
    owner.thread.start(go_on.wait)
    last = owner.thread.finish(lambda: None)
    del owner
    gc.collect()
    time.sleep(0.2)
    go_on.set()
    assert last.result(60) is None


class Slow(SqliteStore):
    """Another takes the session while it is read."""

    def load(self, session, after=0):
        found = [*super().load(session, after)]
        time.sleep(0.3)
        self.acquire(session, "another", 60)
        return found


def test_who_lost_a_session_while_reading_it_does_not_begin(store, here, tmp_path, monkeypatch):
    turn(here, store, "one")
    monkeypatch.setattr(session_sync, "LEASE_SECONDS", 0.2)
    with pytest.raises(SessionBusy, match="open elsewhere, by another"):
        here.sync(Slow(tmp_path / "sessions.db")).restore(SESSION)


# ---- what a crash leaves behind


def _with_output(at) -> Path:
    at.say("one")
    outputs = at.path.parent.parent / "tool-outputs" / f"session-{SESSION}"
    outputs.mkdir(parents=True)
    (outputs / "shell_1.txt").write_text("out")
    return outputs


def test_a_restore_that_was_broken_off_is_done_again(store, here, there):
    """The conversation is written last: where it is, everything is."""
    _with_output(here)
    turn(here, store)
    project = there.new_file().parent.parent
    for path in (project / "chats").iterdir():
        path.unlink()
    (project / "tool-outputs").write_text("in the way")
    sync = there.sync(store)
    with pytest.raises(ConfigError, match="cannot put the session into"):
        sync.restore(SESSION)
    sync.close()
    (project / "tool-outputs").unlink()
    assert turn(there, store, "two") == []
    assert sorted(gather_files(*there, SESSION)) == ["main.jsonl", "output/shell_1.txt"]


def test_what_a_killed_restore_has_half_written_is_removed(store, here, there):
    turn(here, store, "one")
    old, young = (there.new_file().parent / f".stored-{name}" for name in ("old", "young"))
    old.write_text("half")
    young.write_text("half")
    os.utime(old, (1, 1))
    turn(there, store, "two")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_note_that_cannot_be_written_does_not_deny_the_save(store, here, there):
    turn(here, store, "one")
    notes = here.home / ".gemini/tmp/.geminorum-stores"
    for note in notes.iterdir():
        note.unlink()
    notes.rmdir()
    notes.write_text("in the way")
    assert turn(here, store, "two") == []
    assert turn(there, store, "three") == []
    assert there.heard == ["one", "two", "three"]


@only_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_loses_its_own_turn_only(
    store, here, there, other_process, number, tmp_path
):
    here.say("never saved")
    other_process.send_signal(number)
    other_process.wait()
    (told,) = turn(there, store, "two")
    assert "was never saved" in told
    assert there.heard == ["one", "two"]
    assert "continued elsewhere" in turn(here, store, "three")[0]
    assert here.heard == ["one", "two", "three"]
