"""The short form of `python -m load.web`: outcomes, never times; and the page that it writes."""

import pytest
from load.web.__main__ import PAGE
from load.web.browser import open_browser
from load.web.live_runs import watch_runs
from load.web.parts import Stage
from load.web.plan import PARTS
from load.web.questions import ask_and_answer
from load.web.session_list import paint_sessions

AGENT = """#!/bin/sh
[ "$1" = --version ] && echo 0.61.0 && exit
echo '{"type":"init","session_id":"load","model":"stand-in"}'
number=0
while [ $number -lt $LOAD_EVENTS ]; do
    said="$number $(date +%s%N) word"
    echo '{"type":"message","role":"assistant","delta":true,"content":"'$said'"}'
    number=$((number + 1))
    sleep 0.05
done
echo '{"type":"result","status":"success","stats":{}}'
"""


@pytest.fixture
async def stage(tmp_path):
    program = tmp_path / "agent"
    program.write_text(AGENT)
    program.chmod(0o755)
    async with open_browser() as browser:
        yield Stage(tmp_path, program, browser)


async def test_everything_that_is_measured_is_shown_whole(stage):
    watched = await watch_runs(stage, runs=2, seconds=0.5)
    assert (watched.kept, watched.succeeded) == (watched.events, 2)
    assert watched.events > 0
    assert watched.delays
    answered = await ask_and_answer(stage, questions=2)
    assert (answered.allowed, len(answered.to_page), len(answered.to_tool)) == (2, 2, 2)
    painted = await paint_sessions(stage, sessions=30)
    assert painted.rows > 0
    assert min(painted.first, painted.again) > 0


def test_the_page_has_a_place_for_each_part():
    text = PAGE.read_text()
    assert [part for part in PARTS if f"<!-- measured: {part} -->" not in text] == []
