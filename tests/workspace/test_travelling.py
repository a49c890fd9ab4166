"""A folder goes away, is changed there, and the changes come back byte for byte."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from geminorum.errors import (
    InvalidOptions,
    WorkspaceConflict,
    WorkspaceError,
    WorkspaceTooLarge,
)
from geminorum.workspace import Pack, Patch, Workspace
from random_trees import Scribe, contents_of


def start_repository(folder: Path) -> None:
    """An empty repository: what is in it stays untracked."""
    subprocess.run(["git", "init", "--quiet", "--template=", folder], check=True)


def origin(folder: Path, seed: int) -> Path:
    """Every second one belongs to git, and has files that do not travel."""
    folder.mkdir()
    if seed % 2:
        start_repository(folder)
        (folder / ".gitignore").write_text("*.secret\nnode_modules\n")
        (folder / "node_modules").mkdir()
        (folder / "node_modules/big").write_text("stays")
        (folder / "key.secret").write_text("stays")
    Scribe(folder, seed).write()
    return folder


STAYS = (".git", "node_modules", "key.secret")


def _staying(state):
    return {name: one for name, one in state.items() if name.split("/")[0] in STAYS}


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_patch_made_elsewhere_applies_byte_for_byte(tmp_path, first):
    """200 random scripts: modes, renames, deletions, binaries, links, odd names."""
    for seed in range(first, first + 20):
        here = origin(tmp_path / f"here{seed}", seed)
        before = contents_of(here)
        there = Workspace.unpack(bytes(Workspace(here).pack().data), tmp_path / f"there{seed}")
        assert contents_of(there.folder) == contents_of(here, STAYS), seed
        Scribe(there.folder, seed + 1000).edit()
        patch = Patch(there.diff().data)
        assert contents_of(here) == before
        Workspace(here).apply(patch)
        assert contents_of(here, STAYS) == contents_of(there.folder), seed
        assert _staying(contents_of(here)) == _staying(before)
        assert there.diff().changes == patch.changes
        again = Workspace(here).apply(patch)
        assert (again.changes, len(again.already)) == ((), len(patch.changes)), seed


@pytest.mark.parametrize("first", [0, 20])
def test_a_conflict_overwrites_nothing(tmp_path, first):
    """Both sides are edited at random: all of a patch applies, or the folder is as it was."""
    refused = [_apply_to_edited(tmp_path, seed) for seed in range(first, first + 20)]
    assert 3 <= sum(refused) <= 19


def _apply_to_edited(tmp_path, seed) -> bool:
    here = origin(tmp_path / f"here{seed}", seed)
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / f"there{seed}")
    Scribe(there.folder, seed + 1000).edit(10)
    Scribe(here, seed + 2000).edit(6)
    before, patch = contents_of(here), there.diff()
    names = _refused_names(here, patch)
    after, wanted = contents_of(here), contents_of(there.folder)
    touched = {change.name for change in patch.changes}
    if names:
        assert after == before, seed
        assert {*names} <= touched, seed
    else:
        assert _only(after, touched) == _only(wanted, touched), seed
        assert _files_but(after, touched) == _files_but(before, touched), seed
    return bool(names)


def _refused_names(here, patch):
    try:
        Workspace(here).apply(patch)
    except WorkspaceConflict as error:
        return error.paths
    return ()


def _only(state, names):
    return {name: state.get(name) for name in names}


def _files_but(state, names):
    return {name: one for name, one in state.items() if one != ("folder",) and name not in names}


@pytest.fixture
def here(tmp_path):
    """A small repository with a file of each kind."""
    folder = tmp_path / "here"
    (folder / "src").mkdir(parents=True)
    start_repository(folder)
    (folder / "src/main.py").write_text("one\ntwo\n")
    (folder / "README").write_text("read\n")
    return folder


def unpacked(here, tmp_path, **how) -> Workspace:
    return Workspace.unpack(Workspace(here).pack(**how), tmp_path / "there")


def test_the_same_folder_gives_the_same_bytes(here, tmp_path):
    there = unpacked(here, tmp_path)
    assert Workspace(here).pack() == Workspace(here).pack()
    os.utime(here / "README", (1, 1))
    assert Workspace(here).pack() == Workspace(here).pack()
    assert there.folder.stat().st_mode & 0o777 == 0o700


def test_a_pack_and_a_patch_are_files_for_their_owner(here, tmp_path):
    Workspace(here).pack().save(tmp_path / "work.pack")
    saved = Pack.load(tmp_path / "work.pack")
    there = Workspace.unpack(saved, tmp_path / "there")
    (there.folder / "README").unlink()
    Workspace(there.folder, base=saved).diff().save(tmp_path / "work.patch")
    assert {one.stat().st_mode & 0o777 for one in tmp_path.glob("work.*")} == {0o600}
    with pytest.raises(FileExistsError):
        saved.save(tmp_path / "work.pack")
    Workspace(here).apply(Patch.load(tmp_path / "work.patch"))
    assert not (here / "README").exists()


def test_what_git_tracks_travels_even_if_it_is_ignored(here, tmp_path):
    (here / ".gitignore").write_text("build\n")
    (here / "build").mkdir()
    (here / "build/kept").write_text("tracked")
    (here / "build/other").write_text("ignored")
    git(here, "add", "--force", "build/kept")
    there = unpacked(here, tmp_path)
    assert sorted(one.name for one in (there.folder / "build").iterdir()) == ["kept"]
    (there.folder / "build/kept").write_text("changed")
    (there.folder / "build/fresh").write_text("ignored there, too")
    patch = there.diff()
    assert [change.name for change in patch.changes] == ["build/kept"]
    assert "build/fresh" in str(patch.left_out) or "build/" in patch.left_out
    Workspace(here).apply(patch)
    assert (here / "build/kept").read_text() == "changed"
    assert (here / "build/other").read_text() == "ignored"


def test_rules_from_outside_of_the_folder_hold_on_both_sides(here, tmp_path, monkeypatch):
    """The user's own, the repository's own, and those of the folders above."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/git").mkdir(parents=True)
    (tmp_path / "config/git/ignore").write_text("*.user\n")
    (here / ".git/info").mkdir(exist_ok=True)
    (here / ".git/info/exclude").write_text("/src/own\n# a/comment\n")
    (here / ".gitignore").write_text("*.top\n/src/anchored\n/x\n!good.top\n")
    names = ("a.user", "own", "b.top", "anchored", "good.top", "x")
    for name in names:
        (here / "src" / name).write_text("")
    made = Workspace(here / "src").pack()
    assert sorted(made.left_out) == ["a.user", "anchored", "b.top", "own"]
    monkeypatch.delenv("XDG_CONFIG_HOME")
    there = Workspace.unpack(made, tmp_path / "there")
    for name in names:
        (there.folder / f"sub-{name}").write_text("")
    (there.folder / "anchored").write_text("")
    back = [change.name for change in there.diff().changes]
    assert back == ["sub-anchored", "sub-own", "sub-x"]


