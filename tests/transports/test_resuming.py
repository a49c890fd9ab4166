"""Sessions: going on where an earlier process stopped, one run at a time."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from geminorum import Cli, Error, Event, Options, Result, ask, connect, errors
from geminorum import run as start
from geminorum.sessions import places
from geminorum.sessions.lock import SessionLock
from geminorum.testing import FakeGemini
from shared_run import private_place

BOGUS = "00000000-0000-4000-8000-000000000000"
MINE = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def options(fake_gemini, tmp_path):
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model="gemini-2.5-flash", env=fake_gemini.env)


def history(fake_gemini) -> str:
    """All that the model was told in the last request."""
    return json.dumps(fake_gemini.requests[-1].body["contents"])


def contents_below(folder: Path) -> list[bytes]:
    """What its session files hold, whatever they are called."""
    return sorted(path.read_bytes() for path in folder.rglob("session-*.jsonl"))


class Conversation(NamedTuple):
    first: Result
    second: Result
    third: Result
    fresh: tuple[Result, Result]
    """Two turns of a chat that was to resume a session that is not there."""
    fresh_events: list[Event]
    told: dict[str, str]
    """All that the model was told in the last request of each prompt."""
    killed: str
    """How the run ended that was killed behind the first."""
    refused: list[errors.GeminorumError]
    """A second session with the id of the first, and a resume of it from another folder."""


class Talk:
    """Runs in one folder: a session with an id of the caller's, a resume of it that is killed at
    its start, another session, and two more resumes of the first."""

    def __init__(self, fake: FakeGemini, options: Options, cli: Cli) -> None:
        self.fake, self.options, self.cli = fake, options, cli
        self.told: dict[str, str] = {}

    async def say(self, prompt: str, **chosen: str) -> Result:
        result = await ask(prompt, self.options.changed(**chosen), via=self.cli)
        self.told[prompt] = history(self.fake)
        return result

    async def refuse(self, **chosen: Any) -> errors.GeminorumError:
        with pytest.raises(errors.InvalidOptions) as caught:
            await ask("Hi", self.options.changed(**chosen), via=self.cli)
        return caught.value

    async def kill_at_start(self) -> str:
        chats = self.fake.home / ".gemini/tmp"
        before = contents_below(chats)
        again, hasty = self.options.changed(resume=MINE), replace(self.cli, grace=0)
        async with start("Never mind", again, via=hasty) as live:
            async with asyncio.timeout(30):
                while contents_below(chats) == before:
                    await asyncio.sleep(0.001)
            await live.cancel()
        return live.result.status

    async def begin_afresh(self) -> tuple[list[Event], Result, Result]:
        forgiving = replace(self.cli, fresh_if_lost=True)
        async with connect(self.options.changed(resume=BOGUS), via=forgiving) as chat:
            async with chat.turn("Nothing of importance") as live:
                events = [event async for event in live]
            second = await chat.ask("Nor this")
        self.told["Nor this"] = history(self.fake)
        return events, live.result, second

    async def whole(self) -> Conversation:
        first = await self.say("I am Ada.", session_id=MINE)
        elsewhere = self.options.cwd.parent
        refused = [await self.refuse(session_id=MINE)]
        refused.append(await self.refuse(cwd=elsewhere, resume=MINE))
        assert len(self.fake.requests) == 1
        killed = await self.kill_at_start()
        events, *fresh = await self.begin_afresh()
        second = await self.say("And I am Grace.", resume=MINE)
        third = await self.say("Margaret here.", resume="latest")
        return Conversation(first, second, third, tuple(fresh), events, self.told, killed, refused)


@pytest.fixture(scope="module")
def conversation(real_transport, tmp_path_factory) -> Conversation:
    with private_place(tmp_path_factory) as cwd, FakeGemini() as fake:
        # If it came so far; its words may stand before those of the next one.
        fake.when(lambda request: request.prompt == "Never mind").say("never asked for")
        for word in ("Ada", "Something else", "Something more", "Grace", "Margaret"):
            fake.say(f"Hello {word}")
        options = Options(cwd=cwd, model="gemini-2.5-flash", env=fake.env)
        return asyncio.run(Talk(fake, options, real_transport).whole())


def test_a_conversation_goes_on_over_three_processes(conversation):
    """S1-3, S1-36, S1-49: and still after an unrelated run in the same folder.

    The latest is where somebody spoke last; the CLI itself would take the one begun last.
    """
    first, second, third, (unrelated, _), *_ = conversation
    assert first.session_id == second.session_id == third.session_id != unrelated.session_id
    told = conversation.told["Margaret here."]
    for said in ("I am Ada.", "Hello Ada", "And I am Grace.", "Hello Grace", "Margaret here."):
        assert said in told
    assert "Nothing of importance" not in told


def test_a_resume_that_is_killed_at_its_start_leaves_the_history(conversation):
    """In the minute of a session's birth, the CLI begins its next file with the same name."""
    assert conversation.killed == "interrupted"
    assert "I am Ada." in conversation.told["And I am Grace."]


