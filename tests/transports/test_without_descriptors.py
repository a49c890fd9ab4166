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


@pytest.fixture
def play(
    stand_in: StandIn, stand_in_acp: Callable[..., Acp], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """How a run through a transport ended in a process whose descriptors ran out meanwhile."""

    def played(kind: str, *how: str) -> dict[str, Any]:
        headless = stand_in(INIT, HELLO, hang=True, grandchildren=("tool",))
        transport = headless if kind == "cli" else stand_in_acp("deaf")
        (tmp_path / "temporary").mkdir()
        done = subprocess.run(
            [sys.executable, str(SCENE), kind, str(transport.executable), *how],
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


@pytest.mark.parametrize("kind", ["cli", "acp", "pool", "api"])
def test_a_timeout_ends_a_run_without_descriptors(play, kind):
    assert_ended_by_its_time_limit(play(kind))


@pytest.mark.parametrize("kind", ["cli", "acp"])
def test_a_run_without_descriptors_ends_where_no_keeper_ends_it(play, kind):
    assert_ended_by_its_time_limit(play(kind, "without keepers"))


@pytest.mark.parametrize("kind", ["cli", "acp", "pool", "api"])
def test_a_run_ends_where_others_take_every_descriptor_that_it_gives_back(play, kind):
    """Its home may stay behind, for the next run to sweep; its agent does not."""
    assert_ended_by_its_time_limit({**play(kind, "greedy"), "homes": []})


@pytest.mark.parametrize("kind", ["cli", "acp", "pool"])
def test_a_run_that_cannot_be_opened_without_descriptors_says_so(play, kind):
    """However many are left, and whatever is opened with them."""
    *outcomes, last = play(kind, "opening")
    assert last == "open"
    assert set(outcomes) == {"SetupError"}


def assert_ended_by_its_time_limit(end: dict[str, Any]) -> None:
    assert end["error"] == "RunTimeout"
    assert end["text"].startswith("Once")
    assert end["done"] == 1
    assert end["alive"] == end["left"] == end["homes"] == []