def test_a_comment_among_the_rules_is_no_rule(here):
    (here / ".git/info").mkdir(exist_ok=True)
    (here / ".git/info/exclude").write_text("# a/comment\n\n!\n")
    (here / "# a").mkdir()
    (here / "# a/comment").write_text("")
    assert Workspace(here).pack().left_out == ()


def test_a_folder_without_git_travels_whole_but_for_repositories_own_folders(tmp_path):
    folder = tmp_path / "plain"
    (folder / ".hg").mkdir(parents=True)
    (folder / ".gitignore").write_text("*.o\n")
    (folder / "a.o").write_text("travels")
    there = unpacked(folder, tmp_path)
    assert sorted(contents_of(there.folder)) == [".gitignore", "a.o"]
    (there.folder / "b.o").write_text("comes back")
    assert [change.name for change in there.diff().changes] == ["b.o"]


def test_the_agents_own_repository_and_control_files_stay_there(here, tmp_path):
    there = unpacked(here, tmp_path)
    start_repository(there.folder)
    (there.folder / "lib").mkdir()
    start_repository(there.folder / "lib")
    (there.folder / "lib/code").write_text("comes back")
    (there.folder / ".gemini").mkdir()
    (there.folder / ".gemini/settings.json").write_text("{}")
    patch = there.diff()
    assert [change.name for change in patch.changes] == ["lib/code"]
    assert {".gemini/settings.json", "lib/.git"} <= {*patch.left_out}
    whole = there.diff(control_files=True)
    with pytest.raises(WorkspaceError, match="control agents") as caught:
        Workspace(here).apply(whole)
    assert caught.value.paths == (".gemini/settings.json",)
    assert not (here / "lib").exists()
    Workspace(here).apply(whole, control_files=True)
    assert (here / ".gemini/settings.json").read_text() == "{}"


