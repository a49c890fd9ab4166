"""Workers that die, hang, leave or lose their database: no job is lost, none is done twice."""

import asyncio
import os
import signal
import uuid
from functools import partial

import psutil
import psycopg
import pytest
from fleet_parts import cut_connections, until, worker_process, working

from geminorum import Done, Error, Init, Options, Text, errors
from geminorum.fleet.workers.attempt import CONTINUE
from geminorum.fleet.workers.session_store import AttemptStore

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}


@pytest.fixture
def lost_worker(url, stand_in, tmp_path):
    """A worker on another machine, whose agent says hello and then works forever."""
    hanging = stand_in(INIT, SAID, hang=True)
    home = tmp_path / "lost"
    with worker_process(url, home, executable=str(hanging.executable), name="lost") as process:
        yield process


async def is_on_the_bill(job) -> bool:
    return (await job.info()).usd is not None


async def has_begun(job) -> None:
    async for event in job.events():
        if isinstance(event, Init):
            return


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_a_job_of_a_killed_worker_is_finished_by_another(
    url, fleet, lost_worker, stand_in, tmp_path
):
    job = await fleet.submit("hello", Options(home=tmp_path))
    await has_begun(job)
    agent = stand_in.call["pid"]
    lost_worker.kill()
    healthy = stand_in(INIT, SAID, RESULT)
    async with working(url, {"cli": healthy}, name="healthy"):
        events = [event async for event in job.events()]
        result = await job.result()
    assert (result.status, (await job.info()).attempt) == ("success", 2)
    assert [event.status for event in events if isinstance(event, Done)] == ["success"]
    assert not is_running(agent)


async def test_a_stopped_worker_loses_its_agent_its_job_and_its_voice(
    url, fleet, lost_worker, stand_in, tmp_path
):
    """Its keeper ends the agent before another worker begins; what it says later is not heard."""
    job = await fleet.submit("hello", Options(home=tmp_path))
    await has_begun(job)
    agent = stand_in.call["pid"]
    lost_worker.send_signal(signal.SIGSTOP)
    healthy = stand_in(INIT, SAID, RESULT)
    async with working(url, {"cli": healthy}, name="healthy"):
        await job.result()
        assert not is_running(agent)
        before = [pair async for pair in job.numbered_events()]
        lost_worker.send_signal(signal.SIGCONT)

        async def is_back():
            async with await psycopg.AsyncConnection.connect(url) as connection:
                query = "SELECT count(*) FROM geminorum_workers WHERE name = 'lost' AND NOT is_lost"
                return (await (await connection.execute(query)).fetchone())[0]

        await until(is_back)
    assert [pair async for pair in job.numbered_events()] == before
    assert (await job.info()).status == "success"


async def test_a_job_whose_worker_is_lost_each_time_ends_with_an_error(
    url, fleet, lost_worker, stand_in, tmp_path
):
    job = await fleet.submit("hello", Options(home=tmp_path), max_attempts=1)
    await has_begun(job)
    lost_worker.kill()
    async with working(url, {"api": stand_in(INIT)}, name="sweeper"):
        events = [event async for event in job.events()]
        with pytest.raises(errors.Incomplete, match="lost in each of 1"):
            await job.result()
    assert [event.status for event in events if isinstance(event, Done)] == ["error"]
    assert "".join(event.text for event in events if isinstance(event, Text)) in ("", "Hello.")


async def test_a_cancelled_job_whose_worker_is_lost_is_not_tried_again(
    url, fleet, lost_worker, stand_in, tmp_path
):
    job = await fleet.submit("hello", Options(home=tmp_path))
    await has_begun(job)
    lost_worker.send_signal(signal.SIGSTOP)
    await job.cancel()
    async with working(url, {"cli": stand_in(INIT, RESULT)}, name="healthy"):
        with pytest.raises(errors.Interrupted):
            await job.result()
    assert (await job.info()).attempt == 1


