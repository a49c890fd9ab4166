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
        except WorkspaceError:
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
    (place / "mark").write_text("")
    mark = applying._mark(place)
    journal = {"mark": mark, "steps": [["take", name, 0, None]]}
    (place / "journal.json").write_text(json.dumps(journal))
    for mode in (0o755, 0o700):
        place.chmod(mode)
        with pytest.raises(WorkspaceError, match="not made by geminorum"):
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


UNPACK = """
import resource, sys
from geminorum.workspace import Pack, Workspace

# As on a full disk: a file ends in the middle.
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
Workspace.unpack(Pack.load(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize("existed", [True, False])
def test_nothing_is_left_where_unpacking_fails(here, tmp_path, existed):
    (here / "old/large").write_bytes(b"x" * 9000)
    Workspace(here).pack().save(tmp_path / "pack")
    into = tmp_path / "new"
    if existed:
        into.mkdir()
    words = [sys.executable, "-c", UNPACK, tmp_path / "pack", into]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert "WorkspaceError: the pack cannot be unpacked into" in done.stderr
    assert into.exists() is existed
    assert not existed or list(into.iterdir()) == []


APPLY = UNPACK.replace(
    "Workspace.unpack(Pack.load(sys.argv[1]), sys.argv[2])",
    "from geminorum.workspace import Patch\nWorkspace(sys.argv[2]).apply(Patch.load(sys.argv[1]))",
)


def test_a_full_disk_leaves_the_folder_as_it_was(here, there, tmp_path):
    (there.folder / "large").write_bytes(b"x" * 9000)
    there.diff().save(tmp_path / "patch")
    before = contents_of(here)
    words = [sys.executable, "-c", APPLY, tmp_path / "patch", here]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert "WorkspaceError: the patch cannot be applied: File too large; nothing was" in done.stderr
    assert contents_of(here) == before


def test_ctrl_c_at_any_step_leaves_all_or_nothing(here, there, monkeypatch):
    """And once more while the steps are undone: then the next one goes on with that."""
    patch, before, real, undo = there.diff(), contents_of(here), applying._do, applying._undo
    done: list[object] = []

    def do(*words):
        real(*words)
        done.append(words)
        if len(done) == pressed:
            raise KeyboardInterrupt

    def undo_until_pressed_again(*words):
        done.append(words)
        if len(done) == pressed + again and applies:
            raise KeyboardInterrupt
        return undo(*words)

    monkeypatch.setattr(applying, "_do", do)
    monkeypatch.setattr(applying, "_undo", undo_until_pressed_again)
    for pressed in range(1, 13):
        for again in (0, 1, 5):
            done.clear()
            applies = True
            with pytest.raises(KeyboardInterrupt):
                Workspace(here).apply(patch)
            applies = False
            Workspace(here).recover()
            assert contents_of(here) == before, (pressed, again)
    pressed, again = 100, 0
    Workspace(here).apply(patch)
    assert contents_of(here) == contents_of(there.folder)


def _kill_apply(here, there, tmp_path, where: int) -> None:
    there.diff().save(tmp_path / "patch")
    words = [sys.executable, "-c", KILLED, here, tmp_path / "patch", str(where)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL


def test_a_folder_that_was_removed_after_a_kill_comes_back_with_its_old_files(
    here, there, tmp_path
):
    before = contents_of(here)
    _kill_apply(here, there, tmp_path, 11)
    shutil.rmtree(here / "old", ignore_errors=True)
    (here / "2").exists() and shutil.rmtree(here / "2")
    assert Workspace(here).recover()
    assert contents_of(here) == before


def test_a_file_in_the_place_of_an_old_folder_is_kept_and_told(here, there, tmp_path):
    _kill_apply(here, there, tmp_path, 8)
    assert not (here / "old").exists()
    (here / "old").write_text("mine")
    with pytest.raises(WorkspaceConflict, match=r"were kept: .*old/deep/file"):
        Workspace(here).recover()
    assert (here / "old").read_text() == "mine"
    (kept,) = here.glob(".geminorum-apply-kept-*")
    assert b"\0\xff" in {one.read_bytes() for one in (kept / "old").iterdir() if one.is_file()}


def test_undoing_does_not_remove_somebodys_file_with_the_same_contents(here, tmp_path, monkeypatch):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "new").write_text("the same")
    real = applying._write_journal

    def write_late(*words):
        real(*words)
        (here / "new").write_text("the same")

    monkeypatch.setattr(applying, "_write_journal", write_late)
    with pytest.raises(WorkspaceConflict, match="appeared"):
        Workspace(here).apply(there.diff())
    assert (here / "new").read_text() == "the same"


def test_a_journal_that_a_private_clone_brought_is_not_obeyed(here, there, tmp_path):
    """With a umask of 077, each folder of a clone looks like one that geminorum made."""
    outside = tmp_path / "outside"
    outside.mkdir()
    _kill_apply(here, there, tmp_path, 6)
    clone = tmp_path / "clone"
    shutil.copytree(here, clone, symlinks=True)
    (clone / "way").symlink_to(outside)
    journal = clone / ".geminorum-apply/journal.json"
    journal.write_text(journal.read_text().replace('"take", "0"', '"take", "way/harm"'))
    assert (clone / ".geminorum-apply").stat().st_mode & 0o777 == 0o700
    with pytest.raises(WorkspaceError, match="not made by geminorum"):
        Workspace(clone).recover()
    assert list(outside.iterdir()) == []


def test_a_folder_that_hands_on_its_group_can_be_patched(here, there):
    """Shared folders have this bit, and so has every folder that is made in them."""
    here.chmod(0o2775)
    Workspace(here).apply(there.diff())
    assert contents_of(here) == contents_of(there.folder)


def test_one_that_waits_for_another_to_end_is_not_confused(here, there, monkeypatch):
    """The other one removes the folder between our look at it and our lock."""
    real = applying._try_to_lock

    def lock_late(place):
        if places:
            shutil.rmtree(places.pop())
        return real(place)

    places = [here / ".geminorum-apply"]
    monkeypatch.setattr(applying, "_try_to_lock", lock_late)
    Workspace(here).apply(there.diff())
    assert contents_of(here) == contents_of(there.folder)


def test_a_part_on_another_disk_is_told(here, there, monkeypatch):
    def refuse(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    before = contents_of(here)
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(WorkspaceError, match="mounted"):
        Workspace(here).apply(there.diff())
    assert contents_of(here, ()) == before
