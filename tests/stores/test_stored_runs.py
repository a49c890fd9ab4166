"""Runs and chats with a store, on `Cli`, `Acp` and a `Pool`; also with stores that fail."""

import asyncio
import threading
from functools import partialmethod
from pathlib import Path

import pytest
from two_homes import Machine

from geminorum import Acp, Api, Error, Init, Options, Pool, ask, connect, errors, run, sync
from geminorum.sessions.store import SqliteStore, session_sync
from geminorum.sessions.store import listed as listed_in
from geminorum.transports.stored import conversation


class Machines:
    """Options of runs on two machines, with one store."""

    def __init__(self, fake, folder: Path) -> None:
        self.store = SqliteStore(folder / "sessions.db")
        self._fake, self._folder = fake, folder

    def options(self, name: str, **more) -> Options:
        home, cwd = self._folder / f"home-{name}", self._folder / f"projects-{name}" / name
        home.mkdir(exist_ok=True)
        cwd.mkdir(parents=True, exist_ok=True)
        (cwd / "note.txt").write_text("seven")
        more = {"store": self.store, "timeout": 100, **more}
        return Options(env=self._fake.env, home=home, cwd=cwd, model="gemini-2.5-flash", **more)


@pytest.fixture
def machines(fake_gemini, tmp_path) -> Machines:
    return Machines(fake_gemini, tmp_path)


def said_to(request) -> list[str]:
    """What the model was told and has said, without the CLI's own words."""
    parts = [part for content in request.contents for part in content.get("parts", [])]
    texts = [part["text"] for part in parts if "text" in part]
    return [text for text in texts if not text.startswith("<session_context>")]


def told_of(events) -> list[str]:
    return [one.message for one in events if isinstance(one, Error) and one.code == "STORE"]


@pytest.mark.gemini_cli
async def test_a_session_travels_between_machines_and_transports(
    fake_gemini, machines, real_transport
):
    """A chat saves each turn, also one that was cancelled; its processes are started ahead. Others
    go on at any time after."""
    fake_gemini.call("read_file", file_path="note.txt").say("Noted.").say("Wait", "for it", drip=30)
    fake_gemini.say("Seven.").say("Bye.")
    async with connect(machines.options("a"), via=real_transport) as chat:
        await chat.ask("Read the note")
        saved = [[*machines.store.load(chat.session_id)]]
        async with chat.turn("Cancelled") as live:
            async for event in live:
                if event.type == "text_delta":
                    break
        saved.append([*machines.store.load(chat.session_id)])
    assert [len(entries) for entries in saved] == [1, 3]
    acp = Acp(executable=real_transport.executable)
    there = machines.options("b", resume=chat.session_id)
    async with Pool(acp, size=1) as pool, connect(there, via=pool) as other:
        with pytest.raises(errors.SessionBusy, match="open elsewhere"):
            await ask("Me too", machines.options("a", resume="latest"), via=real_transport)
        second = await other.ask("Which number was it?")
    assert (second.text, second.session_id, second.errors) == ("Seven.", chat.session_id, [])
    before = fake_gemini.requests[-1]
    history = said_to(before)
    assert [*history[:2], history[-1]] == ["Read the note", "Noted.", "Which number was it?"]
    assert str(before.body).count("'functionResponse': {") == 1
    third = await ask("Goodbye", machines.options("a", resume="latest"), via=real_transport)
    assert (third.text, third.session_id, third.errors) == ("Bye.", chat.session_id, [])
    assert said_to(fake_gemini.requests[-1]) == [*history, "Seven.", "Goodbye"]
    (info,) = listed_in(machines.store)
    assert (info.id, info.title, info.cli_version) == (chat.session_id, "Read the note", "0.61.0")


class Failing:
    """A store of which some calls fail, or do not end until `go_on` is set."""

    def __init__(self, store, *names: str, hang: bool = False) -> None:
        self._store, self.names = store, names
        self.go_on, self.is_asked = threading.Event(), False
        if not hang:
            self.go_on.set()

    def _call(self, name: str, *words):
        if name in self.names:
            self.is_asked = True
            self.go_on.wait()
            raise OSError(28, "No space left on device")
        return getattr(self._store, name)(*words)

    append = partialmethod(_call, "append")
    load = partialmethod(_call, "load")
    list = partialmethod(_call, "list")
    delete = partialmethod(_call, "delete")
    acquire = partialmethod(_call, "acquire")
    release = partialmethod(_call, "release")


