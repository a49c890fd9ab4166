"""A patch that is interrupted leaves all of it or nothing, whatever interrupted it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from geminorum.errors import WorkspaceConflict, WorkspaceError
from geminorum.workspace import Patch, Workspace, applying
from random_trees import contents_of

KILLED = """
import os, sys
from geminorum.workspace import Patch, Workspace, applying

folder, patch, where = sys.argv[1:]
real, done = applying._do, []

def do(*words):
    if len(done) == int(where):
        os.kill(os.getpid(), 9)
    done.append(real(*words))

def unlink(path, *_, **__):
    os.kill(os.getpid(), 9)

applying._do = do
if where == "-1":
    applying._write_journal = unlink
if where == "-2":
    applying.shutil.rmtree = unlink
Workspace(folder).apply(Patch.load(patch))
"""


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here"
    (folder / "old/deep").mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}").write_text(f"{number}")
    (folder / "old/deep/file").write_bytes(b"\0\xff")
    (folder / "link").symlink_to("0")
    return folder


@pytest.fixture
def there(here, tmp_path):
    made = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    folder = made.folder
    shutil.rmtree(folder / "old")
    (folder / "0").write_text("changed")
    (folder / "1").chmod(0o755)
    (folder / "2").unlink()
    (folder / "2/new").mkdir(parents=True)
    (folder / "2/new/file").write_text("new")
    (folder / "link").unlink()
    (folder / "link").write_text("a file")
    return made


@pytest.mark.parametrize("where", [-1, 0, 1, 6, 11, -2])
def test_a_killed_apply_leaves_all_or_nothing(here, there, tmp_path, where):
    there.diff().save(tmp_path / "patch")
    before, wanted = contents_of(here), contents_of(there.folder)
    words = [sys.executable, "-c", KILLED, here, tmp_path / "patch", str(where)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert (here / ".geminorum-apply").is_dir()
    if where >= 0:
        with pytest.raises(WorkspaceError, match="its process was killed"):
            Workspace(here).pack()
    assert Workspace(here).recover() is (where >= 0)
    assert not (here / ".geminorum-apply").exists()
    after = contents_of(here)
    assert after == (wanted if where == -2 else before)
    Workspace(here).apply(Patch.load(tmp_path / "patch"))
    assert contents_of(here) == wanted
    assert not Workspace(here).recover()


def test_a_failure_at_any_step_undoes_those_before(here, there, monkeypatch):
    patch, before, real = there.diff(), contents_of(here), applying._do
    done: list[object] = []

    def do(*words):
        if len(done) == failing:
            raise OSError(28, "No space left on device")
        done.append(words)
        real(*words)

    monkeypatch.setattr(applying, "_do", do)
    for failing in range(100):
        done.clear()
        try:
            Workspace(here).apply(patch)
        except OSError:
            assert contents_of(here) == before, failing
        else:
            break
    assert failing >= 12
    assert contents_of(here) == contents_of(there.folder)


def test_a_file_that_is_saved_in_the_last_moment_is_kept(here, there, monkeypatch):
    real = applying._write_journal

    def write_late(*words):
        real(*words)
        (here / "0").write_text("saved in the last moment")

    before = contents_of(here)
    monkeypatch.setattr(applying, "_write_journal", write_late)
    with pytest.raises(WorkspaceConflict, match="0 changed while the patch was applied"):
        Workspace(here).apply(there.diff())
    assert contents_of(here) == {**before, "0": ("file", 0o644, b"saved in the last moment")}


def test_a_file_that_appears_in_the_last_moment_is_kept(here, tmp_path, monkeypatch):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "new").write_text("theirs")
    real = applying._write_journal

    def write_late(*words):
        real(*words)
        (here / "new").write_text("mine")

    monkeypatch.setattr(applying, "_write_journal", write_late)
    with pytest.raises(WorkspaceConflict, match="appeared"):
        Workspace(here).apply(there.diff())
    assert (here / "new").read_text() == "mine"
    assert not (here / ".geminorum-apply").exists()


def test_work_after_an_interruption_is_kept_and_told(here, there, tmp_path):
    there.diff().save(tmp_path / "patch")
    words = [sys.executable, "-c", KILLED, here, tmp_path / "patch", "6"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    (here / "0").write_text("written since then")
    with pytest.raises(WorkspaceConflict, match="were kept: 0") as caught:
        Workspace(here).recover()
    assert (here / "0").read_text() == "written since then"
    (kept,) = here.glob(".geminorum-apply-kept-*")
    assert str(kept) in str(caught.value)
    assert "0" in {one.read_text() for one in (kept / "old").iterdir() if not one.is_symlink()}
    assert (here / "2").read_text() == "2"
    assert not any("kept" in name for name in Workspace(here).pack().base().tree)


@pytest.mark.parametrize("name", ["../outside", ".git/hooks/x", "/etc/x"])
def test_a_journal_that_came_with_the_files_is_not_obeyed(here, tmp_path, name):
    place = here / ".geminorum-apply"
    (place / "old").mkdir(parents=True)
    (place / "old/0").write_text("harm")
    (place / "journal.json").write_text(json.dumps([["take", name, 0, None]]))
    for mode in (0o755, 0o700):
        place.chmod(mode)
        with pytest.raises(WorkspaceError, match=r"not made by geminorum|names"):
            Workspace(here).recover()
    assert (place / "old/0").exists()
    assert not (tmp_path / "outside").exists()


def test_a_journal_in_a_folder_that_geminorum_did_not_make_is_not_obeyed(here):
    """As a clone would make it: git knows no modes of folders."""
    place = here / ".geminorum-apply"
    (place / "old").mkdir(parents=True)
    (place / "old/0").write_text("harm")
    (place / "journal.json").write_text(json.dumps([["take", "new", 0, None]]))
    place.chmod(0o755)
    with pytest.raises(WorkspaceError, match="not made by geminorum"):
        Workspace(here).recover()
    assert not (here / "new").exists()


def test_two_threads_apply_one_after_the_other_or_are_told(here, there, monkeypatch):
    inside, go_on, real = threading.Event(), threading.Event(), applying._write_journal

    def write_slowly(*words):
        inside.set()
        assert go_on.wait(20)
        real(*words)

    monkeypatch.setattr(applying, "_write_journal", write_slowly)
    patch = there.diff()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(Workspace(here).apply, patch)
        assert inside.wait(20)
        with pytest.raises(WorkspaceError, match="another patch") as caught:
            Workspace(here).apply(patch)
        go_on.set()
        assert first.result(20).changes
    assert caught.value.retryable
    assert contents_of(here) == contents_of(there.folder)


def test_without_hard_links_a_file_is_renamed(here, there, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    Workspace(here).apply(there.diff())
    assert contents_of(here) == contents_of(there.folder)


def test_nothing_is_left_where_unpacking_fails(here, tmp_path, monkeypatch):
    pack = Workspace(here).pack()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "symlink_to", fail)
    with pytest.raises(OSError, match="No space"):
        Workspace.unpack(pack, tmp_path / "new")
    assert not (tmp_path / "new").exists()
