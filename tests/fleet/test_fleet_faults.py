"""The short form of `python -m chaos.fleet`; and a judge that sees."""

import pytest
from chaos import fleet
from chaos.fleet_judge import Row, Told, violations

from geminorum import Done, Error, Init, TextDelta

WHOLE = "w0 w1 "
CALM = [Init(), TextDelta("w0 "), TextDelta("w1 "), Done(status="success")]
START = {"what": "start", "resumed": None}


def test_no_job_is_lost_or_done_twice_and_nothing_is_left(monkeypatch):
    """With fewer jobs and machines than in the long form: each start of a worker takes its time."""
    monkeypatch.setattr(fleet, "JOBS", 6)
    monkeypatch.setattr(fleet, "WRONG_CLOCKS", (3600.0, -3600.0))
    found, _ = fleet.judged(range(1))
    assert found == {0: []}


class Info:
    def __init__(self, status: str) -> None:
        self.status = status


def numbered(*attempts):
    return [
        ((attempt, number), event)
        for attempt, events in enumerate(attempts, 1)
        for number, event in enumerate(events, 1)
    ]


def told(**changes) -> Told:
    calm = {
        "whole": WHOLE,
        "live": numbered(CALM),
        "later": numbered(CALM),
        "info": Info("success"),
        "status": "success",
        "text": WHOLE,
        "attempts": [Row(1, "success", 0)],
        "diary": [START, {"what": "finish"}],
    }
    events = changes.pop("events", None)
    if events is not None:
        calm |= {"live": events, "later": events}
    return Told(**(calm | changes))


def test_a_calm_job_and_one_that_was_taken_over_violate_nothing():
    assert violations(told()) == []
    events = numbered([Init(), TextDelta("w0 ")], [Error("", "TAKEOVER", recoverable=True), *CALM])
    rows = [Row(1, "lost", 1), Row(2, "success", 0)]
    diary = [START, {"what": "start", "resumed": "5e55"}, {"what": "finish"}]
    assert violations(told(events=events, attempts=rows, diary=diary)) == []


BAD = {
    "an event is missing": told(events=numbered(CALM)[:1] + numbered(CALM)[2:]),
    "an event comes twice": told(events=[*numbered(CALM)[:2], *numbered(CALM)[1:]]),
    "no Done": told(events=numbered(CALM[:-1])),
    "two Done events": told(events=numbered([*CALM, CALM[-1]])),
    "live and later differ": told(live=numbered(CALM)[:-1]),
    "another status": told(info=Info("error")),
    "an error": told(status="error", info=Info("error")),
    "a text with holes": told(text="w0 "),
    "words of nobody": told(events=numbered([Init(), TextDelta("w7 "), *CALM[1:]])),
    "two successes": told(attempts=[Row(1, "success", 0), Row(2, "success", 0)]),
    "an attempt without an end": told(attempts=[Row(1, None, 0), Row(2, "success", 0)]),
    "two agents at once": told(diary=[START, {"what": "overlap"}, {"what": "finish"}]),
    "more agents than attempts": told(diary=[START, START, {"what": "finish"}]),
    "a success without work": told(diary=[START]),
    "a prompt that was sent again": told(
        attempts=[Row(1, "lost", 2), Row(2, "success", 0)],
        diary=[START, START, {"what": "finish"}],
        events=numbered([Init()], CALM),
    ),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_a_violation_is_seen(bad):
    assert violations(bad)
