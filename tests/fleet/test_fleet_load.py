"""The short form of `python -m load.fleet`: outcomes, never times; and the page that it writes."""

import pytest
from benchmarks.figures import Figure
from databases import open_place
from load.fleet.crowd import Size, crowd
from load.fleet.machines import postgres_in
from load.fleet.page import PAGE, filled, rendered
from load.fleet.parts import Stage, percentile
from load.fleet.plan import PARTS
from load.fleet.saturation import carry
from load.fleet.streaming import stream
from load.fleet.submitting import submit

AGENT = """#!/bin/sh
[ "$1" = --version ] && echo 0.61.0 && exit
echo '{"type":"init","session_id":"load","model":"stand-in"}'
number=0
while [ $number -lt $LOAD_EVENTS ]; do
    said="$number $(date +%s%N) word"
    echo '{"type":"message","role":"assistant","delta":true,"content":"'$said'"}'
    number=$((number + 1))
done
echo '{"type":"result","status":"success","stats":{}}'
"""


@pytest.fixture(scope="module")
def stage():
    with open_place() as place, postgres_in(place) as postgres:
        program = place / "agent"
        program.write_text(AGENT)
        program.chmod(0o755)
        yield Stage(place, postgres, program, None)


async def test_all_events_of_jobs_on_two_workers_are_received_in_order(stage):
    found = await stream(stage, jobs=4, events=10, pause_ms=0)
    assert (found.received.in_order, found.received.failures) == (40, 0)
    assert len(found.received.latencies) == 40
    assert min(found.used.workers, found.memory_mb, found.connections) > 0


async def test_all_jobs_of_each_way_to_submit_are_queued(stage):
    assert (await submit(stage, jobs=20)).queued == 60


async def test_all_events_that_are_offered_to_a_database_are_carried(stage):
    found = await carry(stage, runs=4, rate=200, seconds=0.3)
    assert found.received.in_order == found.events > 0
    assert 0 < found.rows <= found.events + 4
    assert found.data_bytes > 0


async def test_a_crowd_of_rows_is_taken_from_as_from_a_real_one(stage):
    found = await crowd(stage, Size(running=60, queued=300, done=20))
    assert all(milliseconds >= 0 for milliseconds in found.milliseconds.values())


def test_percentiles_are_values_that_were_measured():
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile(list(range(1, 101)), 99) == 99


def test_the_page_has_a_place_for_each_part_and_keeps_what_was_not_measured():
    text = PAGE.read_text()
    for part in PARTS:
        assert f"<!-- measured: {part} -->" in text
    changed = filled(text, {"submit": [Figure("1,000 jobs", 0.5, "s", at_most=2)]})
    assert "| 1,000 jobs | 0.5 s | ≤ 2 |" in changed
    assert changed.count("<!-- end -->") == text.count("<!-- end -->")


def test_what_was_measured_several_times_has_a_column_for_each():
    figures = [Figure("small: a", 1), Figure("… b", 2), Figure("large: a", 3), Figure("… b", 4)]
    assert rendered(figures).splitlines()[0] == "|  | small | large |"
    assert rendered(figures).splitlines()[-1] == "| b | 2 | 4 |"
