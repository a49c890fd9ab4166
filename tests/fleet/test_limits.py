"""Limits over all workers: counted where a request is sent, by the database's clock."""

import asyncio
from decimal import Decimal

import psycopg
import pytest
from fleet_parts import new_database, until, working
from servers import postgres_server

from geminorum import Api, Done, Error, Options, errors
from geminorum.fleet import Fleet, JobRequest, key_fingerprint
from geminorum.fleet.database import Database
from geminorum.fleet.limits import buckets
from geminorum.fleet.limits.buckets import Share

KEY = "any-key-will-do"


@pytest.fixture(scope="module")
def server():
    with postgres_server() as url:
        yield url


@pytest.fixture
async def url(server):
    return await new_database(server)


@pytest.fixture
async def fleet(url):
    async with Fleet(url) as fleet:
        yield fleet


@pytest.fixture
async def ledger(url):
    async with Database(url, connections=4, is_ledger=True) as database:
        yield database


def api(fake):
    return {"api": Api(api_key=KEY, base_url=fake.url)}


async def query(url, statement, *values):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []


async def seconds_until(fleet, ledger, shares):
    async with ledger.connection() as connection:
        return [round(one.seconds, 1) for one in await buckets.take(connection, shares)]


async def id_of(url):
    ((limit,),) = await query(url, "SELECT id FROM geminorum_limits")
    return limit


async def test_a_rate_lets_a_burst_through_and_then_its_share(url, fleet, ledger):
    await fleet.set_limit("requests_per_minute", 6, burst=2)
    one = Share(await id_of(url), "", "", "", Decimal(1))
    async with ledger.connection() as connection:
        assert await buckets.take(connection, [one]) == []
        assert await buckets.take(connection, [one]) == []
        (blocked,) = await buckets.take(connection, [one])
    assert blocked.label == "6 requests per minute"
    assert 9 < blocked.seconds <= 10
    await query(url, "UPDATE geminorum_buckets SET full_at = full_at - interval '10 s'")
    async with ledger.connection() as connection:
        assert await buckets.take(connection, [one]) == []
        assert await buckets.take(connection, [one])


async def test_jobs_on_the_api_pass_one_by_one(url, fleet, fake_gemini):
    await fleet.set_limit("requests_per_minute", 120, burst=1, key=key_fingerprint(KEY))
    for _ in range(4):
        fake_gemini.say("Hello.")
    jobs = await fleet.submit_many([JobRequest(prompt="hi", via="api")] * 4)
    async with working(url, api(fake_gemini)):
        events = [[event async for event in job.events()] for job in jobs]
    assert [list(one)[-1].status for one in events] == ["success"] * 4
    notices = [event for one in events for event in one if isinstance(event, Error)]
    assert notices
    assert {(one.code, one.recoverable) for one in notices} == {("LIMIT_REACHED", True)}
    assert "waits for the limit of 120 requests per minute for key" in notices[0].message


async def test_a_limit_that_refuses_ends_the_job(url, fleet, fake_gemini):
    await fleet.set_limit("requests_per_minute", 1, tenant="acme", reaction="refuse")
    fake_gemini.say("Hello.")
    first, second = await fleet.submit_many([JobRequest(prompt="hi", via="api", tenant="acme")] * 2)
    async with working(url, api(fake_gemini), slots=1):
        assert (await first.result()).text == "Hello."
        with pytest.raises(errors.LimitReached, match="1 requests per minute for tenant acme") as e:
            await second.result()
    assert not e.value.retryable
    assert (await second.info()).attempt == 1
    assert len(fake_gemini.log) == 1
