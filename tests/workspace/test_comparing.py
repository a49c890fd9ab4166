"""Files are compared line by line, as `diff` does; also those that make it slow."""

from __future__ import annotations

import random
import re
from difflib import unified_diff
from pathlib import Path

import pytest

from geminorum.workspace import Workspace
from geminorum.workspace.comparing import Comparison

HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")


def applied(hunks: list[str], old: list[str]) -> list[str]:
    """What `patch` would make of the old lines; it checks the numbers of each hunk."""
    new: list[str] = []
    place = 0
    for text in hunks:
        if found := HEAD.fullmatch(text):
            start, length, begin, _ = (1 if one is None else int(one) for one in found.groups())
            skipped = old[place : start - 1 if length else start]
            new += skipped
            place += len(skipped)
            assert len(new) == (begin - 1 if found[4] != "0" else begin)
            continue
        if text[0] in " -":
            assert old[place] == text[1:]
            place += 1
        if text[0] in " +":
            new.append(text[1:])
    return new + old[place:]


def edited(lines: list[str], dice: random.Random) -> list[str]:
    lines = list(lines)
    for _ in range(dice.randrange(6)):
        place = dice.randrange(len(lines) + 1)
        lines[place : place + dice.randrange(4)] = [f"{dice.randrange(9)}\n"] * dice.randrange(4)
    return lines


@pytest.mark.parametrize("budget", [0, 300, 10_000_000])
def test_hunks_lead_from_the_old_lines_to_the_new_ones(budget):
    for seed in range(200):
        dice = random.Random(seed)
        old = [f"{dice.randrange(9)}\n" for _ in range(dice.randrange(40))]
        new = edited(old, dice)
        hunks = [*Comparison(budget).hunks(old, new)]
        assert applied(hunks, old) == new, seed
        assert bool(hunks) == (old != new)


def test_hunks_look_as_usual():
    old = [f"{number}\n" for number in range(50)]
    new = [*old[:10], "ten\n", *old[11:40], *old[45:], "end\n"]
    usual = [*unified_diff(old, new)][2:]
    assert [*Comparison().hunks(old, new)] == usual
    for one, other in (([], ["a\n"]), (["a\n"], []), (["a\n"], ["b\n"])):
        assert [*Comparison().hunks(one, other)] == [*unified_diff(one, other)][2:]


def test_lines_that_repeat_do_not_take_hours(tmp_path):
    """Each of a hundred lines is one in a hundred: just not often enough to be passed over."""
    home = tmp_path / "home"
    home.mkdir()
    lines = [f"{number % 100}" for number in range(100_000)]
    (home / "a").write_text("\n".join(lines))
    (home / "short").write_text("one\ntwo\n")
    there = Workspace.unpack(Workspace(home).pack(), tmp_path / "there")
    random.Random(1).shuffle(lines)
    (there.folder / "a").write_text("\n".join(lines))
    (there.folder / "short").write_text("one\n2\n")
    shown = Workspace(home).render(there.diff())
    assert shown.count("\n-") + shown.count("\n+") > 190_000
    assert shown.endswith(" one\n-two\n+2\n")


def test_a_huge_old_file_is_not_read_to_show_a_patch(tmp_path):
    home = Path(tmp_path / "home")
    home.mkdir()
    (home / "a").write_text("old\n")
    there = Workspace.unpack(Workspace(home).pack(), tmp_path / "there")
    (there.folder / "a").write_text("new\n")
    patch = there.diff()
    with (home / "a").open("r+") as file:
        file.truncate(10**13)
    assert Workspace(home).render(patch) == "changed a\n  4 bytes to 4 bytes\n"
