"""Limits over all workers: a request is counted where it is sent, by the database's clock."""

import asyncio
import contextlib
import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest
from fleet_parts import new_database, requesting_cli, until, working
from load.limits import SimulatedApi, set_up, windows_in, workers

from geminorum import Acp, Api, Cli, Error, Options, Pool, errors
from geminorum.fleet import Fleet, JobRequest, key_fingerprint, queue, schema
from geminorum.fleet.database import Database
from geminorum.fleet.limits import buckets
from geminorum.fleet.limits.book import LimitBook
from geminorum.fleet.limits.buckets import Share
from geminorum.fleet.limits.table import list_limits
from geminorum.fleet.status import status_of
from geminorum.fleet.workers import claims
from geminorum.fleet.workers.cancellation import Cancellations

KEY = "any-key-will-do"


@pytest.fixture
async def ledger(url):
    async with Database(url, connections=4, is_ledger=True) as database:
        yield database


def api(fake, **how):
    return {"api": Api(api_key=KEY, base_url=fake.url, **how)}


async def query(url, statement, *values):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []


async def take(ledger, *shares):
    async with ledger.statements() as connection:
        return await buckets.take(connection, shares)


async def share(url, kind, amount, *whose):
    query_id = "SELECT id FROM geminorum_limits WHERE kind = %s"
    ((limit,),) = await query(url, query_id, kind)
    return Share(limit, *(whose or ("", "", "")), Decimal(amount))


async def used(fleet):
    """Of each limit; a rate gives back a little from moment to moment."""
    limits = await fleet.limits()
    return [round(one.used) if "minute" in one.kind else one.used for one in limits]


async def is_waiting(job):
    return (await job.info()).waits_for


# ---- buckets: rates so slow that no machine is slow enough to matter


async def test_a_rate_lets_a_burst_through_and_then_its_share(url, fleet, ledger):
    await fleet.set_limit("requests_per_minute", "0.01", burst=2)
    one = await share(url, "requests_per_minute", 1)
    assert [await take(ledger, one) for _ in range(2)] == [[], []]
    (blocked,) = await take(ledger, one)
    assert blocked.label == "0.01 requests per minute"
    assert round(blocked.seconds, -3) == 6000
    await query(url, "UPDATE geminorum_buckets SET full_at = full_at - interval '6000 s'")
    assert await take(ledger, one) == []
    assert await take(ledger, one)


async def test_however_many_ask_at_once_no_more_than_the_burst_get_through(url, fleet, ledger):
    await fleet.set_limit("requests_per_minute", "0.01", burst=10)
    await fleet.set_limit("tokens_per_minute", 1, burst=1000)
    pair = [await share(url, "requests_per_minute", 1), await share(url, "tokens_per_minute", 10)]
    found = await asyncio.gather(*(take(ledger, *pair[:: 1 - 2 * (n % 2)]) for n in range(40)))
    assert Counter(map(bool, found)) == {False: 10, True: 30}
    assert sorted(await used(fleet)) == [10, 100]


async def test_what_one_limit_holds_up_is_taken_from_none(url, fleet, ledger):
    await fleet.set_limit("requests_per_minute", "0.01", burst=5)
    await fleet.set_limit("usd_per_day", 1)
    pair = [await share(url, "requests_per_minute", 1), await share(url, "usd_per_day", 1)]
    assert await take(ledger, *pair) == []
    (blocked,) = await take(ledger, *pair)
    assert blocked.label == "$1 per day"
    assert await used(fleet) == [1, 1]


async def test_tokens_are_corrected_when_the_answer_tells_them(url, fleet, ledger):
    """A request larger than the bucket passes as well, and what follows waits for it."""
    await fleet.set_limit("tokens_per_minute", 1, burst=100)
    large = await share(url, "tokens_per_minute", 5000)
    assert await take(ledger, large) == []
    assert await take(ledger, large._replace(amount=Decimal(1)))
    await correct(ledger, large, -4950)
    assert await used(fleet) == [50]
    assert await take(ledger, large._replace(amount=Decimal(50))) == []
    await correct(ledger, large, 300)
    assert await used(fleet) == [400]


