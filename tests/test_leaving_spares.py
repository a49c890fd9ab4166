"""CLIs that were started ahead leave nothing behind, however the block with them ends.

A stand-in plays the CLI: what is tested here is the life of its processes.
"""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from geminorum import Cli, Options, ask, connect, owned_folder
from geminorum.sessions.places import was_used
from geminorum.transports import spares
from geminorum.transports.launch import overlay
from geminorum.transports.launch.control_place import candidates
from geminorum.transports.launch.unused_session import UnusedSession
from stand_in import make_package

WENT_AHEAD = "the prompt went to a CLI that was started"


@pytest.fixture(autouse=True)
def no_midnight(monkeypatch) -> None:
    """A test may run while a quarter of an hour ends."""
    monkeypatch.setattr(spares, "_quarter_of_the_hour", lambda: 0)


@pytest.fixture
def program(tmp_path) -> Path:
    return make_package(tmp_path / "package")


@pytest.fixture
def held(tmp_path) -> Path:
    """While this file is there, CLIs stay in the middle of their start."""
    return tmp_path / "held"


@pytest.fixture
def home(tmp_path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def options(home, held, tmp_path) -> Options:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, home=home, env={"GEMINI_API_KEY": "x" * 30, "STAND_IN_HELD": str(held)})


@pytest.fixture
def said(caplog) -> Callable[[str], list[str]]:
    """What was logged about CLIs started ahead that begins so."""
    caplog.set_level(logging.DEBUG, "geminorum.spares")
    return lambda start: [text for text in caplog.messages if text.startswith(start)]


def sessions_in(home: Path) -> list[Path]:
    return sorted(home.rglob("session-*"))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def waiting(cli: Cli, count: int = 1) -> spares.Spare:
    assert cli._spares is not None
    await until(lambda: len(cli._spares.waiting) >= count)
    return cli._spares.waiting[0]


async def one_held(held: Path) -> int:
    """The process that stays in the middle of its start."""
    await until(lambda: [*held.parent.glob(f"{held.name}-*")])
    (name,) = held.parent.glob(f"{held.name}-*")
    return int(name.name.rpartition("-")[2])


def go_on(held: Path, pid: int) -> None:
    held.with_name(f"{held.name}-{pid}").unlink()


async def use_and_hold_the_next(live, held: Path) -> str:
    """Takes a run to its end; the CLI that is started ahead after it stays in its start."""
    async with live:
        async for _ in live:
            held.touch()
    return live.result.text


def open_descriptors() -> Counter[str]:
    """What they lead to, without numbers."""
    links = Path("/proc/self/fd").iterdir()
    return Counter(re.sub(r"\d+", "", str(link.readlink())) for link in links if link.is_symlink())


@asynccontextmanager
async def nothing_left(program: Path, options: Options, monkeypatch) -> AsyncIterator[None]:
    """Fails if the block leaves a descriptor, a task, a folder or an unused session. A process is
    missed after every test."""
    folder = options.cwd.parent / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    await ask("What is opened once stays open", options, via=Cli(executable=program))
    tasks, before = asyncio.all_tasks(), open_descriptors()
    yield
    assert asyncio.all_tasks() == tasks
    # A thread closes the last, whenever it comes to that.
    await until(lambda: not open_descriptors() - before)
    assert [*folder.iterdir()] == []
    assert all(map(was_used, sessions_in(options.home)))


# ---- a session that is resumed


async def test_a_chat_that_is_left_while_its_next_cli_starts_keeps_its_session(
    program, options, home, held, monkeypatch
):
    """The CLI begins an empty file beside the session: for another CLI, a reason to delete both."""
    cli = Cli(executable=program)
    async with nothing_left(program, options, monkeypatch), connect(options, via=cli) as chat:
        await use_and_hold_the_next(chat.turn("Precious"), held)
        await one_held(held)
        assert len(sessions_in(home)) == 3
    texts = [file.read_text() for file in sessions_in(home)]
    assert ["Precious" in text for text in texts].count(True) == 1
    assert len(texts) == 2


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_file_that_a_killed_cli_had_only_opened_is_removed(options, home, is_resumed):
    chats = home / ".gemini/tmp/project/chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text(str(options.cwd))
    used, empty, other = (chats / f"session-{n}-{n // 10 * 11111111}.jsonl" for n in (10, 11, 20))
    records = {"sessionId": "11111111-1"}, {"id": "1", "type": "user", "content": "Precious"}
    used.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    for file in (empty, other):
        file.touch()
    UnusedSession(str(home), str(options.cwd), "11111111-1", is_resumed).remove()
    assert sessions_in(home) == [used, other]


KILLED = """
    import asyncio, sys
    from pathlib import Path
    from geminorum import Cli, Options, connect

    async def main(program, cwd, home, held):
        options = Options(cwd=cwd, home=home, env={"STAND_IN_HELD": held})
        async with connect(options, via=Cli(executable=program)) as chat:
            async with chat.turn("Precious") as live:
                async for _ in live:
                    Path(held).touch()
            await asyncio.sleep(60)

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_chat_left_beside_its_session_is_removed(program, options, home, held):
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    command += [str(program), str(options.cwd), str(home), str(held)]
    env = {**os.environ, "GEMINI_API_KEY": "x" * 30}
    with subprocess.Popen(command, env=env) as us:
        pid = await one_held(held)
        assert len(sessions_in(home)) == 2
        us.kill()
    await until(lambda: is_swept(home))
    assert not psutil.pid_exists(pid)
    (kept,) = sessions_in(home)
    assert "Precious" in kept.read_text()


def is_swept(home: Path) -> bool:
    """Does what each run does first, and says whether one session file is left."""
    owned_folder.sweep(overlay._PREFIX, candidates(), UnusedSession.remove_noted_in)
    return len(sessions_in(home)) == 1
