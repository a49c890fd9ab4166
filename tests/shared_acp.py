"""One warm process of the real CLI for many tests: each has sessions, a folder and a script of its
own. A start takes two seconds of CPU, a session a tenth.
"""

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from geminorum import Acp, Cli, Options
from geminorum.decisions import Decide
from geminorum.testing import FakeGemini
from geminorum.testing.script import Script
from geminorum.transports.acp.transport import AcpConversation, WarmAcp
from left_processes import SHARED, TEST_MARK, keepers, marked_processes
from shared_run import COMPILED

MODEL = "gemini-2.5-flash"

_PORTS: set[int] = set()

on_shared = pytest.mark.asyncio(loop_scope="module")
"""For tests that use a process which others of their module use, too: they share its loop."""


class Sessions:
    """Sessions of a shared process with their own tools, their own decide …"""

    def __init__(self, warm: WarmAcp, **how: Any) -> None:
        self._warm, self._how = warm, how

    @property
    def decide(self) -> Decide | None:
        return self._how.get("decide", self._warm._transport.decide)

    def secrets(self) -> list[str]:
        return self._warm.secrets()

    def having(self, **how: Any) -> "Sessions":
        return Sessions(self._warm, **{**self._how, **how})

    def deciding(self, decide: Decide) -> "Sessions":
        return self.having(decide=decide)

    def open(self, options: Options) -> AcpConversation:
        transport = replace(self._warm._transport, **self._how)
        return AcpConversation(transport, options, self._warm.process)


class SharedAcp:
    """A process, the model that it talks to, and the options of its sessions."""

    def __init__(self, fake: FakeGemini, options: Options, warm: WarmAcp) -> None:
        self.fake, self.options, self.warm = fake, options, warm
        self.was_ready = warm.process.shaken_hands

    def afresh(self, cwd: Path) -> "SharedAcp":
        """For the next test: nothing is scripted, nothing was asked, and the folder is its own."""
        forget(self.fake)
        cwd.mkdir(exist_ok=True)
        return SharedAcp(self.fake, self.options.changed(cwd=cwd), self.warm)

    def via(self, **how: Any) -> Sessions:
        """The process as a transport; `how` is what a conversation in it has for itself: its own
        decide, if the process has one, and tools, of those that the process was started with."""
        return Sessions(self.warm, **how)


def forget(fake: FakeGemini) -> None:
    """Nothing is scripted any more, and nothing was asked."""
    Script.__init__(fake)
    fake.log.clear()
    fake.abandoned.clear()


def having(via: Cli | Sessions, **how: Any) -> Any:
    """The same transport, but with these tools, this decide …"""
    return via.having(**how) if isinstance(via, Sessions) else replace(via, **how)


class OnEitherWay:
    """Tests of `any_transport`: a run of their own, or a shared process, by its fixture's name."""

    @pytest.fixture(params=[Cli, "process"], ids=["cli", "acp"])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, ...]]:
        folder = tmp_path / "workspace"
        if isinstance(request.param, str):
            shared = request.getfixturevalue(request.param).afresh(folder)
            yield shared.fake, shared.options, shared.via()
            return
        folder.mkdir()
        with FakeGemini() as fake:
            options = Options(cwd=folder, model=MODEL, env=fake.env)
            yield fake, options, request.getfixturevalue("real_transport")

    @pytest.fixture
    def fake_gemini(self, place: tuple[Any, ...]) -> FakeGemini:
        return place[0]

    @pytest.fixture
    def options(self, place: tuple[Any, ...]) -> Options:
        return place[1].changed(timeout=60)

    @pytest.fixture
    def any_transport(self, place: tuple[Any, ...]) -> Any:
        return place[2]


def private_options(fake: FakeGemini, folder: Path, **chosen: Any) -> Options:
    """For a run that is made before a test: nothing of the user's, as in a test."""
    own = {
        "HOME": str(fake.home),
        "XDG_CACHE_HOME": str(COMPILED.parent.parent),
        "GEMINI_MODEL": "",
    }
    # What differs from test to test: a pool lends a process to those with the same variables only.
    env = {**fake.env, **own, "GOOGLE_API_KEY": "", "PYTEST_CURRENT_TEST": ""}
    return Options(cwd=folder, model=MODEL, env=env, home=fake.home, **chosen)


@asynccontextmanager
async def shared_acp(transport: Acp, folder: Path, **chosen: Any) -> AsyncIterator[SharedAcp]:
    """Starts it: for a fixture of a module, in the loop of the module."""
    with FakeGemini() as fake:
        _PORTS.add(urlsplit(fake.url).port or 0)
        options = private_options(fake, folder, **chosen)
        with shared_processes():
            async with transport.warm(options) as warm:
                note_shared()
                yield SharedAcp(fake, options, warm)


@contextmanager
def shared_processes() -> Iterator[None]:
    """What `note_shared` notes in this block may outlive a test, but not the block."""
    before = set(SHARED)
    yield
    noted = SHARED - before
    SHARED.difference_update(noted)
    deadline = time.monotonic() + 1.0  # A keeper ends a moment after what it kept.
    while (left := [one for one in _all() if one.pid in noted]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in left:
        process.kill()
    assert not left, f"shared processes left behind: {left}"


def note_shared() -> None:
    """All processes of tests that live now are shared."""
    SHARED.update(one.pid for one in _all())


def shared_connections() -> int:
    """How many descriptors of ours belong to shared processes, which hang up when they like."""
    found = psutil.Process().net_connections("tcp")
    return sum(one.laddr.port in _PORTS and bool(one.raddr) for one in found)


def _all() -> list[Any]:
    return marked_processes(os.environ[TEST_MARK]) + keepers()
