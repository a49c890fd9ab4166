"""Two machines on this one, each with a home, a temporary folder and a path of its own, of which
only one is there at a time, and a store between them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from geminorum import Acp, Cli, Options, Pool, connect
from geminorum.sessions.store import SqliteStore
from geminorum.testing import FakeGemini

MODEL = "gemini-2.5-flash"
SECOND = ["Say it twice", "Seven, seven."]
HISTORY = ["Read the note", "call read_file", "result of read_file", "Noted.", *SECOND]
"""What the first machine leaves."""
_OWN_WORDS = ("<session_context>", "This is the Gemini CLI.", "Got it. Thanks for the context!")
"""The beginnings of what the CLI itself says to the model."""


class Machine:
    """Its folder has another name while the machine is off."""

    def __init__(self, folder: Path, fake: FakeGemini, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._off = folder, folder.with_name(f"{folder.name}-is-off")
        self.home, self.cwd = folder / "home", folder / f"projects-of-{folder.name}/the-project"
        self._env, self._monkeypatch = fake.env, monkeypatch
        for place in (self.home, self._temporary, self.cwd):
            place.mkdir(parents=True)
        (self.cwd / "note.txt").write_text("seven")
        folder.rename(self._off)

    @property
    def _temporary(self) -> Path:
        return self.folder / "tmp"

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        """One that is on already stays so."""
        was_off = self._off.exists()
        if was_off:
            self._off.rename(self.folder)
        try:
            with self._monkeypatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(self._temporary))
                yield
        finally:
            if was_off:
                self.folder.rename(self._off)

    @property
    def is_unused(self) -> bool:
        """Has nobody written to its home or its temporary folder yet?"""
        with self.switched_on():
            return not [*self.home.iterdir(), *self._temporary.iterdir()]

    def options(self, **chosen: Any) -> Options:
        """With the home of this machine's user, unless another is chosen."""
        own = {"GEMINI_CLI_HOME": str(self.home), "TMPDIR": str(self._temporary)}
        given = {"env": {**self._env, **own}, "cwd": self.cwd, "model": MODEL, "timeout": 120}
        return Options(**{**given, **chosen})


class Journey:
    """A session that begins on one machine, continues on another, and comes back."""

    def __init__(self, folder: Path, fake: FakeGemini, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake, self.store = fake, SqliteStore(folder / "store/sessions.db")
        self.here = Machine(folder / "here", fake, monkeypatch)
        self.there = Machine(folder / "there", fake, monkeypatch)
        self.session: str | None = None

    async def begin(self, via: Cli | Acp) -> None:
        """Two turns on the first machine; one of them calls a tool."""
        self.fake.call("read_file", file_path="note.txt").say("Noted.").say(SECOND[1])
        with self.here.switched_on():
            async with connect(self.here.options(store=self.store), via=via) as chat:
                await chat.ask(HISTORY[0])
                second = await chat.ask(SECOND[0])
        assert (second.text, second.errors) == (SECOND[1], [])
        self.session = second.session_id
        self.assert_kept()
        assert said_to(self.fake.requests[-1]) == HISTORY[:-1]

    async def continue_there(self, via: Cli | Acp | Pool) -> None:
        with self.there.switched_on():
            options = self.there.options(home=self.there.home)
            await self._go_on(options, via, [*HISTORY, "Which number?"], "Seven.")

    async def come_back(self, via: Cli | Acp) -> None:
        """To a machine that has an older copy."""
        with self.here.switched_on():
            told = [*HISTORY, "Which number?", "Seven.", "Goodbye"]
            await self._go_on(self.here.options(), via, told, "Bye.")

    async def _go_on(
        self, options: Options, via: Cli | Acp | Pool, told: list[str], answer: str
    ) -> None:
        """One turn; the model is told everything that was said, once, and the prompt."""
        self.fake.say(answer)
        options = options.changed(store=self.store, resume=self.session)
        async with connect(options, via=via) as chat:
            assert self._holder("another") != "another"
            result = await chat.ask(told[-1])
        assert (result.text, result.errors) == (answer, [])
        assert result.session_id == self.session
        assert said_to(self.fake.requests[-1]) == told
        self.assert_kept()

    def assert_kept(self) -> None:
        """The store has this session and no other, and nobody holds it."""
        assert [*dict(self.store.list())] == [self.session]
        assert self._holder("another") == "another"
        self.store.release(self.session, "another")

    def _holder(self, name: str) -> str:
        return self.store.acquire(self.session, name, 60)


def said_to(request) -> list[str]:
    """What the model was told and has said, in order, without the CLI's own words."""
    parts = [part for content in request.contents for part in content["parts"]]
    return [said for said in map(_said, parts) if not said.startswith(_OWN_WORDS)]


def _said(part: dict[str, Any]) -> str:
    match part:
        case {"functionCall": {"name": name}}:
            return f"call {name}"
        case {"functionResponse": {"name": name}}:
            return f"result of {name}"
        case {"text": text}:
            return text
    return str(part)