async def test_a_limit_that_is_raised_has_room_at_once(url, fleet, ledger):
    await fleet.set_limit("tokens_per_minute", 1, burst=100)
    large = await share(url, "tokens_per_minute", 500)
    assert await take(ledger, large) == []
    await fleet.set_limit("tokens_per_minute", 1000, burst=1000)
    assert await used(fleet) == [pytest.approx(500, abs=400)]
    assert await take(ledger, large._replace(amount=Decimal(500))) == []


async def test_dollars_are_those_of_a_day_in_utc(url, fleet, ledger):
    await fleet.set_limit("usd_per_day", "0.5")
    dollars = await share(url, "usd_per_day", "0.3")
    assert await take(ledger, dollars) == []
    (blocked,) = await take(ledger, dollars)
    assert 0 < blocked.seconds <= 86_400
    await correct(ledger, dollars, "-0.1")
    assert await used(fleet) == [Decimal("0.2")]
    await query(url, "UPDATE geminorum_buckets SET day = day - 1")
    assert await used(fleet) == [0]
    assert await take(ledger, dollars) == []
    assert await used(fleet) == [Decimal("0.3")]


async def test_pruning_removes_buckets_that_are_full_and_no_others(url, fleet, ledger):
    await fleet.set_limit("requests_per_minute", 1, tenant="*")
    shares = [await share(url, "requests_per_minute", 1, "", name, "") for name in ("old", "new")]
    for one in shares:
        await take(ledger, one)
    age = "day = day - 1, full_at = now() - interval '1 h'"
    await query(url, f"UPDATE geminorum_buckets SET {age} WHERE tenant = 'old'")
    await fleet.prune(timedelta(days=30))
    assert await query(url, "SELECT tenant FROM geminorum_buckets") == [("new",)]
    assert await take(ledger, shares[0]) == []


# ---- who sets them


async def test_a_limit_is_set_replaced_listed_and_removed(url, fleet):
    print_of_key = key_fingerprint("AIza-a-real-key")
    assert await fleet.limits() == []
    await fleet.set_limit("requests_per_minute", 600, key=print_of_key)
    await fleet.set_limit("requests_per_minute", 1200, key=print_of_key, reaction="refuse")
    made = await fleet.set_limit("usd_per_day", 2.5, tenant="*", model="gemini-2.5-pro")
    assert made.label == "$2.5 per day for model gemini-2.5-pro and each tenant"
    first, second = await fleet.limits()
    assert (first.amount, first.burst, first.key, first.reaction) == (
        *(1200, 20, print_of_key),
        "refuse",
    )
    assert (second.tenant, second.model, second.used, second.waiting) == (
        *("*", "gemini-2.5-pro"),
        *(0, 0),
    )
    assert await fleet.remove_limit("requests_per_minute", key=print_of_key)
    assert not await fleet.remove_limit("requests_per_minute", key=print_of_key)
    assert len(await fleet.limits()) == 1


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"kind": "requests_per_hour"}, "kind is one of"),
        ({"amount": 0}, "above 0"),
        ({"amount": "many"}, "above 0"),
        ({"burst": -1}, "above 0"),
        ({"amount": 1e-30}, "at least 0.000001"),
        ({"amount": 1e300}, "at most 1000000000000000"),
        ({"key": "AIzaSyNobodyShouldSeeThis"}, "key_fingerprint"),
        ({"tenant": ""}, "printable"),
        ({"reaction": "panic"}, "delay, refuse"),
        ({"kind": "concurrency", "model": "*"}, "by tenant"),
        ({"kind": "concurrency", "reaction": "refuse"}, "only delays"),
    ],
)
async def test_a_limit_that_cannot_be_is_refused(fleet, wanted, why):
    given = {"kind": "requests_per_minute", "amount": 1, **wanted}
    with pytest.raises(errors.InvalidOptions) as refused:
        await fleet.set_limit(given.pop("kind"), given.pop("amount"), **given)
    assert why in str(refused.value)
    assert "AIza" not in str(refused.value)
    assert await fleet.limits() == []


async def test_tables_of_version_1_are_brought_up_to_date_with_all_that_is_in_them(server):
    url = await new_database(server, version=1)
    with pytest.raises(errors.FleetError, match="geminorum fleet init"):
        async with Fleet(url):
            pass
    insert = """INSERT INTO geminorum_jobs
        (id, entry, tenant, via, spec, priority, max_attempts, digest)
        VALUES (gen_random_uuid(), 1, 'acme', 'cli', '{"prompt":"old"}', 0, 3, 'x')"""
    await query(url, insert)
    async with Database(url) as database:
        assert await schema.initialise(database) == 1
        assert await schema.initialise(database) == schema.VERSION
    async with Fleet(url) as fleet:
        (job,) = await fleet.jobs()
        assert (job.title, job.max_attempts, job.waits_for) == ("old", 3, None)
        await fleet.set_limit("concurrency", 1, tenant="acme")