INIT = {"type": "init", "session_id": "mine", "model": "flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello."}
DONE = {"type": "result", "status": "success"}


@pytest.fixture
def saved(machines):
    """A session of a stand-in, which saves nothing by itself."""
    options = machines.options("a")
    Machine(Path(options.home), Path(options.cwd)).say("Hi", session="mine")
    return options


@pytest.mark.parametrize("name", ["append", "load", "acquire", "release"])
async def test_a_failing_store_does_not_end_a_run(stand_in, machines, saved, name):
    broken = Failing(machines.store, name)
    options = saved.changed(store=broken)
    events = [event async for event in run("Hi", options, via=stand_in(INIT, SAID, DONE))]
    assert [type(events[0]), events[-1].status] == [Init, "success"]
    told = told_of(events)
    assert [text for text in told if "No space left" not in text] == []
    assert len(told) == (name != "release")
    broken.names = ()
    if name == "release":
        with pytest.raises(errors.SessionBusy, match="open elsewhere"):
            await ask("Hi", options.changed(resume="mine"), via=stand_in(INIT, SAID, DONE))
        return
    second = await ask("Hi", options.changed(resume="mine"), via=stand_in(INIT, SAID, DONE))
    assert second.errors == []
    assert dict(machines.store.list()) == {"mine": len([*machines.store.load("mine")])}
    broken.names = (name,)
    again = run("Hi", options.changed(resume="mine"), via=stand_in(INIT, SAID, DONE))
    events = [event async for event in again]
    assert events[-1].status == "success"
    assert told_of(events) != []


async def test_a_store_that_hangs_holds_up_a_run_for_a_while_only(
    stand_in, machines, saved, monkeypatch
):
    monkeypatch.setattr(conversation, "_SAVE_SECONDS", 0.2)
    monkeypatch.setattr(conversation, "_NOTE_SECONDS", 0.2)
    monkeypatch.setattr(conversation, "_RELEASE_SECONDS", 0.2)
    broken = Failing(machines.store, "append", hang=True)
    via = stand_in(INIT, SAID, DONE)
    async with connect(saved.changed(store=broken), via=via) as chat:
        first = await chat.ask("Hi")
        second = await chat.ask("Hi")
    assert ["not answered" in one.message for one in first.errors] == [True]
    assert ["not answered" in one.message for one in second.errors] == [True, True]
    broken.go_on.set()


async def test_a_save_that_comes_late_does_not_read_a_turn_at_work(
    stand_in, machines, saved, monkeypatch
):
    """What the CLI has half written by then is no whole turn."""
    monkeypatch.setattr(conversation, "_SAVE_SECONDS", 0.2)
    monkeypatch.setattr(conversation, "_NOTE_SECONDS", 0.2)
    broken = Failing(machines.store, hang=True)
    here = Machine(Path(saved.home), Path(saved.cwd))
    async with connect(saved.changed(store=broken), via=stand_in(INIT, SAID, DONE)) as chat:
        await chat.ask("Hi")
        number = len([*machines.store.load("mine")])
        chat._conversation._thread.start(broken.go_on.wait)  # As a renewal that hangs.
        assert "not answered" in (await chat.ask("Hi")).errors[-1].message
        async with chat.turn("Hi") as live:
            here.say("half of a turn", session="mine")
            broken.go_on.set()
            await asyncio.wrap_future(chat._conversation._thread.start(lambda: None))
            late = [raw for raw in machines.store.load("mine", number) if b"half of" in raw]
            async for _ in live:
                pass
    assert late == []
    assert any(b"half of" in raw for raw in machines.store.load("mine", number))


async def test_a_cancel_during_a_save_loses_nothing(stand_in, machines, saved):
    """Whoever is cancelled while the store takes its time can still read the end."""
    broken = Failing(machines.store, "append", hang=True)
    async with run("Hi", saved.changed(store=broken), via=stand_in(INIT, SAID, DONE)) as live:
        while not live.result.text:
            await live.read()
        reading = asyncio.ensure_future(live.read())
        await asyncio.sleep(0.5)
        reading.cancel()
        await asyncio.wait([reading])
        broken.go_on.set()
    assert live.result.status == "success"
    assert "No space left" in live.result.errors[0].message


