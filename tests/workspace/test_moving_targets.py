"""Somebody else works in the folder at the same time: nothing outside is read or written."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest

from geminorum.errors import WorkspaceConflict, WorkspaceError, WorkspaceTooLarge
from geminorum.system.removal import remove_tree
from geminorum.workspace import Patch, Workspace, applying, beneath, listing
from geminorum.workspace import patch as patching
from geminorum.workspace.tree import entry_of, read_entry
from random_trees import contents_of


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("old")
    (folder / "secret").write_text("S3CRET")
    return folder


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_text("old")
    return folder


def _swap(here: Path, outside: Path) -> None:
    """A link to elsewhere, in the place of a folder."""
    if not (here / "sub").is_symlink():
        (here / "sub").rename(here / "away")
        (here / "sub").symlink_to(outside)


@pytest.mark.parametrize("what", ["change", "delete", "add"])
def test_a_link_that_appears_while_a_patch_is_applied_is_not_followed(
    here, outside, tmp_path, monkeypatch, what
):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    match what:
        case "change":
            (there.folder / "sub/file").write_text("new")
        case "delete":
            (there.folder / "sub/file").unlink()
        case _:
            (there.folder / "sub/new").write_text("new")
    patch, before, real = there.diff(), contents_of(outside), applying._write_journal

    def write_late(*words):
        real(*words)
        _swap(here, outside)

    monkeypatch.setattr(applying, "_write_journal", write_late)
    with pytest.raises(WorkspaceConflict, match="changed while the patch was applied"):
        Workspace(here).apply(patch)
    assert contents_of(outside) == before
    assert contents_of(here / "away") == {"file": ("file", 0o644, b"old")}


@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_link_that_appears_while_a_folder_is_packed_is_not_followed(
    here, outside, monkeypatch, part
):
    """In the moment between the look at a file and its opening."""
    (here / "sub/secret").write_text("mine")
    real, seen = os.stat, []

    def look(path, *more, **options):
        found = real(path, *more, **options)
        if os.fspath(path).endswith("secret") and not seen:
            seen.append(path)
            if part == "folder":
                _swap(here, outside)
            else:
                (here / "sub/secret").unlink()
                (here / "sub/secret").symlink_to(outside / "secret")
        return found

    monkeypatch.setattr(os, "stat", look)
    try:
        found = read_entry(here, "sub/secret", 1000)
    except WorkspaceError as error:
        found = None
        assert "cannot be read" in str(error)  # noqa: PT017
    assert found is None or b"S3CRET" not in found[1]
    monkeypatch.undo()
    assert (here / "sub/secret").read_text() == "S3CRET"


def test_a_link_in_the_place_of_a_new_file_does_not_change_what_it_leads_to(
    here, outside, tmp_path, monkeypatch
):
    """Its mode and its owner, which are set after the old one was looked at; root may set any."""
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "sub/file").write_text("new")
    patch, real = there.diff(), beneath.stat_of
    (outside / "file").chmod(0o400)

    def look(folder, name):
        new = here / ".geminorum-apply/new/0"
        if name == "sub/file" and new.exists() and not new.is_symlink():
            new.unlink()
            new.symlink_to(outside / "file")
        return real(folder, name)

    monkeypatch.setattr(beneath, "stat_of", look)
    Workspace(here).apply(patch)
    assert (outside / "file").stat().st_mode & 0o777 == 0o400
    assert (outside / "file").read_text() == "old"


def test_a_file_that_grows_while_a_folder_is_packed_is_told(here, monkeypatch):
    """It may be sparse, and have more than the memory."""
    packing = sys.modules["geminorum.workspace.pack"]  # The package has a function of that name.
    real = packing.require_size

    def look_and_grow(*words):
        real(*words)
        os.truncate(here / "sub/file", 5000)

    monkeypatch.setattr(packing, "require_size", look_and_grow)
    with pytest.raises(WorkspaceTooLarge, match="sub/file grows while it is read"):
        Workspace(here).pack(max_bytes=1000)


def test_a_file_that_grows_while_it_is_compared_is_told(here, monkeypatch):
    opened, real = Workspace.open(here), entry_of
    (here / "sub/file").write_text("new")

    def look_and_grow(folder, name, *more):
        found = real(folder, name, *more)
        os.truncate(here / "sub/file", 5000)
        return found

    monkeypatch.setattr(patching, "entry_of", look_and_grow)
    with pytest.raises(WorkspaceTooLarge, match="sub/file grows while it is read"):
        opened.diff(max_bytes=1000)


def test_a_file_that_vanishes_while_a_folder_is_packed_is_left_out(here, monkeypatch):
    """Editors and compilers do this all the time."""
    (here / "sub/other").write_text("stays")
    real = listing.list_names

    def list_and_remove(*words):
        found = real(*words)
        (here / "sub/file").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(listing, "list_names", list_and_remove)
    assert [*Workspace(here).pack().base().tree] == ["sub/other"]


def test_a_pipe_in_the_place_of_a_file_is_a_conflict_at_once(here, tmp_path):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "sub/file").write_text("new")
    (here / "sub/file").unlink()
    os.mkfifo(here / "sub/file")
    patch = there.diff()
    assert "sub/file" in Workspace(here).render(patch)
    with pytest.raises(WorkspaceConflict, match="sub/file"):
        Workspace(here).apply(patch)
    (there.folder / "sub/file").unlink()
    os.mkfifo(there.folder / "sub/file")
    assert [(one.what, one.name) for one in there.diff().changes] == [("deleted", "sub/file")]


def test_a_huge_file_is_compared_without_being_read_into_memory(here, tmp_path):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "sub/file").write_text("new")
    os.truncate(here / "sub/file", 10**13)
    with pytest.raises(WorkspaceConflict, match="sub/file"):
        Workspace(here).apply(there.diff())


def test_a_folder_in_place_may_be_larger_than_the_memory(here):
    (here / "large").touch()
    os.truncate(here / "large", 200_000_000)
    tracemalloc.start()
    try:
        opened = Workspace.open(here)
        assert opened.diff().changes == []
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_patch_is_never_larger_than_its_reader_allows(here, tmp_path):
    """Files of the same size, all changed: each alone looks as before."""
    for name in ("a", "b"):
        (here / name).write_bytes(b"1" * 600)
    opened = Workspace.open(here)
    for name in ("a", "b"):
        (here / name).write_bytes(b"2" * 600)
    with pytest.raises(WorkspaceTooLarge, match="what changed"):
        opened.diff(max_bytes=1000)


@pytest.fixture
def endless(here):
    """More folders in each other than Python can enter; pytest cannot remove them, either."""
    part, top = "/".join(["d"] * 30), here / "deep"
    top.mkdir()
    for _ in range(40):
        (here / "one" / part).mkdir(parents=True)
        top.rename(here / "one" / part / "x")
        (here / "one").rename(top)
    yield top
    remove_tree(top)
    assert not top.exists()


def test_folders_without_end_are_told(here, endless):
    """An agent can make them."""
    with pytest.raises(WorkspaceError, match="is in more than 200 folders") as caught:
        Workspace(here).pack()
    assert len(str(caught.value)) < 500
    assert [*Workspace(here).pack(exclude=["deep"]).base().tree] == ["sub/file"]


def test_a_file_that_is_not_for_us_is_told(here):
    (here / "sub/file").chmod(0)
    if os.getuid() == 0:
        # Root reads everything: ask as somebody else, who may enter the folders.
        code = (
            "import os, sys; from pathlib import Path\n"
            "from geminorum.errors import WorkspaceError\n"
            "from geminorum.workspace.tree import entry_of\n"
            "here = os.open(sys.argv[1], os.O_RDONLY); os.fchdir(here)\n"
            "os.setuid(65534)\n"
            "try: entry_of(Path('.'), 'sub/file')\n"
            "except WorkspaceError as error: print(error)\n"
        )
        words = [sys.executable, "-c", code, str(here)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        told = done.stdout
    else:
        with pytest.raises(WorkspaceError) as caught:
            entry_of(here, "sub/file")
        told = str(caught.value)
    assert "sub/file cannot be read: Permission denied" in told
    assert "exclude=['sub/file']" in told


@pytest.mark.parametrize("name", ["pages/[id].tsx", "a*", "?", "[!x]"])
def test_a_name_that_looks_like_a_pattern_can_be_skipped_and_excluded(here, tmp_path, name):
    (here / name).parent.mkdir(exist_ok=True)
    (here / name).write_text("1")
    assert name not in Workspace(here).pack(exclude=[name]).base().tree
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    for one in (name, "sub/file", "abc"):
        (there.folder / one).write_text("theirs")
    (here / name).write_text("mine")
    with pytest.raises(WorkspaceConflict) as caught:
        Workspace(here).apply(there.diff())
    done = Workspace(here).apply(there.diff(), skip=caught.value.paths)
    assert {one.name for one in done.changes} == {"sub/file", "abc"}
    assert (here / name).read_text() == "mine"


def test_many_changes_take_linear_time(here, tmp_path, monkeypatch):
    """Counted in comparisons of names, since clocks differ."""
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    for number in range(400):
        (there.folder / f"{number}").write_text(f"{number}")
    patch = there.diff()
    reads: list[object] = []
    real = Patch.changes.fget
    monkeypatch.setattr(Patch, "changes", property(lambda self: reads.append(1) or real(self)))
    Workspace(here).render(patch)
    Workspace(here).apply(patch)
    assert len(reads) < 10


def test_a_changed_file_keeps_its_group_and_owner(here, tmp_path):
    group = next((one for one in os.getgroups() if one != os.getgid()), os.getgid())
    owner = 12345 if os.getuid() == 0 else os.getuid()
    group = 23456 if os.getuid() == 0 else group
    os.chown(here / "sub/file", owner, group)
    (here / "sub/file").chmod(0o640)
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "sub/file").write_text("new")
    Workspace(here).apply(there.diff())
    found = (here / "sub/file").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (owner, group, 0o640)


ESCAPE = "\x1b]0;harm\x07"


def test_what_is_shown_cannot_act_on_a_terminal(here, tmp_path):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / f"name\nadded safe{ESCAPE}").write_text(f"{ESCAPE}\rhidden\u202e\n")
    patch = there.diff()
    text = Workspace(here).render(patch)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\nadded safe" not in text
    assert r"+\u001b]0;harm\u0007\rhidden\u202e" in text
    (here / f"name\nadded safe{ESCAPE}").write_text("mine")
    with pytest.raises(WorkspaceConflict) as caught:
        Workspace(here).apply(patch)
    assert "\x1b" not in str(caught.value)


def test_a_change_of_line_ends_is_shown(here, tmp_path):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "sub/file").write_bytes(b"old\r\n")
    text = Workspace(here).render(there.diff())
    assert "-old\n\\ No newline at end of file\n+old\\r\n" in text


def test_a_form_feed_does_not_end_a_line(here, tmp_path):
    (here / "sub/file").write_text("one\x0ctwo\n")
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / "sub/file").write_text("one\x0cthree\n")
    assert "No newline" not in Workspace(here).render(there.diff())


def test_a_renamed_file_that_was_never_here_is_shown_whole(here, tmp_path):
    """Otherwise a patch could add a program, and call it a new name of an old file."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes").write_text("harm\n")
    there = Workspace.unpack(Workspace(tmp_path / "other").pack(), tmp_path / "there")
    (there.folder / "notes").rename(there.folder / "Makefile")
    patch = there.diff()
    assert "+harm\n" in Workspace(here).render(patch)
    assert "renamed notes to Makefile" in Workspace(tmp_path / "other").render(patch)