# ---- requests of jobs


async def test_every_request_of_the_api_is_counted_also_retries_and_turns_of_tools(
    url, fleet, fake_gemini
):
    def look() -> str:
        return "a tree"

    await fleet.set_limit("requests_per_minute", "0.01", burst=100, key=key_fingerprint(KEY))
    await fleet.set_limit("tokens_per_minute", 1, burst=10**6, model="gemini-2.5-flash")
    fake_gemini.fail(503, "busy").call("look").say("A tree.")
    job = await fleet.submit("What is there?", Options(model="gemini-2.5-flash"), via="api")
    async with working(url, api(fake_gemini, tools=[look])):
        usage = (await job.result()).usage
    assert len(fake_gemini.log) == 3
    assert await used(fleet) == [3, usage.total]
    rows = await query(url, "SELECT key, tenant, model FROM geminorum_buckets ORDER BY 1 DESC")
    assert rows == [(key_fingerprint(KEY), "", ""), ("", "", "gemini-2.5-flash")]


async def test_a_delay_is_an_event_and_shows_in_lists_until_the_limit_is_raised(
    url, fleet, fake_gemini
):
    """The waiting run has no idle time: the API has not been asked yet."""
    limit = {"tenant": "acme"}
    await fleet.set_limit("requests_per_minute", 2, **limit, burst=1)
    fake_gemini.say("One.").say("Two.")
    jobs = await fleet.submit_many([JobRequest(prompt="hi", via="api", tenant="acme")] * 2)
    async with working(url, api(fake_gemini, idle_timeout=0.2)):
        label = await until(lambda: first_of(is_waiting(job) for job in jobs))
        assert label == "2 requests per minute for tenant acme"
        (status,) = (await fleet.status()).waiting
        assert (status.waits_for, status.jobs) == (label, 1)
        assert [one.waiting for one in (await fleet.status()).tenants] == [1]
        assert [one.waiting for one in await fleet.limits()] == [1]
        await fleet.set_limit("requests_per_minute", 600, **limit)
        texts = sorted([(await job.result()).text for job in jobs])
    assert texts == ["One.", "Two."]
    events = [event for job in jobs async for event in job.events() if isinstance(event, Error)]
    (notice,) = events
    assert (notice.code, notice.recoverable) == ("LIMIT_REACHED", True)
    assert notice.message == f"waits for the limit of {label}"
    assert (await fleet.status()).waiting == []


async def test_a_limit_that_refuses_ends_the_job_and_says_which_it_is(url, fleet, fake_gemini):
    await fleet.set_limit("requests_per_minute", 1, tenant="*", reaction="refuse")
    fake_gemini.say("Hello.")
    request = JobRequest(prompt="hi", via="api", tenant="acme")
    async with working(url, api(fake_gemini), slots=1):
        first, second = await fleet.submit_many([request] * 2)
        assert (await first.result()).text == "Hello."
        with pytest.raises(errors.LimitReached, match="1 request per minute for each") as refused:
            await second.result()
    assert not refused.value.retryable
    assert (await second.info()).attempt == len(fake_gemini.log) == 1


async def test_without_a_price_no_limit_of_dollars_can_be_kept(url, fleet, fake_gemini):
    await fleet.set_limit("usd_per_day", 5)
    job = await fleet.submit("hi", Options(model="gemini-of-tomorrow"), via="api")
    async with working(url, api(fake_gemini)):
        with pytest.raises(errors.LimitReached, match="gemini-of-tomorrow has no known price"):
            await job.result()
    assert fake_gemini.log == []


