"""The way of events from workers to those who follow them, when there are many of both."""

import asyncio
import uuid
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from fleet_parts import until, working

from geminorum import Done, Error, Options, TextDelta, errors
from geminorum.fleet import Fleet, Job, JobRequest
from geminorum.fleet.database import Database
from geminorum.fleet.events import feed, writer
from geminorum.fleet.events.writer import Chunk, EventWriter, write_chunks
from geminorum.fleet.workers import claims

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}


@pytest.fixture
async def database(url):
    async with Database(url) as database:
        yield database


async def take(database, jobs):
    """Jobs in the hands of a worker that is none."""
    async with database.transaction() as connection:
        worker = await claims.register(connection, "nobody", jobs, {})
        return [await claims.take(connection, worker, "nobody", ["cli"], None) for _ in range(jobs)]


async def execute(url, statement, *values):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []


async def test_those_who_wait_ask_the_database_together_and_not_each_for_itself(fleet, monkeypatch):
    """A silent job is looked after, but a hundred who wait are no hundred queries."""
    monkeypatch.setattr(feed, "_CHECK_SECONDS", 0.1)
    jobs = await fleet.submit_many([JobRequest(prompt="hi")] * 50)
    tasks = [asyncio.create_task(anext(job.events(), None)) for job in jobs]
    tasks += [asyncio.create_task(job.wait()) for job in jobs]
    check, statements = fleet.feed._check, fleet.database.statements
    looks, queries = [], []

    async def counted_check():
        looks.append(len(fleet.feed._all()))
        await check()

    def counted_statements():
        queries.append(len(looks))
        return statements()

    await until(lambda: asyncio.sleep(0, len(fleet.feed._all()) == 100))
    monkeypatch.setattr(fleet.feed, "_check", counted_check)
    await until(lambda: asyncio.sleep(0, len(looks) > 20))  # All are waiting by now.
    monkeypatch.setattr(fleet.database, "statements", counted_statements)
    await until(lambda: asyncio.sleep(0, len(looks) > 30))
    assert looks[-1] == 100
    assert len(queries) < 30
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_follower_needs_no_notification(url, fleet, database, monkeypatch):
    """Neither for events nor for the end: notifications only wake."""
    monkeypatch.setattr(feed, "_CHECK_SECONDS", 0.2)
    job = await fleet.submit("hello")
    (claim,) = await take(database, 1)
    events, result = asyncio.create_task(_all(job)), asyncio.create_task(job.wait())
    await until(lambda: asyncio.sleep(0, len(fleet.feed._all()) == 2))
    lines = writer.encode(TextDelta("one")) + b"\n" + writer.encode(Done(status="success"))
    outcome = b'{"result": {"status": "success", "text": "one"}}'
    async with database.transaction() as connection:
        await write_chunks(connection, [Chunk(claim.job, 1, 2, 2, lines)])
        update = "UPDATE geminorum_jobs SET state = 'done', status = 'success', outcome = %s"
        await connection.execute(update, (outcome,))
    assert [type(event) for event in await events] == [TextDelta, Done]
    assert (await result).text == "one"


async def _all(job):
    return [event async for event in job.events()]


async def test_a_job_that_is_pruned_while_it_is_followed_is_gone(url, fleet, monkeypatch):
    monkeypatch.setattr(feed, "_CHECK_SECONDS", 0.2)
    job = await fleet.submit("hello")
    following, waiting = asyncio.create_task(_all(job)), asyncio.create_task(job.wait())
    await until(lambda: asyncio.sleep(0, len(fleet.feed._all()) == 2))
    await execute(url, "DELETE FROM geminorum_jobs")
    for task in (following, waiting):
        with pytest.raises(errors.UnknownJob):
            await task


async def test_events_that_cannot_be_read_are_an_error_of_their_job_alone(
    url, fleet, database, stand_in, tmp_path
):
    """A newer worker, or somebody else, has written them."""
    bad = await fleet.submit("bad", via="cli")
    (claim,) = await take(database, 1)
    async with database.transaction() as connection:
        await write_chunks(connection, [Chunk(claim.job, 1, 1, 1, b'{"type": 7}')])
    following = asyncio.create_task(_all(bad))
    good = await fleet.submit("good", Options(home=tmp_path))
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert isinstance((await _all(good))[-1], Done)
    with pytest.raises(errors.InvalidEvent):
        await following


