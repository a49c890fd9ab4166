"""Jobs of the fleet: a worker runs them, with the events and results of local runs."""

import asyncio
import json
from dataclasses import dataclass

import psycopg
import pytest
from fleet_parts import until, working

from geminorum import Api, Done, Error, Init, Options, Policy, Text, ask, errors, run
from geminorum.fleet import Fleet, JobRequest, schema
from geminorum.fleet.database import Database
from geminorum.transports.process.agent_lease import AGENT_LEASE

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}


def plain(events):
    """Without what differs from run to run."""
    return [(type(event).__name__, getattr(event, "text", None)) for event in events]


async def test_a_job_has_the_events_and_the_result_of_a_local_run(url, fleet, stand_in, tmp_path):
    cli = stand_in(INIT, SAID, RESULT)
    options = Options(home=tmp_path)
    async with run("hello", options, via=cli) as live:
        local = [event async for event in live]
    job = await fleet.submit("hello", options)
    async with working(url, {"cli": cli}):
        events = [event async for event in job.events()]
        result = await job.result()
    assert plain(events) == plain(local)
    assert isinstance(events[0], Init)
    assert (result.text, result.status, result.session_id) == (
        live.result.text,
        "success",
        "5e551011",
    )


async def test_events_of_a_job_that_is_over_are_read_from_the_first_or_behind_any(
    url, fleet, stand_in, tmp_path
):
    job = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        await job.result()
    again = await fleet.job(job.id)
    numbered = [pair async for pair in again.numbered_events()]
    assert isinstance(numbered[-1][1], Done)
    cursor = numbered[1][0]
    assert [pair async for pair in again.numbered_events(cursor)] == numbered[2:]


async def test_a_job_that_fails_raises_what_a_local_run_raises(url, fleet, stand_in, tmp_path):
    cli = stand_in(stderr="Please set an Auth method", exit=41)
    options = Options(home=tmp_path)
    with pytest.raises(errors.GeminorumError) as local:
        await ask("hello", options, via=cli)
    job = await fleet.submit("hello", options, max_attempts=1)
    async with working(url, {"cli": cli}):
        with pytest.raises(type(local.value)) as there:
            await job.result()
    assert there.value.message == local.value.message


async def test_a_typed_answer_comes_back_as_its_type(url, fleet, fake_gemini):
    @dataclass
    class Answer:
        number: int

    fake_gemini.say('{"number": 7}')
    options = Options(output_schema=Answer, env={"GOOGLE_GEMINI_BASE_URL": fake_gemini.url})
    job = await fleet.submit("A number?", options, via="api")
    async with working(url, {"api": Api(api_key="any-key-will-do")}):
        assert (await job.result()).data == Answer(7)


async def test_a_job_that_waits_is_cancelled_at_once(fleet):
    job = await fleet.submit("hello")
    await job.cancel()
    events = [event async for event in job.events()]
    assert [type(event) for event in events] == [Error, Done]
    assert events[-1].status == "interrupted"
    with pytest.raises(errors.Interrupted):
        await job.result()


async def test_a_job_that_runs_is_cancelled_and_its_agent_ends(url, fleet, stand_in, tmp_path):
    cli = stand_in(INIT, SAID, hang=True)
    job = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": cli}):
        seen = []
        async for event in job.events():
            seen.append(event)
            if isinstance(event, Init):
                await job.cancel()
        assert seen[-1].status == "interrupted"
        with pytest.raises(errors.Interrupted):
            await job.result()
    assert (await job.info()).attempt == 1


async def test_the_same_key_is_the_same_job(fleet):
    first = await fleet.submit("hello", idempotency_key="nightly-17")
    again = await fleet.submit("hello", idempotency_key="nightly-17")
    other = await fleet.submit("hello", idempotency_key="nightly-17", tenant="acme")
    assert again.id == first.id != other.id
    with pytest.raises(errors.InvalidOptions, match="not the same"):
        await fleet.submit("goodbye", idempotency_key="nightly-17")


async def test_the_same_key_at_the_same_time_is_the_same_job(fleet):
    jobs = await asyncio.gather(*(fleet.submit("hi", idempotency_key="key") for _ in range(10)))
    assert len({job.id for job in jobs}) == 1


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"options": Options(cwd="here")}, "absolute path"),
        ({"options": Options(resume="latest")}, "name the session"),
        ({"options": Options(store="sqlite:///x.db")}, "its own database"),
        ({"options": Options(env={"GEMINI_API_KEY": "AIza-secret-key"})}, "keeps no keys"),
        ({"via": "pool"}, "cannot travel"),
        ({"tenant": ""}, "printable"),
        ({"max_attempts": 0}, "1 to 100"),
    ],
)
async def test_what_cannot_travel_is_refused_before_it_is_submitted(fleet, wanted, why):
    with pytest.raises(errors.GeminorumError) as refused:
        await fleet.submit("hello", **wanted)
    assert why in str(refused.value)
    assert await fleet.jobs() == []


async def test_options_arrive_as_they_were(url, fleet, stand_in, tmp_path):
    cli = stand_in(INIT, RESULT)
    policy = Policy(file_write="allow", shell_execute="deny")
    options = Options(home=tmp_path, policy=policy, model="flash", max_turns=7, timeout=60.0)
    job = await fleet.submit("hello", options)
    async with working(url, {"cli": cli}):
        await job.result()
    assert "flash" in " ".join(stand_in.call["argv"])