def test_an_excluded_name_stays_and_does_not_come_back(here, tmp_path):
    (here / "data").mkdir()
    (here / "data/big.bin").write_bytes(b"1")
    there = unpacked(here, tmp_path, exclude=["data", "*.tmp"])
    assert not (there.folder / "data").exists()
    for name in ("data", "x"):
        (there.folder / name).mkdir()
        (there.folder / name / "new.tmp").write_text("")
    (there.folder / "data/big.bin").write_bytes(b"2")
    assert [change.name for change in there.diff().changes] == ["x"]


def test_a_conflict_is_named_can_be_skipped_and_merged_by_hand(here, tmp_path):
    there = unpacked(here, tmp_path)
    for name in ("README", "src/main.py"):
        (there.folder / name).write_text("theirs\n")
    (here / "README").write_text("mine\n")
    patch = there.diff()
    with pytest.raises(WorkspaceConflict, match="README; nothing was written") as caught:
        Workspace(here).apply(patch)
    assert (here / "src/main.py").read_text() == "one\ntwo\n"
    patch.extract(tmp_path / "theirs", caught.value.paths)
    assert contents_of(tmp_path / "theirs") == {"README": ("file", 0o644, b"theirs\n")}
    assert "bytes" in Workspace(here).render(patch)
    done = Workspace(here).apply(patch, skip=caught.value.paths)
    assert [change.name for change in done.changes] == ["src/main.py"]
    assert (here / "README").read_text() == "mine\n"


@pytest.mark.parametrize("mine", ["file", "link", "folder with a file"])
def test_something_in_the_way_of_a_new_file_is_a_conflict(here, tmp_path, mine):
    there = unpacked(here, tmp_path)
    (there.folder / "new").mkdir()
    (there.folder / "new/deep").write_text("theirs")
    match mine:
        case "file":
            (here / "new").write_text("mine")
        case "link":
            (here / "new").symlink_to("src")
        case _:
            (here / "new/deep").mkdir(parents=True)
            (here / "new/deep/mine").write_text("mine")
    before = contents_of(here)
    with pytest.raises(WorkspaceConflict):
        Workspace(here).apply(there.diff())
    assert contents_of(here) == before


def test_a_folder_that_becomes_a_file_keeps_what_only_the_origin_has(here, tmp_path):
    (here / ".gitignore").write_text("*.o\n")
    (here / "src/main.o").write_text("ignored")
    there = unpacked(here, tmp_path)
    (there.folder / "src/main.py").unlink()
    (there.folder / "src").rmdir()
    gone = there.diff()
    (there.folder / "src").write_text("a file now")
    with pytest.raises(WorkspaceConflict, match="changed on both sides: src"):
        Workspace(here).apply(there.diff())
    Workspace(here).apply(gone)
    assert [one.name for one in (here / "src").iterdir()] == ["main.o"]


def test_a_private_file_stays_private(here, tmp_path):
    (here / "README").chmod(0o600)
    there = unpacked(here, tmp_path)
    (there.folder / "README").write_text("changed")
    (there.folder / "README").chmod(0o755)
    Workspace(here).apply(there.diff())
    assert (here / "README").stat().st_mode & 0o777 == 0o700


def test_checking_writes_nothing(here, tmp_path):
    there = unpacked(here, tmp_path)
    (there.folder / "src/main.py").write_text("one\n2")
    (there.folder / "README").rename(there.folder / "READ.md")
    before, patch = contents_of(here), there.diff()
    assert len(Workspace(here).check(patch).changes) == 3
    text = Workspace(here).render(patch)
    assert "renamed README to READ.md\n" in text
    assert "-two\n+2\n\\ No newline at end of file\n" in text
    assert contents_of(here) == before