def test_an_id_of_one_s_own_is_kept_and_belongs_to_one_session_in_one_folder(conversation):
    """B-37: an orchestrator may choose the id, and a second session cannot have it. Where a session
    is known to be in another folder, the error names that; nothing is started."""
    assert conversation.first.session_id == MINE
    twice, elsewhere = conversation.refused
    assert "already exists" in str(twice)
    assert "belongs to the folder" in str(elsewhere)
    assert "/work" in str(elsewhere.hint)


def test_a_lost_session_may_be_replaced_by_a_fresh_one(conversation):
    """B-22: once, the stream says so with the CLI's reason, and a chat goes on in it."""
    events = conversation.fresh_events
    told = [event for event in events if isinstance(event, Error)]
    assert [(error.code, error.recoverable) for error in told] == [("SESSION_LOST", True)]
    assert "fresh session" in told[0].message
    assert "Invalid session identifier" in told[0].message
    first, second = conversation.fresh
    assert (first.text, first.ok, first.clear_session) == ("Hello Something else", True, True)
    assert first.session_id not in (None, BOGUS)
    assert sum(event.type == "done" for event in events) == 1
    assert (second.session_id, second.clear_session) == (first.session_id, False)
    assert "Nothing of importance" in conversation.told["Nor this"]


LOST = {"exit": 42, "stderr": 'Error resuming session: Invalid session identifier "mine"'}


async def test_a_session_that_is_not_there_is_lost(stand_in, options):
    """S1-50, B-22: the CLI tells it by its exit code and stderr, with no event at all; above, the
    real one does."""
    with pytest.raises(errors.SessionLost, match="Error resuming session") as caught:
        await ask("Hi", options.changed(resume="mine"), via=stand_in(**LOST))
    assert caught.value.result.clear_session
    assert "without `resume`" in caught.value.hint


@pytest.mark.parametrize("how", ["leave", "cancel", "timeout"])
async def test_who_has_given_up_gets_no_fresh_session(stand_in, options, how):
    """The old program has ended by itself; that must not hide that nobody wants a new one."""
    via = stand_in(fresh_if_lost=True, **LOST)
    limit = 2.0 if how == "timeout" else None
    wanted = options.changed(resume="mine", timeout=limit)
    async with start("Go", wanted, via=via) as live:
        await asyncio.sleep(2.5 if how == "timeout" else 1)
        if how == "cancel":
            await live.cancel()
        events = [] if how == "leave" else [event async for event in live]
    assert [event.type for event in events] in ([], ["error", "done"])
    assert live.result.status == "error"
    assert [error.code for error in live.result.errors] == ["SESSION_LOST"]
    assert "fresh" not in live.result.errors[0].message


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
async def test_a_fresh_start_that_is_cut_short_still_has_a_verdict(stand_in, options, steps):
    """Wherever the cancellation falls: the loss is told once, and the stream has an end."""
    via = stand_in(fresh_if_lost=True, **LOST)
    async with start("Go", options.changed(resume="mine"), via=via) as live:
        while not stand_in.has_spoken:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        # Only the first one has lost a session: a second that ended soon enough would say so again.
        stand_in.change(stderr="", hang=True)
        reading = asyncio.create_task(live.read())
        for _ in range(steps):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    result = live.result
    assert result.status in ("error", "interrupted")
    assert [error.code for error in result.errors].count("SESSION_LOST") == 1


async def test_latest_of_nothing_is_an_error_not_a_new_session(options, real_transport):
    """The CLI would begin a new one without a word in its stream."""
    with pytest.raises(errors.SessionLost, match="has no session to resume"):
        await ask("Hi", options.changed(resume="latest"), via=real_transport)


async def test_latest_of_nothing_may_be_fresh(stand_in, options):
    init = {"type": "init", "session_id": "new", "model": "flash"}
    spoken = {"type": "message", "role": "assistant", "content": "Fresh", "delta": True}
    via = stand_in(init, spoken, {"type": "result", "status": "success"}, fresh_if_lost=True)
    result = await ask("Hi", options.changed(resume="latest"), via=via)
    assert (result.text, result.clear_session) == ("Fresh", True)
    assert not [word for word in stand_in.call["argv"] if word.startswith("--resume")]


@pytest.mark.parametrize("chosen", ["resume", "session_id"])
async def test_one_run_at_a_time_in_a_session(stand_in, options, chosen):
    """B-37: the second is refused at once, and may try again later."""
    via = stand_in({"type": "init", "session_id": "mine", "model": "flash"}, hang=True)
    both = options.changed(**{chosen: "mine"})
    async with start("Hi", both, via=via):
        with pytest.raises(errors.SessionBusy, match="'mine'") as caught:
            await ask("Hi", both, via=via)
        assert caught.value.retryable
    async with start("Hi", both, via=via) as live:
        assert live.result.status == "running"


