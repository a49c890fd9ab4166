"""A pack or a patch may come from anybody, and so may a repository: none of them does harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from geminorum.errors import InvalidPack, WorkspaceConflict, WorkspaceError, WorkspaceTooLarge
from geminorum.workspace import Pack, Patch, Workspace, beneath
from geminorum.workspace.names import leads_out, problem_with
from random_trees import contents_of

OLD = {"kind": "file", "digest": "", "size": 0, "executable": False, "target": ""}


def member(name: str, data: bytes = b"", **more) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.mode, info.size = 0o644, len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def archive(*members, kind: str = "pack", how=tarfile.GNU_FORMAT, **facts) -> bytes:
    """As geminorum writes one, but for the members, which are whatever a test wants."""
    rules = {"git": False, "ignore": "", "exclude": []} if kind == "pack" else {}
    header = {"geminorum": kind, "version": 1, "entries": len(members), **rules, **facts}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=how) as tar:
        for info, data in (member("workspace.json", json.dumps(header).encode()), *members):
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def _deep_header() -> bytes:
    info, data = member("workspace.json", b"[" * 100_000)
    return info.tobuf() + data + b"\0" * 2048


def patch_of(*members, before: dict[str, object]) -> Patch:
    return Patch(archive(*members, kind="patch", before=before))


def test_an_archive_made_by_hand_is_read():
    """Otherwise the tests below would pass for another reason."""
    tree = Pack(archive(member("files/a", b"1"), link("files/l", "a"))).base().tree
    assert {name: one.kind for name, one in tree.items()} == {"a": "file", "l": "link"}


@pytest.mark.parametrize(
    "members",
    [
        [member("files/../out")],
        [member("files//etc/passwd")],
        [member("/etc/passwd")],
        [member("files/a/./b")],
        [member("elsewhere/a")],
        [member("files/.git/hooks/post-checkout")],
        [member("files/sub/.GIT/config")],
        [member("files/.g\u200cit/config")],
        [member("files/git~1/config")],
        [member("files/.git. /config")],
        [member("files/.geminorum-apply/journal.json")],
        [member("files/" + "x" * 300)],
        [member("files/a"), member("files/a")],
        [member("files/a"), member("files/a/b")],
        [member("files/a/b"), member("files/a")],
        [link("files/d", "x"), member("files/d/b")],
        [member("files/h", type=tarfile.LNKTYPE, linkname="files/a")],
        [member("files/dev", type=tarfile.CHRTYPE)],
        [member("files/pipe", type=tarfile.FIFOTYPE)],
        [member("files/suid", mode=0o4755)],
        [member("files/open", mode=0o777)],
        [link("files/l", "/etc/passwd")],
        [link("files/l", "../out")],
        [link("files/l", ".git/hooks")],
        [link("files/l", "."), link("files/m", "l/..")],
        [link("files/a/b/l", "../../../out")],
        [link("files/l", "")],
    ],
    ids=lambda members: "+".join(info.name[:20] for info, _ in members),
)
def test_a_pack_that_could_write_elsewhere_writes_nothing(tmp_path, members):
    with pytest.raises(InvalidPack):
        Workspace.unpack(archive(*members), tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_entries_in_other_formats_of_tar_are_refused(tmp_path):
    for headers in ({"path": "files/../out"}, {"GNU.sparse.map": "0,1", "GNU.sparse.size": "9"}):
        data = archive(member("files/a", b"1", pax_headers=headers), how=tarfile.PAX_FORMAT)
        with pytest.raises(InvalidPack):
            Workspace.unpack(data, tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\3\4 a zip",
        gzip.compress(b""),
        gzip.compress(b"x" * 5000),
        archive(member("files/a"), entries=2),
        archive(member("files/a"), entries="one"),
        archive(version=2),
        archive(kind="patch", before={}),
        archive(git="yes"),
        gzip.compress(_deep_header()),
    ],
    ids=range(10),
)
def test_what_is_no_pack_is_told(tmp_path, data):
    with pytest.raises(InvalidPack):
        Workspace.unpack(data, tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_damage_anywhere_is_noticed_or_harmless(tmp_path):
    """200 flipped bytes and 50 cuts: an error of ours and no folder, or the same files."""
    rng = random.Random(5)
    files = [member(f"files/{n}", rng.randbytes(50)) for n in range(20)]
    good = archive(*files)
    tree = Pack(good).base().tree
    for turn in range(250):
        data = bytearray(good)
        place = rng.randrange(len(data))
        if turn < 200:
            data[place] ^= 1 << rng.randrange(8)
        else:
            del data[place:]
        try:
            assert Pack(bytes(data)).base().tree == tree, turn
        except WorkspaceError:
            continue


def test_a_bomb_ends_at_the_limit():
    with pytest.raises(WorkspaceTooLarge):
        Pack(archive(member("files/zeros", b"\0" * 2_000_000))).base(max_bytes=1_000_000)
    liar, _ = member("files/zeros")
    liar.size = 10**12
    raw = gzip.decompress(archive(member("files/a")))[:1024]
    with pytest.raises(WorkspaceTooLarge):
        Pack(gzip.compress(raw + liar.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)).base()


def test_a_flood_of_entries_or_of_padding_ends_at_the_limit(monkeypatch):
    monkeypatch.setattr("geminorum.workspace.archive.MAX_ENTRIES", 3)
    monkeypatch.setattr("geminorum.workspace.archive._MAX_HEADER_BYTES", 2000)
    with pytest.raises(WorkspaceTooLarge):
        Pack(archive(*(member(f"files/{n}") for n in range(4)))).base()
    padding = gzip.compress(gzip.decompress(archive(member("files/a"))) + b"\0" * 10**6)
    with pytest.raises(WorkspaceTooLarge):
        Pack(padding).base(max_bytes=1000)


def _peak_bytes(work) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(WorkspaceError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_endless_name_is_not_read_into_memory():
    """100 MB of a name are 100 kB when they are packed."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 100_000_000
    start = gzip.decompress(archive())[:1024]
    data = gzip.compress(start + info.tobuf(tarfile.GNU_FORMAT) + b"x" * info.size, 1)
    assert _peak_bytes(Pack(data).base) < 10_000_000