async def test_a_cursor_out_of_range_is_behind_all_events_and_disturbs_nobody(fleet):
    """It may come from a browser."""
    one, other = await fleet.submit_many([JobRequest(prompt="hi")] * 2)
    following = [asyncio.create_task(_all(other))]
    for far in ((2**40, 0), (0, 2**40)):
        following.append(asyncio.create_task(_all_behind(one, far)))
    await until(lambda: asyncio.sleep(0, len(fleet.feed._all()) == 3))
    assert await one.read_events((2**40, 0)) == []
    for job in (one, other):
        await job.cancel()
    first, beyond, from_the_first = await asyncio.wait_for(asyncio.gather(*following), 60)
    assert [type(event) for event in first] == [Error, Done]
    assert (beyond, from_the_first) == ([], first)


async def _all_behind(job, after):
    return [event async for event in job.events(after)]


async def test_who_may_not_read_events_is_told_so_and_does_not_wait(url, fleet):
    job = await fleet.submit("hello")
    name, password = f"stranger_{uuid.uuid4().hex}", uuid.uuid4().hex
    await execute(url, f"CREATE USER {name} PASSWORD '{password}'")
    await execute(url, f"GRANT SELECT ON geminorum_fleet, geminorum_jobs TO {name}")
    parts = urlsplit(url)
    stranger = urlunsplit(parts._replace(netloc=f"{name}:{password}@"))
    async with Fleet(stranger) as theirs:
        theirs_job = Job(theirs, uuid.UUID(job.id), None)
        with pytest.raises(errors.FleetError, match="permission denied"):
            await asyncio.wait_for(_all(theirs_job), 20)


async def test_a_notification_of_a_stranger_changes_nothing(url, fleet, stand_in, tmp_path):
    job = await fleet.submit("hello", Options(home=tmp_path))
    waiting = asyncio.create_task(job.wait())
    await until(lambda: asyncio.sleep(0, bool(fleet.feed._all())))
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, tenants=["nobody"]) as idle:
        for channel in ("geminorum_events", "geminorum_cancel", "geminorum_jobs"):
            for payload in (f"{uuid.UUID(job.id).hex}!", "not an id", "", "!"):
                await execute(url, "SELECT pg_notify(%s, %s)", channel, payload)
        assert idle.running == 0
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        assert (await waiting).ok


async def test_a_chunk_that_was_written_but_not_acknowledged_is_there_once(database, fleet):
    await fleet.submit("hello")
    (claim,) = await take(database, 1)
    chunk = Chunk(claim.job, 1, 1, 1, writer.encode(TextDelta("one")))
    async with database.transaction() as connection:
        for _ in range(2):
            assert await write_chunks(connection, [chunk]) == {(claim.job, 1)}
        count = await connection.execute("SELECT count(*) FROM geminorum_events")
        assert await count.fetchone() == (1,)


async def test_a_writer_that_is_no_longer_the_owner_writes_nothing_and_is_told(database, fleet):
    """Of two jobs in the same batch, the one that is still its own is written."""
    await fleet.submit_many([JobRequest(prompt="hi")] * 2)
    mine, lost = await take(database, 2)
    told = []
    writer = EventWriter(database, lambda *who: told.append(who))
    logs = [writer.open(claim.job, claim.attempt) for claim in (mine, lost)]
    async with database.transaction() as connection:
        await claims.put_back(connection, lost, [], "lost")
    for log in logs:
        await writer.add(log, [TextDelta("late")])
    writing = asyncio.create_task(writer.run())
    await until(lambda: asyncio.sleep(0, told))
    writing.cancel()
    assert told == [(lost.job, 1)]
    async with database.transaction() as connection:
        written = await connection.execute("SELECT job FROM geminorum_events")
        assert await written.fetchall() == [(mine.job,)]
