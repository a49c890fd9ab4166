"""Descriptors run out in the middle of a run: it ends as it should, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminorum import Acp
from stand_in import StandIn

SCENE = Path(__file__).parents[1] / "without_descriptors.py"
INIT = {"type": "init", "session_id": "s", "model": "m"}
HELLO = {"type": "message", "role": "assistant", "content": "Once", "delta": True}


SCENES = {
    "cli": ("opening", "timeout", "greedy"),
    "acp": ("timeout", "greedy", "opening"),
    "pool": ("greedy", "opening", "timeout"),
    "api": ("timeout", "greedy"),
}
"""One after the other in one process for each transport; each is the first in one of them, where
nothing is loaded yet."""


@pytest.fixture(scope="module")
def ends() -> dict[str, dict[str, Any]]:
    """How they ended, by transport."""
    return {}


@pytest.fixture
def play(
    stand_in: StandIn, stand_in_acp: Callable[..., Acp], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """How runs through a transport ended in a process whose descriptors ran out meanwhile."""

    def played(kind: str, *scenes: str) -> dict[str, Any]:
        headless = stand_in(INIT, HELLO, hang=True, grandchildren=("tool",))
        transport = headless if kind == "cli" else stand_in_acp("deaf")
        (tmp_path / "temporary").mkdir()
        done = subprocess.run(
            [sys.executable, str(SCENE), kind, str(transport.executable), *scenes],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return json.loads(done.stdout)

    return played


@pytest.fixture
def end(kind: str, ends: dict[str, dict[str, Any]], play: Any) -> dict[str, Any]:
    if kind not in ends:
        ends[kind] = play(kind, *SCENES[kind])
    return ends[kind]


@pytest.mark.parametrize("kind", SCENES, scope="module")
def test_a_timeout_ends_a_run_without_descriptors(end):
    assert_ended_by_its_time_limit(end["timeout"])


@pytest.mark.parametrize("kind", SCENES, scope="module")
def test_a_run_ends_where_others_take_every_descriptor_that_it_gives_back(end):
    """Its home may stay behind, for the next run to sweep; its agent does not."""
    assert_ended_by_its_time_limit({**end["greedy"], "homes": []})


@pytest.mark.parametrize("kind", ["cli", "acp", "pool"], scope="module")
def test_a_run_that_cannot_be_opened_without_descriptors_says_so(end):
    """However many are left, and whatever is opened with them."""
    *outcomes, last = end["opening"]
    assert last == "open"
    assert set(outcomes) == {"SetupError"}


@pytest.mark.parametrize("kind", ["cli", "acp"])
def test_a_run_without_descriptors_ends_where_no_keeper_ends_it(play, kind):
    assert_ended_by_its_time_limit(play(kind, "without keepers")["without keepers"])


def assert_ended_by_its_time_limit(end: dict[str, Any]) -> None:
    assert end["error"] == "RunTimeout"
    assert end["text"].startswith("Once")
    assert end["done"] == 1
    assert end["alive"] == end["left"] == end["homes"] == []