async def test_dollars_of_a_day_are_those_that_the_jobs_cost(url, fleet, fake_gemini):
    """The first job spends them, and the second is not even begun."""
    await fleet.set_limit("usd_per_day", "0.000001", tenant="acme")
    fake_gemini.say("Hello.").say("Hello, others.")
    request = JobRequest(prompt="hi", options=Options(model="gemini-2.5-flash"), via="api")
    async with working(url, api(fake_gemini)):
        first = await fleet.submit("hi", request.options, via="api", tenant="acme")
        cost = (await first.result()).cost.usd
        assert await until(lambda: equal(used(fleet), [cost]))
        second = await fleet.submit("hi", request.options, via="api", tenant="acme")
        other = await fleet.submit("hi", request.options, via="api", tenant="other")
        assert (await other.result()).text == "Hello, others."
        info = await second.info()
        assert (info.state, info.attempt) == ("queued", 0)
        assert info.waits_for == "$0.000001 per day for tenant acme"
        await fleet.remove_limit("usd_per_day", tenant="acme")
        fake_gemini.say("At last.")
        assert (await second.result()).text == "At last."


async def test_a_model_with_a_name_of_any_length_is_counted(url, fleet, fake_gemini):
    """A job may name what it wants."""
    await fleet.set_limit("requests_per_minute", 600, model="*")
    fake_gemini.say("Hello.")
    name = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
    job = await fleet.submit("hi", Options(model=name, timeout=20.0), via="api")
    async with working(url, api(fake_gemini)):
        result = await job.wait()
    assert not isinstance(result.exception(), errors.RunTimeout)
    assert await query(url, "SELECT model FROM geminorum_buckets") == [(name[:100],)]


# ---- what ends a wait


@pytest.fixture
async def waiting_job(url, fleet, fake_gemini):
    """A job that waits for a limit, in a slot of a worker."""
    await fleet.set_limit("requests_per_minute", 2, burst=1, tenant="acme")
    fake_gemini.say("One.")
    first = await fleet.submit("hi", via="api", tenant="acme")
    async with working(url, api(fake_gemini), slots=1) as worker:
        await first.result()
        job = await fleet.submit("hi", Options(timeout=60.0), via="api", tenant="acme")
        await until(lambda: is_waiting(job))
        yield job, worker


async def test_a_job_that_waits_is_cancelled(waiting_job):
    job, _ = waiting_job
    await job.cancel()
    with pytest.raises(errors.Interrupted):
        await job.result()
    assert (await job.info()).waits_for is None


async def test_a_timeout_holds_while_a_job_waits(url, fleet, waiting_job):
    job = await fleet.submit("hi", Options(timeout=0.5), via="api", tenant="acme", max_attempts=1)
    await waiting_job[0].cancel()
    with pytest.raises(errors.RunTimeout):
        await job.result()


async def test_a_worker_that_leaves_hands_a_job_that_waits_back(fleet, waiting_job):
    job, worker = waiting_job
    worker.stop()
    worker.hand_back()

    async def is_back():
        return (await job.info()).state == "queued"

    await until(is_back)
    info = await job.info()
    # The attempt does not count.
    assert (info.attempt, info.max_attempts) == (1, 4)


async def test_a_job_that_waits_is_taken_over_from_a_lost_worker(
    url, fleet, waiting_job, fake_gemini
):
    job, _ = waiting_job
    await query(url, "UPDATE geminorum_workers SET is_lost = true")

    async def is_taken_again():
        info = await job.info()
        return info.attempt == 2 and info.waits_for

    await until(is_taken_again)
    fake_gemini.say("Two.")
    await fleet.remove_limit("requests_per_minute", tenant="acme")
    assert (await job.result()).text == "Two."


async def test_a_job_that_waits_lends_its_slot_to_another_tenant(fleet, waiting_job, fake_gemini):
    """And to none of its own: those would wait as well."""
    job, worker = waiting_job
    fake_gemini.say("Hello.")
    same = await fleet.submit("hi", via="api", tenant="acme")
    other = await fleet.submit("hi", via="api", tenant="other")
    assert (await other.result()).text == "Hello."
    assert (await same.info()).state == "queued"
    assert await is_waiting(job)
    assert worker.running == 1


async def held_job(fleet, database):
    """In the hands of a worker that is none."""
    job = await fleet.submit("hi")
    async with database.transaction() as connection:
        worker = await claims.register(connection, "nobody", 1, {})
        return job, await claims.take(connection, worker, "nobody", ["cli"], None)


