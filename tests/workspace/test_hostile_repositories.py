"""A repository may come from anybody: what it says never makes other files travel."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from geminorum.errors import InvalidOptions, WorkspaceError
from geminorum.workspace import Workspace, git, pack
from geminorum.workspace.sources import git_source, without_password
from owners import is_alive, wait_until


def start_repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--template=", folder], check=True)
    return folder


@pytest.fixture
def here(tmp_path):
    """With a neighbour whose files are none of its business."""
    (start_repository(tmp_path / "secrets") / "key").write_text("S3CRET")
    folder = start_repository(tmp_path / "here")
    (folder / "a").write_text("1")
    return folder


def _is_leaked(made) -> bool:
    return b"S3CRET" in gzip.decompress(made.data)


def test_an_index_that_names_a_neighbour_as_a_submodule_does_not_pack_it(here):
    link = f"160000,{'1' * 40},xx/secrets"
    add = ["git", "update-index", "--add", "--cacheinfo", link]
    subprocess.run(add, cwd=here, check=True)
    index = (here / ".git/index").read_bytes()[:-20].replace(b"xx/secrets", b"../secrets")
    (here / ".git/index").write_bytes(index + hashlib.sha1(index).digest())
    listed = subprocess.run(["git", "ls-files"], cwd=here, check=True, capture_output=True)
    assert b"../secrets" in listed.stdout
    assert not _is_leaked(Workspace(here).pack(submodules=True))


def test_a_link_in_the_place_of_a_submodule_is_not_followed(here):
    link = f"160000,{'1' * 40},lib"
    subprocess.run(["git", "update-index", "--add", "--cacheinfo", link], cwd=here, check=True)
    (here / "lib").symlink_to("../secrets")
    with pytest.raises(WorkspaceError, match=r"not checked out|lead out"):
        Workspace(here).pack(submodules=True)


def test_rules_that_are_a_link_do_not_travel(here, tmp_path):
    (here / ".git/info").mkdir(exist_ok=True)
    (here / ".git/info/exclude").symlink_to(tmp_path / "secrets/key")
    with pytest.raises(WorkspaceError, match="would travel"):
        Workspace(here).pack()


def test_an_ignore_file_above_that_is_a_link_does_not_travel(here, tmp_path):
    """Git does not follow it, either."""
    (here / "sub").mkdir()
    (here / "sub/b").write_text("")
    (here / ".gitignore").symlink_to(tmp_path / "secrets/key")
    assert not _is_leaked(Workspace(here / "sub").pack())


def test_a_huge_file_in_the_place_of_a_repository_is_not_read(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / ".git").touch()
    os.truncate(folder / ".git", 10**13)
    assert Workspace(folder).pack().base().tree == {}


def test_a_huge_index_is_told_and_not_copied(here):
    (here / ".git/index").touch()
    os.truncate(here / ".git/index", 10**13)
    with pytest.raises(WorkspaceError, match=r"index cannot be read.*has more than"):
        Workspace(here).pack()


def test_a_huge_configuration_is_not_read(here):
    subprocess.run(["git", "add", "a"], cwd=here, check=True)
    os.truncate(here / ".git/config", 10**13)
    assert [*Workspace(here).pack().base().tree] == ["a"]


def test_rules_above_that_match_in_billions_of_ways_are_read_at_once(here):
    patterns = ["**/" * 40 + "one", "**/a/" * 10 + "two", "a/" * 3000 + "kept", "**/" * 3000]
    (here / ".gitignore").write_text("\n".join([*patterns, "**/a/**/a/**/!(x"]))
    (here / "a").unlink()
    deep = here / "/".join("a" * 20)
    deep.mkdir(parents=True)
    for name in ("one", "two", "kept"):
        (deep / name).touch()
    made = Workspace(deep).pack()
    assert ([*made.base().tree], [*made.left_out]) == (["kept"], ["one", "two"])


def test_wildcards_in_rules_above_hold(here):
    """As git would: the pattern names a place, and the folder is on the way to it."""
    (here / ".gitignore").write_text("*/build\na/**/gen\n**/x/y\n/a/*.log\n/b/\n!/a/keep.log\n")
    (here / "a").unlink()
    for name in ("build", "x/gen", "x/y", "x.log", "keep.log", "kept", "b/kept"):
        path = here / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    ask = ["git", "ls-files", "--others", "--exclude-standard"]
    told = subprocess.run(ask, cwd=here / "a", check=True, capture_output=True, text=True)
    assert sorted(Workspace(here / "a").pack().base().tree) == told.stdout.split()


def test_rules_hold_in_repositories_that_the_agent_made(here, tmp_path):
    (here / ".gitignore").write_text("*.o\n")
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    lib = start_repository(there.folder / "lib")
    (lib / ".gitignore").write_text("build\n")
    for name in ("x.o", "build", "code"):
        (lib / name).write_text("")
    patch = there.diff()
    assert [change.name for change in patch.changes] == ["lib/.gitignore", "lib/code"]
    assert {"lib/x.o", "lib/build"} <= {*patch.left_out}


def test_a_folder_with_submodules_is_compared_with_itself(here):
    lib = start_repository(here / "lib")
    (lib / ".gitignore").write_text("*.o\n")
    (lib / "x.o").write_text("")
    (lib / "code").write_text("")
    link = f"160000,{'1' * 40},not-checked-out"
    subprocess.run(["git", "update-index", "--add", "--cacheinfo", link], cwd=here, check=True)
    opened = Workspace.open(here)
    assert opened.diff().changes == []
    (lib / "code").write_text("changed")
    assert [change.name for change in opened.diff().changes] == ["lib/code"]


def test_another_systems_repository_in_the_folder_travels_without_its_own_files(tmp_path):
    (tmp_path / "here/lib/.hg").mkdir(parents=True)
    (tmp_path / "here/lib/code").write_text("")
    made = Workspace(tmp_path / "here").pack(submodules=True)
    assert [*made.base().tree] == ["lib/code"]


@pytest.mark.parametrize(
    "source",
    [
        "git+https://ada:S3CRET@127.0.0.1:1/x",
        "git+http://ada:S3CRET@127.0.0.1/x",
        "git+http://S3CRET@127.0.0.1/x",
        "git+https://S3CRET@127.0.0.1/x@..",
        "git+ssh://git:S3CRET@127.0.0.1/x",
        "git+https://S3CRET@127.0.0.1:1/x",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(source):
    with pytest.raises(InvalidOptions) as caught:
        pack(source)
    assert "S3CRET" not in str(caught.value)
    assert "S3CRET" not in without_password(source)


@pytest.mark.parametrize("ref", ["feature/#12", "größe", "refs/pull/1/head", "v1+2", "a_b-c.d"])
def test_every_name_that_git_allows_is_a_ref(ref):
    assert git_source(f"git+https://host/path@{ref}").ref == ref


@pytest.mark.parametrize("ref", ["-x", "+a:b", "a b", "a~1", "a^", "a:b", "*", "a[b]", ".", "a\nb"])
def test_what_is_more_than_a_name_is_no_ref(ref):
    with pytest.raises(InvalidOptions):
        git_source(f"git+https://host/path@{ref}")


@pytest.mark.parametrize(
    ("said", "reason", "hint"),
    [
        (
            "fatal: detected dubious ownership in repository at '/x'\nTo add an exception\n"
            "fatal: Could not read from remote repository.\n\nPlease make sure you …",
            "dubious ownership",
            "clone of your own",
        ),
        ("fatal: couldn't find remote ref abc1234", "abc1234", "ls-remote"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "h", "netrc"),
        ("", "did not say why", ""),
    ],
)
def test_what_git_says_comes_with_what_to_do(said, reason, hint):
    error = git._failed("fetch", said)
    assert reason in error.message
    assert hint in (error.hint or "")


def test_what_git_started_ends_with_it(tmp_path, monkeypatch):
    """As ssh would stay, waiting for a server that never answers."""
    started = tmp_path / "pid"
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {started}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setattr(git, "TIMEOUT_SECONDS", 1.0)
    with pytest.raises(WorkspaceError, match="took longer"):
        git.run_git("fetch")
    # Where nothing buries orphans, the dead stay listed: they do not run.
    wait_until(lambda: not is_alive(int(started.read_text())))
