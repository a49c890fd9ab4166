"""The fleet for synchronous code: the same names, the same events and results."""

import asyncio
import inspect

import pytest
from fleet_parts import new_database, worker_process

from geminorum import Init, Options, errors, fleet
from geminorum.fleet import sync

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}
FOR_THIS_MODULE_ONLY = {"database", "feed", "event_batches"}


@pytest.fixture(scope="module")
def url(server):
    return asyncio.run(new_database(server))


def public(kind):
    return {name for name in vars(kind) if not name.startswith("_")} - FOR_THIS_MODULE_ONLY


def parameters(function):
    return [(one.name, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", ["Fleet", "Job"])
def test_it_has_the_names_and_parameters_of_the_asynchronous_one(name):
    ours, theirs = getattr(sync, name), getattr(fleet, name)
    assert public(ours) == public(theirs)
    for method in public(ours):
        if callable(getattr(ours, method)):
            assert parameters(getattr(ours, method)) == parameters(getattr(theirs, method))


def test_a_job_is_submitted_followed_and_read(url, stand_in, tmp_path):
    program = str(stand_in(INIT, SAID, RESULT).executable)
    options = Options(home=tmp_path)
    with sync.Fleet(url) as fleet, worker_process(url, tmp_path, executable=program):
        job = fleet.submit("hello", options)
        events = list(job.events())
        assert (job.result().text, job.patch()) == ("Hello.", None)
        assert isinstance(events[0], Init)
        again = fleet.job(job.id)
        numbered = list(again.numbered_events())
        assert [event for _, event in numbered] == events
        assert list(again.numbered_events(numbered[0][0])) == numbered[1:]
        assert again.read_events() == numbered
        assert again.read_events(limit=2) == numbered[:2]
        assert again.read_events(numbered[1][0], limit=2) == numbered[2:4]
        assert again.read_events(numbered[-1][0]) == []
        assert [one.status for one in fleet.jobs(state="done")] == ["success"]


def test_whoever_stops_reading_leaves_nothing_behind(url):
    with sync.Fleet(url) as fleet:
        job, other = fleet.submit_many([fleet_request("hello"), fleet_request("bye")])
        assert other.read_events() == []  # It has not begun; this does not wait for it.
        job.cancel()
        events = job.events()
        next(events)
        events.close()
        assert job.info().status == "interrupted"
        with pytest.raises(errors.Interrupted):
            job.result()
        other.cancel()


def fleet_request(prompt):
    return fleet.JobRequest(prompt=prompt)


def test_outside_of_its_block_it_says_how_it_is_opened(url):
    with pytest.raises(errors.GeminorumError, match="`with` block"):
        sync.Fleet(url).jobs()


def test_limits_are_set_listed_and_removed(url):
    with sync.Fleet(url) as fleet:
        made = fleet.set_limit("concurrency", 3, tenant="acme")
        assert [limit.label for limit in fleet.limits()] == [made.label]
        assert fleet.remove_limit("concurrency", tenant="acme")
        assert fleet.limits() == []
