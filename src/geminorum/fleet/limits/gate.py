"""The gate before the requests of a worker's jobs: counts each before it is sent."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import partial

from geminorum.errors import FleetError, FleetUnavailable, LimitReached
from geminorum.fleet.database import Database, patiently
from geminorum.fleet.limits import buckets
from geminorum.fleet.limits.book import LimitBook
from geminorum.fleet.limits.buckets import LimitsChanged, Obstacle, Share
from geminorum.fleet.limits.line import Line, Lines, Notice
from geminorum.fleet.limits.rules import Rule, reached
from geminorum.fleet.limits.wait_mark import WaitMark
from geminorum.hints import python_only
from geminorum.transports.gates import Consumed, ModelCall, OnWait, Settle

log = logging.getLogger("geminorum.fleet")

LONGEST_WAIT_SECONDS = 60.0
"""A job that would have to wait longer goes back into the queue; `geminorum_obstacle` knows it."""
_RETRY_SECONDS, _CLOSE_SECONDS = 0.25, 5.0


class Gatehouse:
    """What the gates of a worker's jobs share: the limits, the lines, and what is to be settled."""

    def __init__(self, url: str, database: Database) -> None:
        self.book = LimitBook(database)
        self.lines = Lines()
        # Of its own: no transaction of a job holds it up. A connection only where there are limits.
        self._counts = Database(url, connections=2, is_ledger=True)
        self._settling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Gatehouse:
        await self._counts.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._settling:
            await asyncio.wait(set(self._settling), timeout=_CLOSE_SECONDS)
        for task in self._settling:
            task.cancel()
        await self._counts.__aexit__()

    async def take(self, shares: Sequence[Share]) -> list[Obstacle]:
        """Waits for a database that is away: the lease of the agents does not wait as long."""
        while True:
            try:
                async with self._counts.statements() as connection:
                    return await buckets.take(connection, shares)
            except FleetUnavailable as error:
                log.debug("a request waits for the database: %s", error.message)
                await asyncio.sleep(_RETRY_SECONDS)

    def settle(self, shares: Sequence[Share]) -> None:
        """Corrects what was taken, in the background."""
        task = asyncio.create_task(self._correct(shares))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _correct(self, shares: Sequence[Share]) -> None:
        while True:
            try:
                async with self._counts.statements() as connection:
                    await buckets.correct(connection, shares)
                return
            except FleetUnavailable:
                await asyncio.sleep(_RETRY_SECONDS)
            except FleetError as error:
                log.warning("what a request consumed is not counted: %s", error.message)
                return


class JobGate:
    """The gate of one job."""

    def __init__(self, house: Gatehouse, tenant: str, mark: WaitMark) -> None:
        """`mark` shows what the job waits for."""
        self._house, self._tenant, self._mark = house, tenant, mark
        self._waiting = 0

    @property
    def is_waiting(self) -> bool:
        """Does the job wait for a limit?"""
        return self._waiting > 0

    async def close(self) -> None:
        """Leaves it to the end of the attempt to say that it waits for nothing."""
        await self._mark.close()

    @property
    def scope(self) -> str:
        # While no limit tells tenants apart, their jobs may share the processes of a pool.
        return self._tenant if self._house.book.tells_tenants_apart else ""

    @property
    def is_strict(self) -> bool:
        return self._house.book.concerns(self._tenant)

    async def admit(self, call: ModelCall, on_wait: OnWait) -> Settle:
        if not self._house.book.rules_for(call, self._tenant):
            return _ignore
        line = self._house.lines.at((self._tenant, call.key, call.model))
        with Notice(line, partial(self._begin_wait, on_wait)) as notice:
            try:
                async with line.turn:
                    return await self._take(call, line)
            except FleetError as error:
                # Nothing is sent that cannot be counted.
                raise LimitReached(error.message, hint=error.hint) from error
            finally:
                if notice.is_given:
                    self._end_wait()

    async def _take(self, call: ModelCall, line: Line) -> Settle:
        while True:
            rules = self._house.book.rules_for(call, self._tenant)
            _require_price(rules, call)
            shares = [Share(*rule.bucket(call, self._tenant), rule.wanted(call)) for rule in rules]
            try:
                obstacles = await self._house.take(shares) if shares else []
            except LimitsChanged:
                await patiently(self._house.book.read)
                continue
            if not obstacles:
                line.obstacle = None
                return partial(self._settle, rules, shares)
            await line.pause(_passable(obstacles))

    def _settle(
        self, rules: Sequence[Rule], shares: Sequence[Share], consumed: Consumed | None
    ) -> None:
        if consumed is None:
            return  # What was taken for it stays taken.
        pairs = zip(rules, shares, strict=True)
        more = [share._replace(amount=_excess(rule, share, consumed)) for rule, share in pairs]
        if changed := [share for share in more if share.amount]:
            self._house.settle(changed)

    def _begin_wait(self, on_wait: OnWait, label: str) -> None:
        self._waiting += 1
        self._mark.set(label)
        on_wait(f"waits for the limit of {label}")

    def _end_wait(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._mark.set(None)


def _ignore(consumed: Consumed | None) -> None:
    """No limit is about the request."""


def _passable(obstacles: Sequence[Obstacle]) -> Obstacle:
    """The limit that takes longest. Raises LimitReached if one refuses, or takes too long."""
    for one in obstacles:
        if one.refuses:
            raise LimitReached(reached(one.label), retry_after=_rounded(one.seconds))
    longest = max(obstacles, key=lambda one: one.seconds)
    if longest.seconds > LONGEST_WAIT_SECONDS:
        after = _rounded(longest.seconds)
        raise LimitReached(reached(longest.label), retryable=True, retry_after=after)
    return longest


def _rounded(seconds: float) -> float:
    """Upwards: a moment too early is too early."""
    return float(math.ceil(seconds))


def _require_price(rules: Sequence[Rule], call: ModelCall) -> None:
    for rule in rules:
        if rule.kind == "usd_per_day" and call.usd is None:
            text = f"the limit of {rule.label} cannot be kept: {call.model} has no known price"
            hint = python_only("choose another model, or a transport with prices=PriceBook(…)")
            raise LimitReached(text, hint=hint)


def _excess(rule: Rule, share: Share, consumed: Consumed) -> Decimal:
    """What a request has consumed beyond its share; negative if it was less."""
    if rule.kind == "tokens_per_minute":
        return consumed.tokens - share.amount
    if rule.kind == "usd_per_day" and consumed.usd is not None:
        return consumed.usd - share.amount
    return Decimal(0)
