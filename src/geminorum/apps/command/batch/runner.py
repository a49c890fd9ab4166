"""Tasks in, outcomes out: so many at a time, so many a minute, for so much money, each once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from geminorum.apps.command.batch.input import Task
from geminorum.apps.command.batch.journal import Failure, Journal, TaskOutcome, now
from geminorum.apps.command.batch.senders import Sender
from geminorum.apps.command.failures import command_hint
from geminorum.errors import GeminorumError, InvalidOptions, InvalidPrompt, SetupError, Unsupported

if TYPE_CHECKING:
    from geminorum import Options, Result

_LONGEST_WAIT = 60.0

Brake: TypeAlias = Literal["budget", "no_price"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    concurrency: int = 4
    rate: float | None = None
    """Prompts that may begin in a minute; None: as many as there are hands."""
    budget_usd: float | None = None
    retries: int = 2
    """How often a prompt is sent again after a failure that may pass."""
    first_wait: float = 1.0
    """Seconds before the first of them; doubled each time, unless the API asks for more."""


class Budget:
    """What may still be spent. A prompt in flight is expected to cost what the dearest did."""

    def __init__(self, limit: float | None, costs: Iterable[Decimal] = (), torn: int = 0) -> None:
        self.limit = None if limit is None else Decimal(str(limit))
        known = list(costs)
        self.dearest = max(known, default=Decimal(0))
        self._told = sum(known, Decimal(0))
        self._torn = torn

    @property
    def spent(self) -> Decimal:
        """Nobody told what killed attempts cost: each counts as the dearest that is known by now,
        for too much is safer than nothing."""
        return self._told + self.assumed

    @property
    def assumed(self) -> Decimal:
        """The part of it that was not reported."""
        return self._torn * self.dearest

    def pay(self, usd: Decimal | None) -> None:
        if usd is not None:
            self._told += usd
            self.dearest = max(self.dearest, usd)

    def has_room(self, in_flight: int) -> bool:
        """May one more begin? Before any cost is known, one at a time."""
        if self.limit is None:
            return True
        if not self.dearest:
            return in_flight == 0 and self.spent < self.limit
        return self.spent + self.dearest * (in_flight + 1) <= self.limit

    def share(self, in_flight: int) -> float | None:
        """What one prompt may cost at most, with so many others in flight; None: no limit."""
        if self.limit is None:
            return None
        return float(self.limit - self.spent - self.dearest * in_flight)


class Batch:
    """Sends every task that has no outcome yet. `run` may be cancelled at any time: what was
    in flight has no outcome, and is sent again next time."""

    def __init__(
        self,
        tasks: Iterable[Task],
        journal: Journal,
        options: Options,
        sender: Sender,
        limits: Limits,
        on_outcome: Callable[[TaskOutcome], None] = lambda outcome: None,
    ) -> None:
        self._waiting = [task for task in tasks if task.id not in journal.outcomes]
        self._waiting.reverse()
        self._journal, self._options, self._sender = journal, options, sender
        self._limits, self._tell = limits, on_outcome
        # What goes on elsewhere will tell what it has cost.
        torn = 0 if sender.outlives_us else journal.torn
        self.budget = Budget(limits.budget_usd, journal.costs, torn)
        self.brake: Brake | None = None
        """Why it stopped before its end."""
        self._in_flight = 0
        self._changed = asyncio.Condition()
        self._pace, self._next_start = asyncio.Lock(), 0.0

    @property
    def goes_on_elsewhere(self) -> bool:
        """Whether what was in flight has not ended with the batch."""
        return self._sender.outlives_us

    async def run(self) -> None:
        """Until every task has its outcome, or a brake is pulled. A set-up that cannot work, or
        options that cannot be, end it at once: every other prompt would fail alike."""
        waiting = len(self._waiting)
        hands = min(self._limits.concurrency, waiting)
        try:
            async with self._sender.open(hands, waiting), asyncio.TaskGroup() as group:
                for _ in range(hands):
                    group.create_task(self._work())
        except ExceptionGroup as many:
            raise many.exceptions[0] from None

    async def _work(self) -> None:
        while (task := await self._take()) is not None:
            try:
                await self._send(task)
            finally:
                async with self._changed:
                    self._in_flight -= 1
                    self._changed.notify_all()

    async def _take(self) -> Task | None:
        """The next task, when there is money and it is time for it; None at the end."""
        async with self._changed:
            while self._waiting and not self.brake:
                if self.budget.has_room(self._in_flight):
                    self._in_flight += 1
                    task = self._waiting.pop()
                    break
                if self._in_flight == 0:
                    self.brake = "budget"
                    self._changed.notify_all()
                    return None
                await self._changed.wait()
            else:
                return None
        await self._wait_for_turn()
        return task

    async def _wait_for_turn(self) -> None:
        if self._limits.rate is not None:
            # One after the other: two that wait at a time would begin together where the loop was
            # held up, as by the loading of a library.
            async with self._pace:
                await asyncio.sleep(self._next_start - time.monotonic())
                self._next_start = time.monotonic() + 60 / self._limits.rate

    async def _send(self, task: Task) -> None:
        for number in range(self._limits.retries + 1):
            error = await self._attempt(task, is_last=number == self._limits.retries)
            if error is None:
                return
            await asyncio.sleep(self._pause(number, error))

    async def _attempt(self, task: Task, *, is_last: bool) -> GeminorumError | None:
        """Sends the prompt; the error after which it is to be sent again."""
        share = self.budget.share(self._in_flight - 1)
        attempt = self._journal.begin(task, may_continue=self._sender.outlives_us)
        settle = partial(self._settle, task, attempt, share, is_last)
        return await self._sender.send(task, attempt, self._capped(share), settle)

    def _settle(
        self,
        task: Task,
        attempt: int,
        share: float | None,
        is_last: bool,
        result: Result | None,
        error: GeminorumError | None,
        job: str | None = None,
    ) -> GeminorumError | None:
        """Writes down what came of an attempt."""
        _refuse_hopeless(error)
        usd = result.cost.usd if result and result.cost else None
        self.budget.pay(usd)
        self._watch_price(result)
        is_unpaid = self._is_out_of_money(error, share)
        may_pass = error is not None and error.retryable and not is_last
        if is_unpaid or may_pass:
            self._journal.end(task, attempt, usd)
            return None if is_unpaid else error
        outcome = _outcome(task, result, error, attempt, job)
        self._journal.finish(outcome)
        self._journal.end(task, attempt, usd)
        self._tell(outcome)
        return None

    def _capped(self, share: float | None) -> Options:
        own = self._options.max_budget_usd
        if share is None or (own is not None and own <= share):
            return self._options
        # Not below a trifle: nothing at all is no budget that the library would take.
        return self._options.changed(max_budget_usd=max(share, 1e-9))

    def _watch_price(self, result: Result | None) -> None:
        """Without the price of something that was used, the budget cannot be enforced."""
        unknown = result is not None and result.usage is not None and result.cost is None
        if unknown and self.budget.limit is not None:
            self.brake = "no_price"

    def _is_out_of_money(self, error: GeminorumError | None, share: float | None) -> bool:
        """Was it the batch's budget that ended the prompt, and not a limit of its own?"""
        own = self._options.max_budget_usd
        if share is None or error is None or error.code != "BUDGET":
            return False
        if own is not None and own <= share:
            return False
        self.brake = "budget" if error.result and error.result.cost else "no_price"
        return True

    def _pause(self, number: int, error: GeminorumError) -> float:
        wait: float = self._limits.first_wait * 2**number
        return min(max(error.retry_after or 0.0, wait), _LONGEST_WAIT)


