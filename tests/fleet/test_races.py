"""Things that happen at the same moment, and rows that nobody expects: no job is lost or stuck."""

import asyncio
import json
import os
import signal
import uuid
from datetime import timedelta

import psycopg
import pytest
from fleet_parts import until, worker_process, working
from lossy_proxy import lossy_proxy, silent_proxy

from geminorum import Done, Error, Init, Options, Text, errors
from geminorum.fleet.database import WORKER_IDLE_SECONDS, Database
from geminorum.fleet.travel import ended_by
from geminorum.fleet.workers import claims
from geminorum.fleet.workers.cancellation import Cancellations
from geminorum.workspace import Workspace

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}
SESSION = "5e551011-0000-4000-8000-000000000000"


@pytest.fixture
async def database(url):
    async with Database(url, idle_seconds=WORKER_IDLE_SECONDS) as database:
        yield database


async def register(database, name="hung"):
    async with database.transaction() as connection:
        return await claims.register(connection, name, 4, {})


async def take(database, worker, via="cli"):
    async with database.transaction() as connection:
        claim = await claims.take(connection, worker, "hung", [via], None)
    assert claim is not None
    return claim


async def execute(url, statement, *values):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []


async def somebody_waits_for_a_lock(url):
    query = """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    return (await execute(url, query))[0][0]


async def has_begun(job) -> None:
    async for event in job.events():
        if isinstance(event, Init):
            return


async def test_a_worker_that_hangs_in_the_midst_of_a_transaction_loses_its_job(
    url, fleet, database, stand_in, tmp_path
):
    """It holds the row of the job, and says nothing: neither to us, nor to the database."""
    job = await fleet.submit("hello", Options(home=tmp_path))
    claim = await take(database, await register(database))

    async def hang():
        async with database.transaction() as connection:
            assert await claims.hold(connection, claim.job, claim.attempt)
            async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, name="healthy"):
                assert (await asyncio.wait_for(job.result(), 60)).ok

    with pytest.raises(errors.FleetUnavailable, match="idle-in-transaction"):
        await hang()
    assert (await job.info()).attempt == 2


async def test_a_worker_that_is_cut_off_while_it_takes_a_large_job_does_not_keep_it(
    url, fleet, stand_in, tmp_path
):
    """PostgreSQL waits without an end for one that does not read, and takes no other's word."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/large.bin").write_bytes(os.urandom(3_000_000))
    where = {"workspace": tmp_path / "project"}
    job = await fleet.submit("hello", Options(home=tmp_path), **where)
    cli = stand_in(INIT, SAID, RESULT)
    taking = b"UPDATE geminorum_jobs SET state = 'running'"
    async with silent_proxy(url, taking) as (address, proxy):
        with worker_process(address, tmp_path / "cut", executable=str(cli.executable)):
            await proxy.is_silent.wait()
            async with working(url, {"cli": cli}, name="healthy"):
                assert (await asyncio.wait_for(job.result(), 60)).ok
    assert (await job.details()).attempts[-1].worker == "healthy"


async def test_a_job_that_a_worker_took_without_hearing_of_it_is_run(
    url, fleet, stand_in, tmp_path
):
    """PostgreSQL has committed, and the connection breaks before it says so."""
    job = await fleet.submit("hello", Options(home=tmp_path))
    taking = b"INSERT INTO geminorum_attempts"
    cli = stand_in(INIT, SAID, RESULT)
    async with lossy_proxy(url, taking) as (address, proxy), working(address, {"cli": cli}):
        assert (await asyncio.wait_for(job.result(), 60)).ok
    assert (proxy.losses, (await job.info()).attempt) == (1, 2)


async def test_a_result_whose_acknowledgement_was_lost_is_the_only_one(
    url, fleet, stand_in, tmp_path
):
    job = await fleet.submit("hello", Options(home=tmp_path))
    ending = b"UPDATE geminorum_jobs SET state = 'done'"
    cli = stand_in(INIT, SAID, RESULT)
    async with lossy_proxy(url, ending) as (address, proxy), working(address, {"cli": cli}):
        events = [event async for event in job.events()]
    assert (proxy.losses, (await job.info()).attempt) == (1, 1)
    assert [type(event) for event in events].count(Done) == 1