async def test_nothing_is_submitted_if_one_of_many_cannot_be(fleet):
    requests = [JobRequest(prompt="one"), JobRequest(prompt="two", via="smoke signals")]
    with pytest.raises(errors.InvalidOptions):
        await fleet.submit_many(requests)
    assert await fleet.jobs() == []


async def test_every_event_of_many_jobs_arrives_in_order(url, fleet, stand_in, tmp_path):
    lines = [{**SAID, "content": f"{number} "} for number in range(100)]
    cli = stand_in(INIT, *lines, RESULT)
    requests = [
        JobRequest(prompt="hi", options=Options(home=tmp_path), tenant=f"tenant-{number % 3}")
        for number in range(12)
    ]
    jobs = await fleet.submit_many(requests)

    async def text_of(job):
        return "".join([event.text async for event in job.events() if isinstance(event, Text)])

    async with working(url, {"cli": cli}, slots=6), working(url, {"cli": cli}, slots=6):
        texts = await asyncio.gather(*map(text_of, jobs))
    assert texts == ["".join(line["content"] for line in lines)] * 12


async def test_a_failure_that_may_pass_is_tried_again_and_there_is_one_done(
    url, fleet, stand_in, tmp_path
):
    cli = stand_in(INIT, stderr="[API Error: 503 UNAVAILABLE]", exit=1)
    job = await fleet.submit("hello", Options(home=tmp_path), max_attempts=2)
    async with working(url, {"cli": cli}):

        async def failed_once():
            return (await job.info()).attempt == 1 and (await job.info()).state == "queued"

        await until(failed_once)
        healthy = tmp_path / "healthy"
        healthy.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in (INIT, RESULT)))
        stand_in.change(exit=0, stderr="", stdout=str(healthy))
        events = [event async for event in job.events()]
    assert [event.status for event in events if isinstance(event, Done)] == ["success"]
    troubles = [event for event in events if isinstance(event, Error)]
    assert all(trouble.recoverable for trouble in troubles)
    assert "attempt 2 begins" in troubles[-1].message
    assert (await job.info()).attempt == 2


async def test_a_tenant_with_many_jobs_does_not_keep_another_waiting(
    url, fleet, stand_in, tmp_path
):
    options = Options(home=tmp_path)
    many = [JobRequest(prompt="hi", options=options, tenant="many") for _ in range(6)]
    await fleet.submit_many(many)
    late = await fleet.submit("hi", options, tenant="few")
    async with working(url, {"cli": stand_in(INIT, RESULT, delay=0.1)}, slots=2):
        await late.result()
        waiting = await fleet.jobs(tenant="many", state="queued")
    assert waiting


async def test_a_worker_takes_only_what_it_can_run(url, fleet, stand_in, tmp_path):
    theirs = await fleet.submit("hello", via="acp")
    ours = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, RESULT)}):
        await ours.result()
    assert (await theirs.info()).state == "queued"


async def test_a_job_that_cannot_be_read_ends_with_an_error(url, fleet, stand_in):
    job = await fleet.submit("hello")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("UPDATE geminorum_jobs SET spec = %s", (b'{"prompt": 3}',))
    async with working(url, {"cli": stand_in(INIT, RESULT)}):
        with pytest.raises(errors.InvalidOptions, match="cannot be read"):
            await job.result()


async def test_no_fleet_in_the_database_says_what_to_type(server):
    with pytest.raises(errors.FleetError, match="geminorum fleet init"):
        async with Fleet(server):
            pass


async def test_tables_of_a_newer_geminorum_are_refused(url):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("UPDATE geminorum_fleet SET version = 99")
    with pytest.raises(errors.Unsupported, match="pip install --upgrade"):
        async with Fleet(url):
            pass
    async with Database(url) as database:
        with pytest.raises(errors.Unsupported):
            await schema.initialise(database)


async def test_a_wrong_password_is_said_and_not_shown(server):
    user, _, place = server.removeprefix("postgresql://").partition("@")
    wrong = f"postgresql://{user.partition(':')[0]}:hunter2hunter2@{place}"
    with pytest.raises(errors.FleetUnavailable, match="password authentication failed") as refused:
        async with Fleet(wrong):
            pass
    assert "hunter2" not in str(refused.value)


async def test_no_database_is_a_clear_error(tmp_path):
    with pytest.raises(errors.FleetUnavailable, match="GEMINORUM_DB"):
        async with Fleet(f"postgresql://me@/db?host={tmp_path}"):
            pass


async def test_a_job_that_nobody_submitted_is_unknown(fleet):
    with pytest.raises(errors.UnknownJob):
        await fleet.job("00000000-0000-0000-0000-000000000000")
    with pytest.raises(errors.InvalidOptions):
        await fleet.job("seventeen")


async def test_after_its_worker_a_process_can_run_agents_as_before(url, stand_in, tmp_path):
    """The lease of a worker's agents ends with the worker."""
    cli = stand_in(INIT, SAID, RESULT)
    async with Fleet(url) as fleet, working(url, {"cli": cli}):
        await (await fleet.submit("hello", Options(home=tmp_path))).result()
    assert not AGENT_LEASE.is_set
    assert (await ask("hello", Options(home=tmp_path), via=cli)).ok
