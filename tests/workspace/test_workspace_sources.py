"""A workspace comes from a folder, a pack, or a git repository at a ref."""

from __future__ import annotations

import subprocess

import pytest

from geminorum.errors import InvalidOptions, WorkspaceError
from geminorum.workspace import Pack, Workspace, pack
from geminorum.workspace.sources import GitSource, git_source


@pytest.fixture
def remote(tmp_path):
    """A repository with a branch, a tag, and something that would run."""
    folder = tmp_path / "remote"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(folder))
    (folder / "a.txt").write_text("one\r\n")
    (folder / ".gitattributes").write_text("* text=auto eol=lf filter=x\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=one")
    git(folder, "tag", "v1")
    (folder / "a.txt").write_text("two\r\n")
    git(folder, "commit", "--quiet", "--all", "--message=two")
    (folder / "a.txt").write_text("not committed")
    return folder


def git(folder, *words: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "core.autocrlf=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_a_repository_is_packed_at_its_ref(remote, tmp_path):
    commit = git(remote, "rev-parse", "v1")
    for ref, line in (("", "two"), ("@main", "two"), ("@v1", "one"), (f"@{commit}", "one")):
        there = Workspace.open(f"git+file://{remote}{ref}", tmp_path / f"there{ref}")
        assert (there.folder / "a.txt").read_text().split() == [line], ref
        assert not (there.folder / ".git").exists()
    (there.folder / "b.txt").write_text("new")
    assert [change.name for change in there.diff().changes] == ["b.txt"]


def test_what_is_open_here_may_be_a_pack(remote, tmp_path):
    made = pack(remote)
    assert isinstance(made, Pack)
    assert (Workspace.open(made, tmp_path / "x").folder / "a.txt").read_text() == "not committed"
    with pytest.raises(InvalidOptions, match="needs a folder"):
        Workspace.open(made)


@pytest.mark.parametrize(
    "source",
    [
        "git+ext::sh -c touch% x",
        "git+http://host/path",
        "git+git://host/path",
        "git+fd::7",
        "git+--upload-pack=touch x",
        "git+https://host/path@--upload-pack=x",
        "git+https://host/path@a..b",
        "git+https://host/path@+refs/heads/*:refs/heads/*",
        "git+https://host/path@",
        "git+ssh://-oProxyCommand=touch/path",
        "git+ssh://git@-oProxyCommand=touch/path",
        "git+ssh://-oProxyCommand=touch@host/path",
        "git+https://[::1/path",
        "git+file:///srv/a%00b",
        "git+file:///srv/a%0Ab",
        "git+https://host/path#fragment",
        "git+https://host",
        "git+",
    ],
)
def test_an_address_that_could_run_something_is_refused(source):
    with pytest.raises(InvalidOptions, match="is not valid"):
        git_source(source)


def test_an_address_may_have_a_user_and_a_ref():
    assert git_source("git+ssh://git@host/a/b.git@feature/x") == GitSource(
        "ssh://git@host/a/b.git", "feature/x"
    )
    assert git_source("git+https://host/a") == GitSource("https://host/a", "HEAD")
    assert git_source("git+file:/srv/a@v1") == GitSource("file:///srv/a", "v1")


def test_a_path_in_an_address_is_a_path_or_a_url(remote, tmp_path):
    odd = tmp_path / "100%25 my repository"
    remote.rename(odd)
    for address in (f"git+file://{odd}@v1", f"git+{odd.as_uri()}@v1", f"git+file:{odd}@v1"):
        assert "a.txt" in pack(address).base().tree


def test_a_repository_or_ref_that_is_not_there_is_told(remote, tmp_path):
    for source in (f"git+file://{remote}@nowhere", f"git+file://{tmp_path}/nowhere"):
        with pytest.raises(WorkspaceError, match="git fetch failed"):
            pack(source)


def test_a_machine_without_git_is_told_what_to_do(remote, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match="there is no git on PATH"):
        pack(remote)
    (tmp_path / "plain").mkdir()
    assert pack(tmp_path / "plain").base().tree == {}


def test_an_address_in_the_place_of_a_folder_says_what_to_write():
    for source in ("https://ada:S3CRET@host/path", "git@host:path"):
        with pytest.raises(InvalidOptions, match=r"git\+https://host/path@ref") as caught:
            pack(source)
        assert "S3CRET" not in str(caught.value)


def test_a_bare_repository_is_packed_by_its_address(remote, tmp_path):
    """Its own files would be packed: configuration, hooks, and everything compressed."""
    git(tmp_path, "clone", "--quiet", "--bare", str(remote), "bare 100%.git")
    with pytest.raises(WorkspaceError, match="is a bare git repository") as caught:
        pack(tmp_path / "bare 100%.git")
    address = (caught.value.hint or "").rpartition(" ")[2]
    assert [*pack(address).base().tree] == [".gitattributes", "a.txt"]