async def test_a_job_that_another_worker_takes_at_the_same_moment_ends_no_other_job(
    url, fleet, stand_in, tmp_path
):
    """Two jobs of one session: the second has a higher priority, and the first is being taken."""
    running = await fleet.submit("hello", Options(home=tmp_path))
    options = Options(home=tmp_path, resume=SESSION)
    cli, busy = stand_in(INIT, SAID, hang=True), "SELECT id FROM geminorum_workers"
    async with Database(url) as database, working(url, {"cli": cli}, slots=2):
        await has_begun(running)
        before = await execute(url, busy)
        other = await register(database, "other")
        await fleet.submit("first", options, via="acp")
        async with database.transaction() as connection:
            claim = await claims.take(connection, other, "other", ["acp"], None)
            second = await fleet.submit("second", options, priority=5)
            await until(lambda: somebody_waits_for_a_lock(url))
        async with database.transaction() as connection:
            _, outcome = ended_by(errors.Interrupted(""))
            await claims.finish(connection, claim, [], outcome)
        async for _ in second.events():
            break
        assert set(before) < set(await execute(url, busy))
        assert [(one.number, one.ending) for one in (await running.details()).attempts] == [
            (1, None)
        ]


class Stoppable:
    """What an attempt is to those who cancel it."""

    def __init__(self):
        self.reasons = []

    def stop(self, reason):
        self.reasons.append(reason)


async def test_a_cancellation_that_comes_before_the_job_is_not_lost(database):
    """The notification may arrive before the worker hears that the job is its own."""
    attempts, job, before = {}, uuid.uuid4(), uuid.uuid4()
    cancellations = Cancellations(database, 1, attempts)
    cancellations.on_notification(before.hex)
    cancellations.expect_job()
    cancellations.on_notification(job.hex)
    attempts |= {job: Stoppable(), before: Stoppable()}
    for one in attempts:
        cancellations.stop_early(one)
    # The claim of the other one says itself that it was cancelled.
    assert [one.reasons for one in attempts.values()] == [["cancel"], []]


async def test_a_cancellation_that_was_missed_is_found_in_the_database(fleet, database):
    worker = await register(database)
    job = await fleet.submit("hello")
    claim = await take(database, worker)
    await job.cancel()
    attempt = Stoppable()
    cancellations = Cancellations(database, worker, {claim.job: attempt})
    running = asyncio.create_task(cancellations.run())
    cancellations.on_notification("")
    await until(lambda: asyncio.sleep(0, attempt.reasons))
    running.cancel()
    assert attempt.reasons == ["cancel"]


async def test_a_job_that_is_put_back_while_it_is_cancelled_ends_at_once(url, fleet, database):
    """Without any worker: it waits for nobody."""
    job = await fleet.submit("hello")
    claim = await take(database, await register(database))
    async with Database(url) as patient, patient.transaction() as connection:
        assert await claims.hold(connection, claim.job, claim.attempt)
        await claims.put_back(connection, claim, [], "error", 3600.0)
        cancelling = asyncio.create_task(job.cancel())
        await until(lambda: somebody_waits_for_a_lock(url))
    await cancelling
    assert (await asyncio.wait_for(job.wait(), 60)).status == "interrupted"


async def test_a_cancelled_job_that_is_put_back_is_over(fleet, database):
    """A worker that takes it, to end it, may come tomorrow: its tenant may wait for a limit."""
    job = await fleet.submit("hello")
    claim = await take(database, await register(database))
    await job.cancel()
    async with database.transaction() as connection:
        assert await claims.hold(connection, claim.job, claim.attempt)
        assert not await claims.put_back(connection, claim, [], "error", 3600.0)
    assert (await asyncio.wait_for(job.wait(), 10)).status == "interrupted"
    assert [type(event) async for event in job.events()] == [Error, Done]
    assert [one.ending for one in (await job.details()).attempts] == ["interrupted"]


async def test_a_job_that_cannot_be_freed_keeps_no_other_from_it(
    url, fleet, database, stand_in, tmp_path, caplog
):
    """Somebody has deleted its entry in the queue."""
    hung = await register(database)
    broken = await fleet.submit("broken", Options(home=tmp_path))
    await take(database, hung)
    good = await fleet.submit("good", Options(home=tmp_path))
    await take(database, hung)
    query = "SELECT entry FROM geminorum_jobs WHERE id = %s"
    ((entry,),) = await execute(url, query, broken.id)
    await execute(url, "DELETE FROM procrastinate_jobs WHERE id = %s", entry)
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert (await asyncio.wait_for(good.result(), 60)).ok
    assert f"job {broken.id} of a lost worker cannot be freed" in caplog.text


