"""The short form of `make chaos`: every fault once, with a fixed seed; and a judge that sees."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from chaos import invariants
from chaos.__main__ import judge
from chaos.nursery import Nursery
from chaos.plan import EVERY_KIND, FAULTS, Moment, Plan, Story, drawn, plan_of

STORY = Story(words=3, pace=0.0)
WHOLE = "w0 w1 w2 "


CHOSEN = {"kill api": "api", "clock of the agent": "acp"}
"""Both need the real part. For the other faults the stand-in is as good, and much quicker."""


def a_trial_of(fault: str) -> Plan:
    """The transports take turns, so that each of them has its share of the faults."""
    kinds = FAULTS[fault].transports
    number = [*FAULTS].index(fault)
    wanted = CHOSEN.get(fault) or kinds[number % len(kinds)]
    agent = "real" if fault in CHOSEN or wanted == "api" else "stand-in"
    plans = (drawn(seed, fault) for seed in itertools.count(15))
    return next(plan for plan in plans if (plan.transport, plan.agent) == (wanted, agent))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with closing(Nursery()) as nursery:
        yield nursery


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_left_after(fault, nursery):
    """The calm trial starts its processes as `make chaos` does; for the others they are forked."""
    way = judge if fault == "none" else nursery.judge
    assert way(a_trial_of(fault).seed, fault).violations == []


def test_the_short_form_hurts_every_transport_in_several_ways():
    tried = Counter(a_trial_of(fault).transport for fault in FAULTS)
    assert {*tried} == {*EVERY_KIND}
    assert min(tried.values()) >= 3


def test_a_seed_says_it_all():
    """Every fault comes before any comes again, and a plan survives its way into a file."""
    plans = [drawn(seed) for seed in range(200)]
    assert [plan.fault for plan in plans[: len(FAULTS)]] == list(FAULTS)
    assert plans == [drawn(seed) for seed in range(200)]
    assert plans == [plan_of(json.loads(json.dumps(plan.as_dict()))) for plan in plans]
    for plan in plans:
        assert plan.transport in FAULTS[plan.fault].transports
    assert {plan.agent for plan in plans} == {"stand-in", "real"}
    assert {plan.scope for plan in plans} == {"asyncio", "anyio"}


# ---- what the judge sees


def telling(**changes: Any) -> dict[str, Any]:
    calm = {
        "number": 2,
        "status": "success",
        "text": WHOLE,
        "dones": 1,
        "ends_with_done": True,
        "ending": "end",
        "error": "",
        "raised": "",
        "told_at_fault": 0,
        "errors": [],
    }
    return calm | changes


def report(**changes: Any) -> dict[str, Any]:
    calm = {"tellings": [telling()], "next": telling(number=3), "unhandled": [], "left": []}
    return calm | changes


def seen(found: dict[str, Any], told: int = 0, **plan: Any) -> list[str]:
    calm = {"transport": "cli", "agent": "stand-in", "scope": "asyncio", "fault": "none"}
    of = Plan(seed=0, story=STORY, moment=Moment("ticks", 1), **{**calm, **plan})
    return invariants.violations(of, found, {2: told})


def test_a_calm_trial_violates_nothing():
    assert seen(report(), told=3) == []


BAD = {
    "a task is left": report(left=["tasks: one"]),
    "nobody handled an error": report(unhandled=["one"]),
    "no next run": report(next=None),
    "the next run fails": report(next=telling(status="error")),
    "the next run raises": report(next=telling(status="not begun", raised="X()")),
    "an error of another's": report(tellings=[telling(error="Traceback", ending="raised")]),
    "no Done": report(tellings=[telling(dones=0, ends_with_done=False)]),
    "two Done events": report(tellings=[telling(dones=2)]),
    "something after the Done": report(tellings=[telling(ends_with_done=False)]),
    "still running": report(tellings=[telling(status="running", ending="left")]),
    "words that nobody said": report(tellings=[telling(text="w0 w1 w1 ", status="error")]),
    "words in another order": report(tellings=[telling(text="w1 w0 ", status="error")]),
    "a success without the end": report(tellings=[telling(text="w0 w1 ")]),
    "lost words": report(tellings=[telling(text="w0 ", status="error", told_at_fault=2)]),
    "a run that vanished": report(tellings=[telling(status="not begun", ending="not begun")]),
}


@pytest.mark.parametrize("found", BAD.values(), ids=list(BAD))
def test_a_violation_is_seen(found):
    assert len(seen(found)) == 1


def test_what_the_agent_wrote_until_its_end_counts_where_the_process_is_the_runs_own():
    cut = report(tellings=[telling(text="w0 ", status="interrupted", ending="left", dones=0)])
    assert seen(cut, told=3) == ["1 words arrived of 3 that the agent had written"]
    assert seen(cut, told=3, transport="pool") == []
    assert seen(cut, told=1) == []


@pytest.mark.parametrize("line", ["Traceback (most …", "Task was destroyed but it is pending!"])
def test_noise_on_stderr_is_seen(line):
    assert len(invariants.noise(f"error  stopped\n{line}\n")) == 1
    assert invariants.noise("error  stopped\nwarning  the disk is full\n") == []


def test_a_python_that_was_interrupted_before_it_found_us_is_not_our_noise():
    text = "Traceback (most recent call last):\nKeyboardInterrupt\n"
    assert invariants.noise(text)
    assert invariants.noise(f"Could not import runpy module\n{text}") == []