async def test_a_cancelled_run_does_not_wait_long_for_its_store(
    stand_in, machines, saved, monkeypatch
):
    monkeypatch.setattr(conversation, "_SAVE_SECONDS", 1e9)
    monkeypatch.setattr(conversation, "_HURRY_SECONDS", 0.1)
    monkeypatch.setattr(conversation, "_RELEASE_SECONDS", 0.1)
    broken = Failing(machines.store, "append", hang=True)
    asking = asyncio.ensure_future(
        ask("Hi", saved.changed(store=broken), via=stand_in(INIT, SAID, DONE))
    )
    while not broken.is_asked:
        await asyncio.sleep(0.02)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    broken.go_on.set()


async def test_a_lease_is_renewed_while_a_chat_is_open(stand_in, machines, saved, monkeypatch):
    for module in (conversation, session_sync):
        monkeypatch.setattr(module, "LEASE_SECONDS", 0.6)
    async with connect(saved, via=stand_in(INIT, SAID, DONE)) as chat:
        await chat.ask("Hi")
        await asyncio.sleep(2)
        assert machines.store.acquire("mine", "another", 60) != "another"
        assert (await chat.ask("Hi")).errors == []
    async with asyncio.timeout(30):  # The end of a chat does not wait long for a slow store.
        while machines.store.acquire("mine", "another", 60) != "another":
            await asyncio.sleep(0.05)


async def test_a_lost_session_is_lost_with_a_store_too(stand_in, machines):
    options = machines.options("a", resume="0f1e2d3c-0000-4000-8000-000000000000")
    lost = stand_in(exit=42, stderr='Error resuming session: Invalid session identifier "0f"')
    with pytest.raises(errors.SessionLost):
        await ask("Hi", options, via=lost)


def test_a_transport_without_sessions_refuses_a_store(machines):
    with pytest.raises(errors.Unsupported, match="store"):
        sync.ask("Hi", machines.options("a"), via=Api(api_key="x"))


def test_what_is_no_store_is_refused(machines, stand_in):
    for store in (7, object()):
        with pytest.raises(errors.InvalidOptions, match="no SessionStore"):
            sync.ask("Hi", machines.options("a", store=store), via=stand_in(INIT))
    with pytest.raises(errors.InvalidOptions, match="not the URL of a store"):
        sync.ask("Hi", machines.options("a", store="nowhere"), via=stand_in(INIT))


class Awaitable:
    """What somebody may write who has an asynchronous library."""

    async def append(self, session, number, data): ...
    async def load(self, session, after=0):
        yield b""

    async def list(self): ...
    async def delete(self, session): ...
    async def acquire(self, session, holder, seconds): ...
    async def release(self, session, holder): ...


def test_a_store_of_coroutines_is_refused(machines, stand_in):
    with pytest.raises(errors.InvalidOptions, match="are coroutines") as caught:
        sync.ask("Hi", machines.options("a", store=Awaitable()), via=stand_in(INIT))
    assert "not `async def`" in (caught.value.hint or "")


async def test_an_id_that_is_open_elsewhere_is_refused_before_anything_starts(machines, stand_in):
    machines.store.acquire("mine", "another", 60)
    via = stand_in(INIT, SAID, DONE)
    with pytest.raises(errors.SessionBusy, match="open elsewhere"):
        await ask("Hi", machines.options("a", session_id="mine"), via=via)
    with pytest.raises(FileNotFoundError):
        stand_in.call  # noqa: B018
    broken = machines.options("a", session_id="mine", store=Failing(machines.store, "acquire"))
    result = await ask("Hi", broken, via=via)
    assert ["No space left" in one.message for one in result.errors] == [True]


def test_the_password_of_a_store_is_shown_nowhere():
    shown = repr(Options(store="postgresql://me:swordfish@host/db"))
    assert "swordfish" not in shown
    assert "postgresql://me:…@host/db" in shown
    assert Options.from_dict({"store": "sqlite:///x.db"}).store == "sqlite:///x.db"