async def test_a_job_whose_end_cannot_be_written_ends_no_other_job(
    url, fleet, stand_in, tmp_path, caplog
):
    cli = stand_in(INIT, SAID, hang=True)
    first = await fleet.submit("first", Options(home=tmp_path))
    async with working(url, {"cli": cli}, slots=2):
        await has_begun(first)
        await execute(url, "DELETE FROM procrastinate_jobs")
        second = await fleet.submit("second", Options(home=tmp_path))
        await has_begun(second)
        await first.cancel()
        await until(lambda: asyncio.sleep(0, "the end of job" in caplog.text))
        assert (await second.info()).state == "running"
        await second.cancel()
        assert (await second.wait()).status == "interrupted"
    assert (await second.info()).attempt == 1


async def test_an_entry_of_the_queue_without_a_job_stops_nobody(url, fleet, stand_in, tmp_path):
    await execute(
        url,
        """INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args)
        VALUES ('geminorum/cli/default', 'geminorum.run', 9, '{}')""",
    )
    job = await fleet.submit("hello", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert (await asyncio.wait_for(job.result(), 60)).ok
    assert (await job.info()).attempt == 1


_MOST = 2**31 - 1


@pytest.mark.parametrize(
    "damage",
    [
        f"UPDATE geminorum_jobs SET max_attempts = {_MOST}, excused = {_MOST} WHERE id = %s",
        f"""UPDATE procrastinate_jobs SET attempts = {_MOST}
            WHERE id = (SELECT entry FROM geminorum_jobs WHERE id = %s)""",
        "INSERT INTO geminorum_attempts (job, number, worker) VALUES (%s, 1, 'nobody')",
    ],
    ids=["most attempts", "attempts", "attempt"],
)
async def test_a_job_whose_rows_are_damaged_keeps_no_other_waiting(
    damage, url, fleet, stand_in, tmp_path
):
    """A submitter may write what it wants into them. It ends, whatever it says."""
    bad = await fleet.submit("bad", Options(home=tmp_path), priority=9)
    good = await fleet.submit("good", Options(home=tmp_path))
    await execute(url, damage, bad.id)
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert (await asyncio.wait_for(good.result(), 60)).ok
        assert isinstance([event async for event in bad.events()][-1], Done)
    assert [job.state for job in await fleet.jobs()] == ["done", "done"]


async def test_a_job_that_has_waited_a_thousand_times_is_put_back_as_others(
    url, fleet, stand_in, tmp_path
):
    """For a session, or a limit: such attempts do not count."""
    job = await fleet.submit("hello", Options(home=tmp_path))
    await execute(url, "UPDATE procrastinate_jobs SET attempts = 2000")
    await execute(url, "UPDATE geminorum_jobs SET excused = 2000")
    async with working(url, {"cli": stand_in(INIT, stderr="[API Error: 503 UNAVAILABLE]", exit=1)}):

        async def is_back():
            now = await job.info()
            return (now.state, now.attempt) == ("queued", 2001)

        await until(is_back)
    assert [one.ending for one in (await job.details()).attempts] == ["error"]


async def test_a_damaged_job_of_a_lost_worker_keeps_no_other_from_being_freed(
    url, fleet, database, stand_in, tmp_path
):
    hung = await register(database)
    jobs = [await fleet.submit(name, Options(home=tmp_path)) for name in ("bad", "good")]
    for _ in jobs:
        await take(database, hung)
    most = f"UPDATE geminorum_jobs SET max_attempts = {_MOST}, excused = {_MOST} WHERE id = %s"
    await execute(url, most, jobs[0].id)
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert (await asyncio.wait_for(jobs[1].result(), 60)).ok


async def test_workers_that_look_for_room_under_several_limits_do_not_block_each_other(
    fleet, database
):
    """Each has found that the next job of a tenant waits for its session, and goes on to the
    other's tenant."""
    for tenant in ("a", "b"):
        await fleet.set_limit("concurrency", 2, tenant=tenant)
        for prompt in ("runs", "waits"):
            await fleet.submit(prompt, Options(session_id=SESSION), tenant=tenant)
    worker = await register(database)
    for tenant in ("a", "b"):
        async with database.transaction() as connection:
            assert await claims.take(connection, worker, "busy", ["cli"], [tenant])
    async with database.transaction() as one, database.transaction() as other:
        for connection, tenant in ((one, "a"), (other, "b")):
            assert await claims.take(connection, worker, "full", ["cli"], [tenant]) is None
        for connection, tenant in ((one, "b"), (other, "a")):
            taking = claims.take(connection, worker, "full", ["cli"], [tenant])
            assert await asyncio.wait_for(taking, 10) is None


async def test_a_worker_that_died_before_the_clock_of_the_database_was_set_back_is_given_up(
    url, fleet, database, stand_in, tmp_path
):
    job = await fleet.submit("hello", Options(home=tmp_path))
    await take(database, await register(database))
    ahead = timedelta(hours=1)
    await execute(url, "UPDATE geminorum_workers SET heartbeat_at = now() + %s", ahead)
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert (await asyncio.wait_for(job.result(), 60)).ok
    assert (await job.info()).attempt == 2


@pytest.mark.parametrize("place", ["spec", "options"])
async def test_a_worker_leaves_a_job_in_words_that_it_does_not_know_to_a_newer_one(
    place, url, fleet, stand_in, tmp_path
):
    """They may forbid something. It is no error of the job: another worker may know them."""
    job = await fleet.submit("hello", Options(home=tmp_path), max_attempts=2)
    ((data,),) = await execute(url, "SELECT spec FROM geminorum_jobs")
    spec = json.loads(data)
    (spec if place == "spec" else spec["options"])["forbid_everything"] = True
    await execute(url, "UPDATE geminorum_jobs SET spec = %s", json.dumps(spec).encode())
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, name="older"):
        first = await anext(job.events())
        assert "does not know 'forbid_everything'" in first.message
        assert (first.code, first.recoverable) == ("SETUP", True)
        # What a newer one would have made of it.
        await execute(url, "UPDATE geminorum_jobs SET spec = %s", data)
        assert (await asyncio.wait_for(job.result(), 60)).ok


