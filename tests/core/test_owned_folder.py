"""Temporary folders: removed by their owner, by nobody else while it lives, and by the next one
that is made after a kill -9."""

import fcntl
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from geminorum.system.owned_folder import OwnedFolder

MAKERS = {
    "from geminorum.transports.launch.overlay import Overlay": (
        "Overlay.create(Path('../base'), {})"
    ),
    "from geminorum.testing import FakeGemini": "FakeGemini()",
    "from geminorum.apps.command.run.undo import Copies": "Copies()",
    "from geminorum.install import _make_sibling": "_make_sibling(Path('there/cli'))",
}
KILLED = "os.kill(os.getpid(), 9)"
FORKED = """
if (pid := os.fork()) == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(*folders())
"""
FOLDERS = """
import os, sys
from pathlib import Path

def folders():
    return [f for f in (*Path('.').iterdir(), *Path('.').glob('there/*')) if f.name != 'there']
"""


@pytest.fixture(params=MAKERS)
def run_in_block(request, tmp_path):
    """Runs code in the block of a temporary folder, in a process of its own; its output."""
    room = tmp_path / "room"
    room.mkdir()

    def run(code: str) -> str:
        body = "\n    ".join(code.strip().splitlines())
        making = f"{request.param}\ndef make(): return {MAKERS[request.param]}"
        program = f"{FOLDERS}\n{making}\nwith make():\n    {body}\n"
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=room,
            env={**os.environ, "TMPDIR": str(room)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode in (0, -9), done.stderr
        return done.stdout

    return run


@pytest.fixture
def folders(tmp_path):
    def found() -> list[Path]:
        room = tmp_path / "room"
        return [f for f in (*room.iterdir(), *room.glob("there/*")) if f.name != "there"]

    return found


def test_what_a_kill_left_is_swept_by_the_next_one(run_in_block, folders):
    run_in_block(KILLED)
    assert len(folders()) == 1
    assert len(run_in_block("print(*folders())").split()) == 1
    assert folders() == []


def test_a_fork_that_ends_leaves_the_folder_of_its_parent(run_in_block, folders):
    assert len(run_in_block(FORKED).split()) == 1
    assert folders() == []


def test_one_that_is_in_use_is_not_swept(run_in_block, folders):
    assert len(run_in_block("with make():\n    print(*folders())").split()) == 2
    assert folders() == []


def test_many_at_once_sweep_nothing_of_each_other(tmp_path):
    def make_some(_: int) -> list[bool]:
        return [_is_there_in_its_block(tmp_path) for _ in range(50)]

    with ThreadPoolExecutor(8) as threads:
        assert all(chain.from_iterable(threads.map(make_some, range(8))))
    assert not [*tmp_path.iterdir()]


def _is_there_in_its_block(place: Path) -> bool:
    with OwnedFolder("x-", place) as folder:
        return folder.is_dir()


def test_a_folder_that_others_may_write_in_is_not_swept(tmp_path):
    """Whoever may write in it may have moved it here."""
    moved = tmp_path / "room-1-moved"
    moved.mkdir()
    moved.chmod(0o777)
    left = tmp_path / "room-1-left"
    left.mkdir(mode=0o700)
    with OwnedFolder("room-", tmp_path):
        assert moved.exists()
        assert not left.exists()


def test_a_folder_that_another_locks_first_is_given_up(tmp_path, monkeypatch):
    """Not waited for: it may be locked forever."""
    make, locks = tempfile.mkdtemp, []

    def made_and_locked(**how: str) -> str:
        folder = make(**how)
        if not locks:
            locks.append(os.open(folder, os.O_RDONLY))
            fcntl.flock(locks[0], fcntl.LOCK_EX)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_locked)
    with OwnedFolder("room-", tmp_path) as folder:
        assert [*tmp_path.iterdir()] == [folder]
    os.close(locks[0])


def test_a_folder_is_removed_whatever_an_agent_left_in_it(tmp_path):
    """More folders in each other than Python can enter, and a link to somebody's files."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("")
    with OwnedFolder("agent-", tmp_path) as folder:
        part = "/".join(["d"] * 30)
        (folder / "deep").mkdir()
        for _ in range(40):
            (folder / "one" / part).mkdir(parents=True)
            (folder / "deep").rename(folder / "one" / part / "x")
            (folder / "one").rename(folder / "deep")
        (folder / "deep/d/link").symlink_to(tmp_path / "outside")
        (folder / "deep/d/.geminorum-removed-0").mkdir()
    assert [one.name for one in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside/kept").exists()


READ_ONLY = """
import os, sys
from geminorum.system.owned_folder import OwnedFolder

if os.getuid() == 0:
    os.setuid(65534)
with OwnedFolder("agent-") as folder:
    (folder / "cache/module").mkdir(parents=True)
    (folder / "cache/module/code").write_text("")
    for name in ("cache/module", "cache"):
        (folder / name).chmod(0o555)
print(folder.exists())
"""


def test_folders_that_nobody_may_write_in_are_removed():
    """As Go's module cache has them."""
    words = [sys.executable, "-c", READ_ONLY]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