def test_a_header_of_many_small_things_is_not_read_into_memory(monkeypatch):
    """64 MB of empty lists are 60 kB when they are packed, and gigabytes when they are read."""
    monkeypatch.setattr("geminorum.workspace.archive.MAX_ENTRIES", 1000)
    lists = [[]] * 500_000
    data = archive(more=lists)
    assert _peak_bytes(Pack(data).base) < 10_000_000
    assert Pack(archive(more=lists[:1000])).base().tree == {}


@pytest.mark.parametrize("depth", [2000, 150])
def test_deep_folders_do_not_fill_the_memory(depth):
    """Each of 300 names would need two thousand folders above it."""
    names = [f"files/{n}{'/d' * (depth - 2)}/f" for n in range(300)]
    data = archive(*map(member, names))
    if depth < 200:
        assert len(Pack(data).base().tree) == 300
    else:
        assert _peak_bytes(Pack(data).base) < 10_000_000


def test_names_are_counted_too(monkeypatch):
    monkeypatch.setattr("geminorum.workspace.archive._MAX_NAMES_BYTES", 1000)
    with pytest.raises(WorkspaceTooLarge, match="entries"):
        Pack(archive(*(member(f"files/{n}{'/d' * 50}/f") for n in range(20)))).base()


def test_names_that_the_file_system_confuses_leave_nothing_behind(tmp_path, monkeypatch):
    """As on a Mac: `a` is there once `A` is."""
    seen: set[str] = set()
    real = beneath.create_file

    def refuse_twins(folder, name, *more):
        if name.casefold() in seen:
            raise FileExistsError(17, "File exists", name)
        seen.add(name.casefold())
        real(folder, name, *more)

    data = archive(member("files/A"), member("files/a"))
    with monkeypatch.context() as patched:
        patched.setattr(beneath, "create_file", refuse_twins)
        with pytest.raises(WorkspaceConflict, match="does not tell its name"):
            Workspace.unpack(data, tmp_path / "there")
    assert list(tmp_path.iterdir()) == []
    Workspace.unpack(data, tmp_path / "there")
    assert len(list((tmp_path / "there").iterdir())) == 2


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here"
    (folder / "sub").mkdir(parents=True)
    (folder / "empty").write_bytes(b"")
    (tmp_path / "outside").write_text("outside")
    return folder


HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
EMPTY = {**OLD, "digest": HASH}
SPLIT_REPOSITORY = ("a/HEAD", "a/commondir", "b/config", "b/objects/x", "b/refs/x")


@pytest.mark.parametrize(
    "patch",
    [
        patch_of(before={"../outside": EMPTY}),
        patch_of(before={"/etc/passwd": EMPTY}),
        patch_of(before={".git/config": EMPTY}),
        patch_of(before={"": EMPTY}),
        patch_of(before={"\ud800": EMPTY}),
        patch_of(member("files/x"), before={}),
        patch_of(before={"a": {**EMPTY, "kind": "device"}}),
        patch_of(before={"a": {**EMPTY, "kind": "\ud800"}}),
        patch_of(before={"a": "text"}),
        patch_of(before=["a"]),
        patch_of(link("files/l", "../outside"), before={"l": None}),
        patch_of(link("files/l", "sub/../../outside"), before={"l": None}),
        patch_of(link("files/.x", ".git/config"), before={".x": None}),
        patch_of(member("files/.gemini/settings.json"), before={".gemini/settings.json": None}),
        patch_of(member("files/sub/.AGENTS/x"), before={"sub/.AGENTS/x": None}),
        patch_of(
            *(member(f"files/bare/{one}") for one in ("HEAD", "config", "objects/x", "refs/x")),
            before={f"bare/{one}": None for one in ("HEAD", "config", "objects/x", "refs/x")},
        ),
        # The same in two folders: `commondir` says where the rest is.
        patch_of(
            *(member(f"files/{one}") for one in SPLIT_REPOSITORY),
            before=dict.fromkeys(SPLIT_REPOSITORY),
        ),
        patch_of(member("files/GEMINI~1/x"), before={"GEMINI~1/x": None}),
    ],
)
def test_a_patch_that_could_do_harm_writes_nothing(here, patch):
    before = contents_of(here.parent)
    with pytest.raises(WorkspaceError):
        Workspace(here).apply(patch)
    assert contents_of(here.parent) == before


def test_a_patch_cannot_send_a_link_of_the_origin_out_of_the_folder(here):
    (here / "l").symlink_to("sub/..")
    bad = patch_of(link("files/sub", "."), before={"sub": {**OLD, "kind": "folder"}})
    before = contents_of(here)
    with pytest.raises(InvalidPack, match="links"):
        Workspace(here).apply(bad)
    assert contents_of(here) == before


def test_a_patch_does_not_write_through_a_link_of_the_origin(here, tmp_path):
    (here / "out").symlink_to(tmp_path)
    for patch in (
        patch_of(member("files/out/new"), before={"out/new": None}),
        patch_of(member("files/out/outside", b"x"), before={"out/outside": EMPTY}),
    ):
        with pytest.raises(WorkspaceConflict):
            Workspace(here).apply(patch)
    assert (tmp_path / "outside").read_text() == "outside"
    assert not (tmp_path / "new").exists()


def test_a_link_that_leads_out_is_refused_when_packing(here, tmp_path):
    (here / "l").symlink_to("../outside")
    with pytest.raises(WorkspaceError, match=r"l → \.\./outside"):
        Workspace(here).pack()
    there = Workspace.unpack(Workspace(here).pack(exclude=["l"]), tmp_path / "there")
    (there.folder / "m").symlink_to("/etc/passwd")
    with pytest.raises(WorkspaceError, match="/etc/passwd") as caught:
        there.diff()
    assert "exclude" not in str(caught.value)  # `diff` has no such option.


