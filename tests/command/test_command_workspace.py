"""`geminorum workspace`: there and back again, as somebody types it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from command_line import geminorum_command
from geminorum.workspace import Workspace


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("one\n")
    return folder


def typed(tmp_path, *words, code=0, stdin=b""):
    done = geminorum_command("workspace", *words, cwd=tmp_path, stdin=stdin)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def patch(project, tmp_path):
    """What an agent did elsewhere."""
    typed(tmp_path, "pack", "project", "-o", "p.pack")
    typed(tmp_path, "unpack", "p.pack", "job")
    (tmp_path / "job/a.txt").write_text("two\n")
    (tmp_path / "job/c\udcff.txt").write_text("new\n")
    typed(tmp_path, "diff", "p.pack", "job", "-o", "p.patch")
    return tmp_path / "p.patch"


def test_a_folder_goes_there_and_its_changes_come_back(project, patch, tmp_path):
    shown = typed(tmp_path, "apply", "p.patch", "project", "--show").stdout
    assert "-one\n+two\n" in shown
    checked = json.loads(typed(tmp_path, "apply", "p.patch", "project", "--check", "--json").stdout)
    names = [{"what": "changed", "name": "a.txt"}, {"what": "added", "name": "c\\xff.txt"}]
    assert checked == {"applied": False, "changes": names, "already": 0}
    assert (project / "a.txt").read_text() == "one\n"
    out = typed(tmp_path, "apply", "p.patch", "project").stdout
    assert out.splitlines()[-1] == "2 changes applied"
    assert (project / "a.txt").read_text() == "two\n"
    again = typed(tmp_path, "apply", "p.patch", "project").stdout
    assert again == "0 changes applied, 2 there already\n"


def test_a_conflict_says_what_to_type(project, patch, tmp_path):
    (project / "a.txt").write_text("mine\n")
    told = typed(tmp_path, "apply", "p.patch", "project", code=1)
    assert "changed on both sides: a.txt; nothing was written" in told.stderr
    assert "--skip a.txt" in told.stderr
    assert "--conflicts-to FOLDER" in told.stderr
    told = typed(tmp_path, "apply", "p.patch", "project", "--conflicts-to", "theirs", code=1)
    assert [one.name for one in (tmp_path / "theirs").iterdir()] == ["a.txt"]
    typed(tmp_path, "apply", "p.patch", "project", "--skip", "a.txt")
    assert (project / "a.txt").read_text() == "mine\n"


def _after(told: str, words: str) -> list[str]:
    """What a shell makes of the words that follow in a hint."""
    return shlex.split(told.partition(words)[2].partition("\n")[0].partition("; or")[0])


def test_what_a_hint_says_can_be_typed(project, tmp_path):
    """Whatever names files have: they may be another's, and people paste hints into their shell."""
    (project / "-o x; rm y").symlink_to("/etc/passwd")
    told = typed(tmp_path, "pack", "project", "-o", "p.pack", code=1).stderr
    (exclude,) = _after(told, "leave them out: ")
    typed(tmp_path, "pack", "project", "-o", "my pack", exclude)
    told = typed(tmp_path, "unpack", "my pack", "my job").stderr
    words = _after(told, "geminorum workspace ")
    assert words == ["diff", "my pack", "my job", "--output", "FILE"]
    typed(tmp_path, *words)


def test_a_pack_passes_through_a_pipe(project, tmp_path):
    data = Workspace(project).pack().data
    told = typed(tmp_path, "unpack", "-", "job", stdin=data).stderr
    assert "keep the pack" in told
    assert "diff -" not in told
    assert (tmp_path / "job/a.txt").read_text() == "one\n"
    facts = json.loads(typed(tmp_path, "pack", "project", "-o", "x", "--json").stdout)
    assert facts == {"file": "x", "bytes": len(data), "left_out": []}
    assert (tmp_path / "x").read_bytes() == data


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("pack", "project"), 2, "--output"),
        (("pack", "project", "-o", "there"), 2, "there exists; remove it, or name another"),
        (("pack", "nowhere", "-o", "x"), 2, "is no folder"),
        (("pack", "project", "-o", "x", "--max-bytes", "3"), 4, "--max-bytes N"),
        (("pack", "git+ext::sh", "-o", "x"), 2, "git+https://host/path@ref"),
        (("unpack", "there", "job"), 1, "damaged"),
        (("unpack", "nowhere", "job"), 74, "nowhere"),
        (("apply", "there", "project"), 1, "damaged"),
    ],
)
def test_a_mistake_says_what_to_do(project, tmp_path, words, code, told):
    (tmp_path / "there").write_text("something else")
    done = typed(tmp_path, *words, code=code)
    assert told in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["project", "there"]


def test_a_pack_in_the_place_of_a_patch_is_told(project, tmp_path):
    typed(tmp_path, "pack", "project", "-o", "p.pack")
    told = typed(tmp_path, "apply", "p.pack", "project", code=1).stderr
    assert "name the patch, which `diff` made" in told


def test_a_pack_that_the_next_one_would_include_is_told(project):
    told = typed(project, "pack", "-o", "p.pack").stderr
    assert "p.pack is in the folder, and the next pack has it, too: move it out" in told
    assert "is in the folder" not in typed(project, "pack", "-o", "../p.pack").stderr


def test_a_name_is_one_line_for_people_and_exact_for_programs(project, tmp_path):
    typed(tmp_path, "pack", "project", "-o", "p.pack")
    typed(tmp_path, "unpack", "p.pack", "job")
    (tmp_path / "job/x\nadded    safe\x1b").write_text("")
    out = typed(tmp_path, "diff", "p.pack", "job", "-o", "p.patch").stdout
    assert out.splitlines()[0].endswith(r"x\nadded    safe\u001b")
    facts = typed(tmp_path, "apply", "p.patch", "project", "--check", "--json").stdout
    assert json.loads(facts)["changes"] == [{"what": "added", "name": "x\nadded    safe\x1b"}]


def test_submodules_links_and_control_files_name_their_flags(project, tmp_path):
    (project / "lib/.git").mkdir(parents=True)
    told = typed(tmp_path, "pack", "project", "-o", "x", code=1).stderr
    assert "--submodules" in told
    assert "--exclude lib" in told
    (project / "lib/.git").rmdir()
    (project / "l").symlink_to("/etc")
    assert "--exclude l" in typed(tmp_path, "pack", "project", "-o", "x", code=1).stderr
    (project / "l").unlink()
    typed(tmp_path, "pack", "project", "-o", "x")
    typed(tmp_path, "unpack", "x", "job")
    (tmp_path / "job/.gemini").mkdir()
    (tmp_path / "job/.gemini/settings.json").write_text("{}")
    assert (
        "left out: .gemini/settings.json" in typed(tmp_path, "diff", "x", "job", "-o", "y").stderr
    )
    typed(tmp_path, "diff", "x", "job", "-o", "z", "--control-files")
    assert "--control-files" in typed(tmp_path, "apply", "z", "project", code=1).stderr
    typed(tmp_path, "apply", "z", "project", "--control-files")
    assert Path(project / ".gemini/settings.json").exists()


def test_recovering_says_whether_there_was_anything(project, tmp_path):
    assert typed(tmp_path, "recover", "project").stdout == "nothing to undo\n"