def test_a_lock_dies_with_its_process(tmp_path):
    """B-37: the lock works across processes, and a killed process leaves none behind."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from geminorum.sessions.lock import SessionLock\n"
        "with SessionLock(Path(sys.argv[1]), 's'): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(errors.SessionBusy), SessionLock(tmp_path, "s"):
            pass
        with SessionLock(tmp_path, "another"):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with SessionLock(tmp_path, "s") as lock:
        kept = lock._path
        assert kept.exists()
    assert not kept.exists()


async def test_many_contenders_are_served_one_after_the_other(tmp_path):
    """Removing the lock's file never lets two in."""
    inside, most, served = 0, 0, 0

    async def contend() -> None:
        nonlocal inside, most, served
        while True:
            try:
                with SessionLock(tmp_path, "s"):
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0)
                    inside -= 1
                    served += 1
                    return
            except errors.SessionBusy:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(contend() for _ in range(20)))
    assert (most, served) == (1, 20)


class TestPlaces:
    """B-4: where each version keeps the sessions of a folder."""

    @pytest.fixture
    def home(self, tmp_path) -> Path:
        (tmp_path / ".gemini" / "tmp").mkdir(parents=True)
        return tmp_path

    def keep(self, folder: Path, session: str, *, said: bool = True, at: float = 0) -> Path:
        chats = folder / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        path = chats / f"session-2026-01-01T00-00-{session[:8]}.jsonl"
        top = {"sessionId": session, "projectHash": "x", "kind": "main"}
        spoken = {"id": "1", "type": "user", "content": [{"text": "Hi"}]}
        path.write_text("\n".join(json.dumps(one) for one in [top, spoken][: 1 + said]) + "\n")
        os.utime(path, (at, at))
        return path

    def test_by_the_table_of_projects(self, home, tmp_path):
        folder = home / ".gemini" / "tmp" / "work-1"
        self.keep(folder, "session-1")
        known = {"projects": {str(tmp_path.resolve()): "work-1"}}
        (home / ".gemini" / "projects.json").write_text(json.dumps(known))
        assert places.projects_of(home, tmp_path) == [folder]
        assert places.latest(home, tmp_path) == "session-1"

    def test_by_the_mark_in_the_folder(self, home, tmp_path):
        folder = home / ".gemini" / "tmp" / "other"
        self.keep(folder, "session-1")
        (folder / ".project_root").write_text(str(tmp_path))
        assert places.projects_of(home, tmp_path) == [folder]
        assert places.project_of(home, "session-1") == tmp_path.resolve()

    def test_by_the_hash_of_older_versions(self, home, tmp_path):
        import hashlib

        name = hashlib.sha256(str(tmp_path.resolve()).encode()).hexdigest()
        folder = home / ".gemini" / "tmp" / name
        self.keep(folder, "session-1")
        assert places.projects_of(home, tmp_path) == [folder]

    @pytest.mark.parametrize("table", ["{", "[]", '{"projects": 5}', '{"projects": {}}'])
    def test_a_broken_table_is_no_table(self, home, tmp_path, table):
        (home / ".gemini" / "projects.json").write_text(table)
        assert places.projects_of(home, tmp_path) == []
        assert places.latest(home, tmp_path) is None

    def test_the_latest_passes_over_the_empty_and_the_broken(self, home, tmp_path):
        folder = home / ".gemini" / "tmp" / "work"
        self.keep(folder, "older-one", at=1)
        self.keep(folder, "later-one", at=2)
        self.keep(folder, "silent-1", said=False, at=3)
        (folder / "chats" / "session-x-broken00.jsonl").write_text("{nonsense\n")
        (folder / ".project_root").write_text(str(tmp_path))
        assert places.latest(home, tmp_path) == "later-one"


# ---- the lock of a session, and an agent that lays hands on it


def lock_file(home: Path) -> Path:
    with SessionLock(home, "s") as lock:
        return lock._path


def test_a_lock_that_is_a_link_is_refused_and_makes_no_file(tmp_path):
    path = lock_file(tmp_path)
    for target in (tmp_path / "elsewhere", tmp_path / "no" / "such" / "folder"):
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(target)
        with pytest.raises(errors.ConfigError, match="cannot lock"), SessionLock(tmp_path, "s"):
            pass
        assert not target.exists()
        path.unlink()


def test_a_lock_that_became_a_folder_is_let_go_of_quietly(tmp_path):
    with SessionLock(tmp_path, "s") as lock:
        held, path = lock.fileno(), lock._path
        path.unlink()
        path.mkdir()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_who_leaves_removes_no_lock_of_another(tmp_path):
    """The agent of the first run removed its lock, and a second run has one since."""
    with SessionLock(tmp_path, "s") as first:
        first._path.unlink()
        second = SessionLock(tmp_path, "s")
        second.__enter__()
    with pytest.raises(errors.SessionBusy), SessionLock(tmp_path, "s"):
        pass
    second.__exit__()