def test_what_git_tracks_behind_a_link_is_not_read(here, tmp_path):
    """A repository can track `sub/outside` and have a link in the place of `sub`."""
    subprocess.run(["git", "init", "--quiet", here], check=True)
    (here / "sub/outside").write_text("inside")
    subprocess.run(["git", "add", "--all"], cwd=here, check=True)
    (here / "sub/outside").unlink()
    (here / "sub").rmdir()
    (here / "sub").symlink_to("../../")
    with pytest.raises(WorkspaceError, match="lead out"):
        Workspace(here).pack()
    (here / "sub").unlink()
    (here / "other").mkdir()
    (here / "other/outside").write_text("inside")
    (here / "sub").symlink_to("other")
    tree = Workspace(here).pack().base().tree
    assert {name: one.kind for name, one in tree.items()} == {
        "empty": "file",
        "other/outside": "file",
        "sub": "link",
    }


@pytest.mark.parametrize(
    ("target", "out"),
    [
        ("a", False),
        ("./a/../b", False),
        ("..", True),
        ("d/e/../../../x", True),
        ("loop", False),
        ("dot/..", True),
        ("up/x", True),
        ("absolute", True),
        (".GIT", True),
    ],
)
def test_a_link_is_followed_as_the_system_does(target, out):
    links = {"loop": "loop", "dot": ".", "up": "d/../..", "absolute": "/etc"}
    assert leads_out("l", target, links.get) is out


def test_an_ordinary_name_is_fine():
    for name in (".gitignore", "git", "a/.github/x", "..a", "a b", "C:", "\udcff", ".gemini/x"):
        assert problem_with(name) is None


@pytest.fixture
def trap(tmp_path):
    """A program that leaves a trace, and the trace."""
    program, trace = tmp_path / "trap", tmp_path / "trace"
    program.write_text(f"#!/bin/sh\ntouch '{trace}'\ncat\n")
    program.chmod(0o755)
    return program, trace


def test_a_hostile_repository_runs_nothing(here, tmp_path, trap, monkeypatch):
    """Its configuration, hooks, filters and remotes are not even read; nor are the user's."""
    program, trace = trap
    subprocess.run(["git", "init", "--quiet", here], check=True)
    subprocess.run(["git", "add", "--all"], cwd=here, check=True)
    config = f"""[core]
        fsmonitor = {program}
        hooksPath = {tmp_path}
        worktree = /
        excludesFile = {tmp_path}/all
        sshCommand = {program}
    [filter "x"]
        clean = {program}
        smudge = {program}
        process = {program}
    [diff "x"]
        textconv = {program}
    [extensions]
        partialClone = evil
    [remote "evil"]
        url = ext::{program}
        promisor = true
        uploadpack = {program}
    """
    (here / ".git/config").write_text(config)
    (tmp_path / "user").write_text(config)
    (tmp_path / "all").write_text("*")
    (here / ".gitattributes").write_text("* filter=x diff=x\n")
    for hook in ("post-checkout", "post-index-change"):
        (tmp_path / hook).symlink_to(program)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "user"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    made = Workspace(here).pack()
    there = Workspace.unpack(made, tmp_path / "there")
    assert sorted(contents_of(there.folder)) == [".gitattributes", "empty", "sub"]
    subprocess.run(["git", "init", "--quiet", there.folder], check=True)
    (there.folder / ".git/config").write_text(config)
    (there.folder / "empty").write_text("changed")
    Workspace(here).apply(there.diff())
    assert (here / "empty").read_text() == "changed"
    assert not trace.exists()
    # The trap is armed: whoever runs git there as usual steps into it.
    environment = {**os.environ, "GIT_WORK_TREE": str(here)}
    subprocess.run(["git", "status"], cwd=here, env=environment, capture_output=True, check=False)
    assert trace.exists()


def test_an_ignore_file_that_is_a_pipe_does_not_wait_forever(here, tmp_path, monkeypatch):
    monkeypatch.setattr("geminorum.workspace.git.TIMEOUT_SECONDS", 0.5)
    subprocess.run(["git", "init", "--quiet", here], check=True)
    there = Workspace.unpack(Workspace(here).pack(), tmp_path / "there")
    os.mkfifo(there.folder / ".gitignore")
    with pytest.raises(WorkspaceError, match="git took longer"):
        there.diff()


def test_names_in_errors_can_be_printed(here):
    Path(os.fsdecode(os.fsencode(here) + b"/\xff")).symlink_to("/etc")
    with pytest.raises(WorkspaceError) as caught:
        Workspace(here).pack()
    str(caught.value).encode()
