"""A worker gets a source, works in it, sends a patch back, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from geminorum.errors import InvalidPack, WorkspaceError
from geminorum.workspace import Workspace, folder, pack


@pytest.fixture
def here(tmp_path):
    made = tmp_path / "here"
    made.mkdir()
    (made / "a").write_text("one")
    return made


@pytest.fixture
def place(tmp_path):
    made = tmp_path / "place"
    made.mkdir()
    return made


def _work(there: Workspace) -> bytes:
    (there.folder / "a").write_text("two")
    return there.diff().data


def test_a_copy_is_gone_after_the_block_and_its_changes_come_back(here, place):
    made = pack(here)
    for source in (made, made.data):
        with Workspace.opened(source, place=place) as there:
            assert place in there.folder.parents
            patch = there.diff() if _work(there) else None
        assert list(place.iterdir()) == []
        assert [change.name for change in Workspace(here).check(patch).changes] == ["a"]


def test_a_git_address_is_cloned_for_the_block(here, place):
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=1"]):
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        subprocess.run(["git", *who, *words], cwd=here, check=True)
    with Workspace.opened(f"git+file://{here}", place=place) as there:
        _work(there)
        assert [change.name for change in there.diff().changes] == ["a"]
    assert list(place.iterdir()) == []


def test_a_folder_that_is_here_is_used_and_stays(here, place):
    with Workspace.opened(here, place=place) as there:
        assert there.folder == here
        _work(there)
    assert (here / "a").read_text() == "two"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("where", ["before", "inside"])
def test_a_failure_leaves_nothing(here, place, where):
    source = b"no pack" if where == "before" else pack(here).data

    def fail() -> None:
        with Workspace.opened(source, place=place) as there:
            _work(there)
            raise KeyboardInterrupt

    with pytest.raises((InvalidPack, KeyboardInterrupt)):
        fail()
    assert list(place.iterdir()) == []


def test_the_same_without_blocking_the_loop(here, place):
    async def work() -> list[str]:
        async with Workspace.opened(pack(here), place=place) as there:
            _work(there)
            return [change.name for change in there.diff().changes]

    assert asyncio.run(work()) == ["a"]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_job_that_is_cancelled_while_it_unpacks_leaves_nothing(here, place, monkeypatch, at_once):
    inside, go_on, real = threading.Event(), threading.Event(), folder.unpack_into

    def unpack_slowly(*words):
        made = real(*words)
        inside.set()
        assert go_on.wait(20)
        return made

    async def work() -> None:
        async with Workspace.opened(pack(here), place=place):
            pytest.fail("entered")

    async def cancel() -> None:
        job = asyncio.create_task(work())
        await asyncio.to_thread(inside.wait, 20)
        if not at_once:
            go_on.set()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        go_on.set()

    monkeypatch.setattr(folder, "unpack_into", unpack_slowly)
    asyncio.run(cancel())
    assert list(place.iterdir()) == []


def test_a_job_that_is_cancelled_while_it_works_leaves_nothing(here, place):
    async def work(begun: asyncio.Event) -> None:
        async with Workspace.opened(pack(here), place=place):
            begun.set()
            await asyncio.sleep(60)

    async def cancel() -> None:
        begun = asyncio.Event()
        job = asyncio.create_task(work(begun))
        await begun.wait()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    asyncio.run(cancel())
    assert list(place.iterdir()) == []


KILLED = """
import os, sys
from geminorum.workspace import Workspace, pack

with Workspace.opened(pack(sys.argv[1]), place=sys.argv[2]):
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_worker_left_is_removed_by_the_next_one(here, place):
    words = [sys.executable, "-c", KILLED, here, place]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    (left,) = place.iterdir()
    with Workspace.opened(pack(here), place=place) as there:
        assert not left.exists()
        assert [*place.iterdir()] == [there.folder.parent]


def test_a_folder_that_the_agent_removed_is_told(here, place):
    with Workspace.opened(pack(here), place=place) as there:
        (there.folder / "a").unlink()
        there.folder.rmdir()
        with pytest.raises(WorkspaceError, match="is gone"):
            there.diff()
    assert list(place.iterdir()) == []


def test_only_the_owner_can_read_a_copy(here, place):
    with Workspace.opened(pack(here), place=place) as there:
        modes = {one.stat().st_mode & 0o777 for one in (there.folder, there.folder.parent)}
        assert modes == {0o700}
    assert list(place.iterdir()) == []