def _refuse_hopeless(error: GeminorumError | None) -> None:
    """Raises what every other prompt would fail with too; one that cannot be sent fails alone."""
    wrong = isinstance(error, InvalidOptions) and not isinstance(error, InvalidPrompt)
    if error is not None and (wrong or isinstance(error, SetupError | Unsupported)):
        raise error


def _outcome(
    task: Task,
    result: Result | None,
    error: GeminorumError | None,
    attempt: int,
    job: str | None = None,
) -> TaskOutcome:
    outcome = TaskOutcome(
        id=task.id,
        digest=task.digest,
        prompt=task.prompt,
        status="error",
        error=_failure(error) if error else None,
        attempts=attempt,
        job=job,
        finished=now(),
    )
    return outcome if result is None else _with_result(outcome, result)


def _failure(error: GeminorumError) -> Failure:
    return Failure(error.code, error.message, command_hint(error.hint), error.retryable)


def _with_result(outcome: TaskOutcome, result: Result) -> TaskOutcome:
    return msgspec.structs.replace(
        outcome,
        status=result.status,
        text=result.text,
        data=result.data,
        session_id=result.session_id,
        model=result.model,
        tokens=result.usage.total if result.usage else 0,
        cost_usd=result.cost.usd if result.cost else None,
        files=[change.path for change in result.files],
        duration=round(result.duration, 3),
    )