@pytest.mark.parametrize("change", ["raised", "removed"])
async def test_a_limit_that_changes_while_a_job_goes_back_does_not_keep_it(
    change, url, fleet, ledger
):
    """Ending its agent takes a while. Whoever changes the limit meanwhile does not see the job."""
    before = await fleet.set_limit("usd_per_day", 1)
    job, claim = await held_job(fleet, ledger)
    if change == "raised":
        await fleet.set_limit("usd_per_day", 100)
    else:
        await fleet.remove_limit("usd_per_day")
    async with ledger.transaction() as connection:
        waiting = {"waits_for": before.label, "is_excused": True}
        await claims.put_back(connection, claim, [], "error", 3600.0, **waiting)
    assert await is_waiting(job) is None
    soon = "SELECT not_before < now() + interval '1 min' FROM geminorum_jobs"
    assert await query(url, soon) == [(True,)]
    assert await query(
        url, "SELECT scheduled_at < now() + interval '1 min' FROM procrastinate_jobs"
    )


async def test_a_limit_is_changed_while_a_worker_takes_a_job_that_waited_for_it(url, fleet, ledger):
    before = await fleet.set_limit("usd_per_day", 1)
    _, claim = await held_job(fleet, ledger)
    async with ledger.transaction() as connection:
        await claims.put_back(connection, claim, [], "error", waits_for=before.label)

    async def somebody_waits():
        return (await query(url, waits))[0][0]

    waits = """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with Database(url) as database, database.transaction() as connection:
        # A worker takes it from the queue, and then its row.
        await queue.take(connection, 1, ["cli/default"])
        changing = asyncio.create_task(fleet.set_limit("usd_per_day", 100))
        await until(somebody_waits)
        row = await connection.execute("SELECT 1 FROM geminorum_jobs FOR UPDATE")
        assert await row.fetchone()
    await changing


# ---- many jobs


@pytest.mark.parametrize("look", ["take", "status", "limits"])
async def test_limits_are_looked_at_for_each_tenant_and_not_for_each_job(url, fleet, look):
    """With 100,000 queued jobs, to take one took two seconds."""
    await fleet.submit_many(
        [JobRequest(prompt="hello", tenant=name) for name in ("acme", "zeta")] * 50
    )
    async with Database(url) as database, database.transaction() as connection:
        await connection.execute("SET LOCAL track_functions = 'all'")
        if look == "take":
            worker = await claims.register(connection, "one", 1, {})
            assert await claims.take(connection, worker, "one", ["cli"], None)
        else:
            await {"status": status_of, "limits": list_limits}[look](connection)
        calls = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = %s"
        cursor = await connection.execute(calls, ("geminorum_obstacle",))
        ((called,),) = await cursor.fetchall()
    assert 0 < called <= 4


# ---- many workers


async def test_what_cannot_be_read_for_a_while_is_read_later(url, fleet, caplog):
    """A worker that never reads again would keep to old limits, and cancel nothing."""
    job = await fleet.submit("hello", via="api", tenant="acme")
    async with Database(url) as database, contextlib.AsyncExitStack() as stack:
        async with database.transaction() as connection:
            worker = await claims.register(connection, "reader", 1, {})
            claim = await claims.take(connection, worker, "reader", ["api"], None)
        stopped = Stopped()
        book = LimitBook(database)
        cancellations = Cancellations(database, worker, {claim.job: stopped})
        for reader in (book, cancellations):
            task = asyncio.create_task(reader.run())
            stack.callback(task.cancel)
        for table in ("geminorum_limits", "geminorum_jobs"):
            await query(url, f"ALTER TABLE {table} RENAME TO {table}_away")
        book.note_change()
        cancellations.on_notification("")

        async def both_have_failed():
            failures = {"the limits cannot be read", "cancelled jobs cannot be looked for"}
            return failures <= {record.getMessage() for record in caplog.records}

        await until(both_have_failed)
        for table in ("geminorum_limits", "geminorum_jobs"):
            await query(url, f"ALTER TABLE {table}_away RENAME TO {table}")
        await fleet.set_limit("requests_per_minute", 3, tenant="acme")
        await job.cancel()

        async def both_have_read():
            return book.concerns("acme") and stopped.reason == "cancel"

        await until(both_have_read)


class Stopped:
    """An attempt that remembers why it was stopped."""

    reason = None

    def stop(self, reason):
        self.reason = reason


async def test_workers_on_many_machines_share_one_limit(server, fleet, url, tmp_path):
    """`python -m load.limits` in short: they want sixty requests, and a burst of 25 is all."""
    with SimulatedApi() as api:
        await set_up(url, 0.01, 25, requests=60)
        with workers(url, api.url, tmp_path, 2):

            async def all_wait():
                # One that began before the others may have had all that it wanted.
                all_stopped = all(job.waits_for or job.status for job in await fleet.jobs())
                return all_stopped and len(api.moments) >= 25  # The last may be on its way.

            await until(all_wait)
        assert len(api.moments) == 25
    assert await used(fleet) == [25]


def test_the_fullest_and_the_emptiest_minute_are_found():
    times = [0, 1, 2, 30, 61, 61, 62, 100, 121]
    assert windows_in(times, 0, 125) == (5, 2)


# ---- jobs at once


async def test_no_more_jobs_of_a_tenant_run_at_once_than_its_limit(url, fleet, fake_gemini):
    await fleet.set_limit("concurrency", 2, tenant="acme")
    most, running = Counter(), Counter()

    def note(report):
        running[report.tenant] += {"begun": 1, "ended": -1}.get(report.what, 0)
        most.update({report.tenant: max(0, running[report.tenant] - most[report.tenant])})

    names = ["acme"] * 8 + ["other"] * 4
    for _ in names:
        fake_gemini.say("Hello.", delay=0.1)
    jobs = await fleet.submit_many(
        JobRequest(prompt="hi", via="api", tenant=name) for name in names
    )
    waiting = (await fleet.status()).waiting
    assert waiting == []
    transports = api(fake_gemini)
    async with (
        working(url, transports, on_report=note, slots=4),
        working(url, transports, on_report=note, slots=4),
    ):

        async def some_wait():
            return [one.waits_for for one in (await fleet.status()).waiting]

        assert await until(some_wait) == ["2 jobs at once for tenant acme"]
        await asyncio.gather(*(job.result() for job in jobs))
    assert most["acme"] == 2
    assert most["other"] > 2
    assert (await fleet.limits())[0].used == 0


async def test_one_job_at_a_time_continues_a_session(url, fleet, fake_gemini):
    """On whichever worker: the second stays in the queue until the first is over."""
    running, most = 0, 0

    def note(report):
        nonlocal running, most
        running += {"begun": 1, "ended": -1}.get(report.what, 0)
        most = max(most, running)

    for _ in range(4):
        fake_gemini.say("Hello.", delay=0.1)
    request = JobRequest(prompt="hi", options=Options(session_id="5e551011"), via="api")
    jobs = await fleet.submit_many([request] * 4)
    transports = api(fake_gemini)
    async with (
        working(url, transports, on_report=note),
        working(url, transports, on_report=note),
    ):
        await asyncio.gather(*(job.result() for job in jobs))
    assert most == 1


# ---- through the CLI


async def test_a_cli_asks_before_each_request_and_no_silence_ends_its_wait(
    url, fleet, fake_gemini, monkeypatch, tmp_path
):
    for name, value in fake_gemini.env.items():
        monkeypatch.setenv(name, value)
    await fleet.set_limit("requests_per_minute", 30, burst=1)
    cli = requesting_cli(tmp_path, stall_timeout=0.5)
    fake_gemini.say("One.").say("Two.")
    job = await fleet.submit("one\ntwo", Options(home=tmp_path))
    async with working(url, {"cli": cli}):
        assert (await job.result()).text == "one. two. "
    notices = [event async for event in job.events() if isinstance(event, Error)]
    assert [one.message for one in notices] == ["waits for the limit of 30 requests per minute"]
    ((key,),) = await query(url, "SELECT key FROM geminorum_buckets")
    assert key == ""


async def test_a_cli_that_is_refused_ends_with_the_limit_and_sends_nothing(
    url, fleet, fake_gemini, monkeypatch, tmp_path
):
    for name, value in fake_gemini.env.items():
        monkeypatch.setenv(name, value)
    key = key_fingerprint(fake_gemini.env["GEMINI_API_KEY"])
    await fleet.set_limit("requests_per_minute", 1, key=key, reaction="refuse")
    fake_gemini.say("One.")
    job = await fleet.submit("one\ntwo", Options(home=tmp_path))
    async with working(url, {"cli": requesting_cli(tmp_path)}):
        with pytest.raises(errors.LimitReached, match=f"for key {key} is reached"):
            await job.result()
    assert len(fake_gemini.log) == 1


async def test_a_cli_whose_requests_cannot_be_counted_is_refused_only_under_a_limit(
    url, fleet, stand_in, tmp_path
):
    """A program that is not the npm package's."""
    init = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
    cli = stand_in(init, {"type": "result", "status": "success", "stats": {}})
    async with working(url, {"cli": cli}):
        await fleet.set_limit("requests_per_minute", 600, tenant="acme")
        free = await fleet.submit("hi", Options(home=tmp_path))
        limited = await fleet.submit("hi", Options(home=tmp_path), tenant="acme")
        assert (await free.result()).ok
        with pytest.raises(errors.Unsupported, match="npm install"):
            await limited.result()