@pytest.fixture
def careless(monkeypatch):
    """A file system as on a Mac: it keeps capitals, and does not tell names apart by them."""
    real = beneath._parent

    def spelled(folder: Path, name: str) -> str:
        parts: list[str] = []
        for part in name.split("/"):
            place = folder.joinpath(*parts)
            found = [one.name for one in place.iterdir()] if place.is_dir() else []
            parts.append(next((one for one in found if one.casefold() == part.casefold()), part))
        return "/".join(parts)

    @contextmanager
    def parent(folder: Path, name: str):
        known = spelled(folder, name)
        with real(folder, known) as (here, last):
            # A new name is written as it is given.
            yield here, last if os.path.lexists(folder / known) else name.rpartition("/")[2]

    return lambda: monkeypatch.setattr(beneath, "_parent", parent)


@pytest.mark.parametrize(("old", "new"), [("sub/file", "sub/FILE"), ("sub/file", "Sub/file")])
def test_a_name_that_only_changes_its_capitals_is_not_lost(here, tmp_path, careless, old, new):
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    (there.folder / new).parent.mkdir(exist_ok=True)
    (there.folder / old).rename(there.folder / new)
    if new == "Sub/file":
        (there.folder / "sub").rmdir()
    patch = there.diff()
    careless()
    Workspace(here).apply(patch)
    assert contents_of(here) == contents_of(there.folder)