def test_a_folder_that_exists_here_is_compared_with_itself(here):
    opened = Workspace.open(here)
    (here / "README").write_text("changed")
    assert [(one.what, one.name) for one in opened.diff().changes] == [("changed", "README")]
    with pytest.raises(InvalidOptions, match="no pack to compare"):
        Workspace(here).diff()
    with pytest.raises(InvalidOptions, match="is no folder"):
        Workspace(here / "nowhere")


def test_a_folder_that_is_not_empty_is_left_alone(here, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there/mine").write_text("")
    with pytest.raises(WorkspaceConflict, match="is not empty"):
        unpacked(here, tmp_path)
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["mine"]


def test_a_folder_above_the_limit_names_its_largest_files(here, tmp_path):
    (here / "large").write_bytes(b"x" * 2000)
    with pytest.raises(WorkspaceTooLarge, match=r"large \(2,000\)") as caught:
        Workspace(here).pack(max_bytes=1000)
    assert caught.value.paths[0] == "large"
    there = unpacked(here, tmp_path)
    os.truncate(there.folder / "README", 10**12)
    with pytest.raises(WorkspaceTooLarge, match="README"):
        there.diff()


def test_an_empty_folder_has_no_bytes(here, tmp_path):
    """What a file system says that a folder takes, 4,096 bytes on many, does not travel."""
    for number in range(20):
        (here / f"empty-{number}").mkdir()
    pack = Workspace(here).pack(max_bytes=2000)
    there = Workspace.unpack(pack, tmp_path / "there", max_bytes=2000)
    (there.folder / "another").mkdir()
    assert [one.name for one in there.diff(max_bytes=2000).changes] == ["another"]


def test_pipes_and_sockets_stay_and_are_told(here):
    os.mkfifo(here / "pipe")
    assert Workspace(here).pack().left_out == ("pipe",)


def test_files_of_a_submodule_are_refused_or_travel(here, tmp_path):
    module = here / "lib"
    module.mkdir()
    start_repository(module)
    (module / "code").write_text("1")
    (module / ".gitignore").write_text("*.o")
    (module / "x.o").write_text("")
    with pytest.raises(WorkspaceError, match=r"submodules.*lib") as caught:
        Workspace(here).pack()
    assert caught.value.paths == ("lib",)
    assert "lib" not in contents_of(
        Workspace.unpack(Workspace(here).pack(exclude=["lib"]), tmp_path / "x").folder
    )
    there = unpacked(here, tmp_path, submodules=True)
    assert sorted(contents_of(there.folder / "lib")) == [".gitignore", "code"]
    (there.folder / "lib/code").write_text("2")
    Workspace(here).apply(there.diff())
    assert (module / "code").read_text() == "2"


def test_a_submodule_that_is_not_checked_out_is_told(here):
    git(here, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
    with pytest.raises(WorkspaceError, match="lib"):
        Workspace(here).pack()
    with pytest.raises(WorkspaceError, match="lib is not checked out"):
        Workspace(here).pack(submodules=True)


def test_a_pointer_in_the_place_of_a_large_file_is_told(here, tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
    (here / "large.bin").write_text(pointer)
    with pytest.raises(WorkspaceError, match=r"Git LFS.*large\.bin"):
        Workspace(here).pack()
    there = unpacked(here, tmp_path, lfs_pointers=True)
    assert (there.folder / "large.bin").read_text() == pointer


def test_a_linked_worktree_and_a_split_or_sha256_index_are_read(here, tmp_path):
    (here / ".gitignore").write_text("build\n")
    (here / "build").write_text("tracked")
    git(here, "add", "--force", "--all")
    git(here, "update-index", "--split-index")
    git(here, "commit", "--quiet", "--message=first")
    git(here, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    newer = tmp_path / "newer"
    subprocess.run(["git", "init", "--quiet", "--object-format=sha256", newer], check=True)
    (newer / ".gitignore").write_text("build\n")
    (newer / "build").write_text("tracked")
    git(newer, "add", "--force", "--all")
    for folder in (here, tmp_path / "tree", newer):
        there = Workspace.unpack(Workspace(folder).pack(), tmp_path / f"from-{folder.name}")
        assert (there.folder / "build").read_text() == "tracked", folder


def git(folder: Path, *words: str) -> None:
    """As somebody who works there."""
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