@pytest.mark.gemini_cli
async def test_a_long_wait_gives_the_slot_back_and_nothing_is_lost(
    url, fleet, fake_gemini, real_transport, tmp_path, monkeypatch
):
    """Session and workspace go on where they were; a job that had not begun begins."""
    for name, value in fake_gemini.env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "project").mkdir()
    await fleet.set_limit("tokens_per_minute", 1, model="*")
    fake_gemini.call("write_file", file_path="new.txt", content="new\n").say("Written.")
    options = Options(model="gemini-2.5-flash", approval="auto_edit")
    where = {"workspace": tmp_path / "project", "max_attempts": 1}
    job = await fleet.submit("Write a file", options, **where)
    async with working(url, {"cli": Cli(executable=real_transport.executable)}, slots=1) as worker:
        assert await until(lambda: is_back(job)) == "1 token per minute for each model"
        late = await fleet.submit("Say hello", options, tenant="late")
        await until(lambda: is_back(late))

        async def is_idle():  # The row is free a moment before its slot is.
            return worker.running == 0

        await until(is_idle)
        fake_gemini.say("Hello.")
        await fleet.remove_limit("tokens_per_minute", model="*")
        assert (await job.result()).text == "Written."
        assert (await late.result()).text == "Hello."
    first, second, third = fake_gemini.requests
    assert (first.prompt, third.prompt) == ("Write a file", "Say hello")
    assert "Write a file" in str(second.contents)
    assert [change.name for change in (await job.patch()).changes] == ["new.txt"]
    notices = [event async for event in job.events() if isinstance(event, Error)]
    assert [one.code for one in notices] == ["LIMIT_REACHED", "TAKEOVER"]
    assert "the job goes on in" in notices[0].message