async def test_a_worker_that_leaves_hands_its_jobs_back(url, fleet, stand_in, tmp_path):
    job = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, SAID, hang=True)}, name="leaving"):
        await has_begun(job)
    assert (await job.info()).state == "queued"
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, name="staying"):
        events = [event async for event in job.events()]
    assert [event.code for event in events if isinstance(event, Error)] == ["HANDED_BACK"]
    assert (await job.info()).attempt == 2


async def test_cut_connections_lose_no_event(url, fleet, stand_in, tmp_path):
    lines = [{**SAID, "content": f"{number} "} for number in range(60)]
    job = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, *lines, RESULT, chunk=200, delay=0.02)}):
        await has_begun(job)
        for _ in range(5):
            await cut_connections(url)
            await asyncio.sleep(0.2)
        events = [event async for event in job.events()]
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text == "".join(line["content"] for line in lines)
    assert (await job.info()).attempt == 1


async def test_a_session_is_taken_from_a_lost_attempt_and_never_from_one_that_runs(
    url, fleet, stand_in, tmp_path
):
    """A job that resumes the session of one that runs waits, however few attempts it may have."""
    first = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, SAID, hang=True)}):
        await has_begun(first)
        lease = _store(url, first.id, 1)
        assert await asyncio.to_thread(lease.acquire, "5e551011", "it", 600.0) == "it"
        options = Options(home=tmp_path, resume="5e551011")
        second = await fleet.submit("go on", options, max_attempts=1)

        async def has_tried_twice():
            return (await second.info()).attempt > 1

        await until(has_tried_twice)
        assert await asyncio.to_thread(lease.acquire, "5e551011", "it", 600.0) == "it"
        await first.cancel()
        # Its lease has 600 s left, but nobody to hold it.
        await asyncio.wait_for(has_begun(second), 60)
        await second.cancel()
        events = [event async for event in second.events()]
    waits = [event for event in events if isinstance(event, Error) and event.code == "SESSION_BUSY"]
    assert f"job {first.id}, attempt 1" in waits[0].message


def _store(url: str, job: str, attempt: int) -> AttemptStore:
    return AttemptStore(url, "default", uuid.UUID(job), attempt, lambda session: None)


@pytest.mark.gemini_cli
async def test_the_next_attempt_continues_the_session_of_the_last(
    url, fleet, fake_gemini, real_transport, tmp_path
):
    """The prompt is sent once; the second request has what was done, and asks to go on."""
    program = str(real_transport.executable)
    options = Options(model="gemini-2.5-flash")
    env = {**fake_gemini.env, "GOOGLE_GEMINI_BASE_URL": fake_gemini.url}
    jobs = {}
    for via in ("cli", "acp"):
        fake_gemini.when(f"Look around in {via}").call("list_directory", dir_path=".").hang()
        jobs[via] = await fleet.submit(f"Look around in {via}", options, via=via)
    with worker_process(url, tmp_path / "first", executable=program, env=env, name="first") as lost:

        async def have_checkpoints():
            async with await psycopg.AsyncConnection.connect(url) as connection:
                query = "SELECT count(*) FROM geminorum_attempts WHERE checkpoints > 0"
                return (await (await connection.execute(query)).fetchone())[0] == len(jobs)

        await until(have_checkpoints)
        for job in jobs.values():
            await until(partial(is_on_the_bill, job))
        os.kill(lost.pid, signal.SIGKILL)
    fake_gemini.when(CONTINUE).say("Done looking.").always()
    with worker_process(url, tmp_path / "second", executable=program, env=env, name="second"):
        for job in jobs.values():
            result = await asyncio.wait_for(job.result(), 60)
            assert result.text.endswith("Done looking.")
            # What the dead attempt has cost stays on the bill.
            assert (await job.info()).usd > result.cost.usd > 0
    for via in jobs:
        request = next(one for one in reversed(fake_gemini.requests) if via_of(one) == via)
        asked = [str(content) for content in request.contents]
        assert sum("Look around" in content for content in asked) == 1
        assert sum("functionCall" in content for content in asked) == 1
        assert CONTINUE in asked[-1]


def via_of(request) -> str | None:
    """Of the job whose request it is."""
    told = str(request.contents)
    return next((via for via in ("cli", "acp") if f"Look around in {via}" in told), None)