async def test_changes_that_cannot_come_home_do_not_take_the_answer_along(
    url, fleet, stand_in, tmp_path, monkeypatch
):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/notes.md").write_text("Pipes are patient\n")

    def too_large(self, **_):
        raise errors.WorkspaceTooLarge("the changes are too large")

    monkeypatch.setattr(Workspace, "diff", too_large)
    job = await fleet.submit("hello", Options(home=tmp_path), workspace=tmp_path / "project")
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        events = [event async for event in job.events()]
        with pytest.raises(errors.WorkspaceTooLarge):
            await job.result()
    result = await job.wait()
    assert (result.text, result.status, result.session_id) == ("Hello.", "error", "5e551011")
    assert [type(event) for event in events[-2:]] == [Error, Done]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello."
    assert (await job.info()).attempt == 1


async def test_a_worker_that_is_stopped_while_it_writes_loses_its_jobs_all_the_same(
    url, fleet, stand_in, tmp_path
):
    """Whenever it is stopped: some of these moments are in the midst of a transaction."""
    talking = stand_in(INIT, *[SAID] * 2000, chunk=200, delay=0.001)
    program, job = str(talking.executable), await fleet.submit("hello", Options(home=tmp_path))
    with worker_process(url, tmp_path / "stopped", executable=program, name="stopped") as stopped:
        await has_begun(job)
        stopped.send_signal(signal.SIGSTOP)
        async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, name="healthy"):
            assert (await asyncio.wait_for(job.result(), 60)).ok
            assert (await job.info()).worker == "healthy"


# ---- cancelled tasks


async def hold_until(database, released, held):
    async with database.statements():
        held.set()
        await released.wait()


async def use_and_rest(database, did):
    async with database.statements():
        did.append("began")
        await asyncio.sleep(0.01)
        did.append("went on")


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancellation_is_not_lost_as_a_connection_is_handed_over(url, steps):
    """The pool forgot it, and a worker that was told to stop waited for that task for good."""
    released, held, did = asyncio.Event(), asyncio.Event(), []
    async with Database(url, connections=1) as database:
        holder = asyncio.create_task(hold_until(database, released, held))
        await held.wait()
        waiter = asyncio.create_task(use_and_rest(database, did))
        await asyncio.sleep(0.01)
        released.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait({holder, waiter})
        assert waiter.cancelled()
        assert "went on" not in did
        async with database.statements() as connection:  # It came back.
            await connection.execute("SELECT 1")