@pytest.mark.gemini_cli
async def test_warm_processes_of_a_pool_ask_for_the_tenant_whose_they_are(
    url, fleet, fake_gemini, real_transport, tmp_path, monkeypatch
):
    """Also for the requests that the CLI makes for itself; a wait longer than `stall_timeout`."""
    for name, value in fake_gemini.env.items():
        monkeypatch.setenv(name, value)
    await fleet.set_limit("requests_per_minute", 30, burst=1, tenant="*")
    for tenant in ("acme", "other"):
        fake_gemini.when(tenant).say(f"Hello, {tenant}.")
    acp = Acp(executable=real_transport.executable, stall_timeout=1.0)
    async with Pool(acp, size=2) as pool, working(url, {"acp": pool}, slots=2):
        jobs = [
            await fleet.submit(f"I am {one}", via="acp", tenant=one) for one in ("acme", "other")
        ]
        texts = [(await job.result()).text for job in jobs]
    assert texts == ["Hello, acme.", "Hello, other."]
    assert len(fake_gemini.log) == 4
    for job in jobs:
        notices = [event async for event in job.events() if isinstance(event, Error)]
        assert {one.code for one in notices} == {"LIMIT_REACHED"}
    rows = await query(url, "SELECT tenant, used FROM geminorum_buckets ORDER BY tenant")
    assert rows == [("acme", 2), ("other", 2)]


async def is_back(job):
    info = await job.info()
    return info.waits_for if info.state == "queued" and info.attempt == 1 else None


async def correct(ledger, one, amount):
    async with ledger.statements() as connection:
        await buckets.correct(connection, [one._replace(amount=Decimal(amount))])


async def first_of(found):
    return next(filter(None, [await one for one in found]), None)


async def equal(found, wanted):
    return await found == wanted
