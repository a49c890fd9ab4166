"""The bill of a job: every attempt is on it, however it ended."""

import asyncio
from contextlib import asynccontextmanager
from decimal import Decimal

import psycopg
from fleet_parts import until, working

from geminorum import Done, Init
from geminorum.events import Cost
from geminorum.fleet import Fleet


class Spender:
    """A transport whose turns have spent some dollars; each succeeds at once, or goes on."""

    def __init__(self, spent: str, *, succeeds: bool) -> None:
        self._spent, self._succeeds = Decimal(spent), succeeds

    @asynccontextmanager
    async def open(self, options):
        yield self

    @asynccontextmanager
    async def turn(self, prompt):
        self._said = asyncio.Queue()
        self._said.put_nowait([Init()])
        self._is_over = False
        if self._succeeds:
            self._end(Done(status="success", cost=Cost(usd=self._spent)))
        yield self

    def _end(self, done: Done) -> None:
        self._said.put_nowait([done])
        self._is_over = True

    def spent(self):
        return self._spent

    async def read(self):
        return [] if self._is_over and self._said.empty() else await self._said.get()

    async def stop(self, reason, limit=None):
        self._end(Done(status="interrupted"))

    def hurry(self):
        pass

    stderr = ""


async def give_up_all_workers(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("UPDATE geminorum_workers SET is_lost = true")


async def test_the_cost_of_a_lost_attempt_stays_on_the_bill(url):
    async with Fleet(url) as fleet:
        job = await fleet.submit("hello", via="api")
        async with working(url, {"api": Spender("0.25", succeeds=False)}, name="lost"):

            async def is_on_the_bill():
                return (await job.info()).usd == Decimal("0.25")

            await until(is_on_the_bill)
            await give_up_all_workers(url)

            async def is_taken_over():  # By the same one, which has come back and spends again.
                info = await job.info()
                return info.attempt > 1 and info.usd == Decimal("0.25") * info.attempt

            await until(is_taken_over)
        async with working(url, {"api": Spender("0.5", succeeds=True)}, name="healthy"):
            result = await job.result()
        info = await job.info()
        assert result.cost.usd == Decimal("0.5")
        assert info.usd == sum([Decimal("0.25")] * (info.attempt - 1), Decimal("0.5"))
        (tenant,) = (await fleet.status()).tenants
        assert tenant.usd == tenant.usd_today == info.usd


async def test_the_cost_of_an_attempt_that_was_handed_back_stays_on_the_bill(url):
    async with Fleet(url) as fleet:
        job = await fleet.submit("hello", via="api")
        async with working(url, {"api": Spender("0.25", succeeds=False)}, name="leaving"):

            async def is_on_the_bill():
                return (await job.info()).usd == Decimal("0.25")

            await until(is_on_the_bill)
        async with working(url, {"api": Spender("0.5", succeeds=True)}, name="staying"):
            await job.result()
        assert (await job.info()).usd == Decimal("0.75")


async def test_a_job_whose_cost_is_not_known_has_none(url):
    async with Fleet(url) as fleet:
        job = await fleet.submit("hello")
        assert (await job.info()).usd is None
