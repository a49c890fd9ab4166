"""Where the prompts of a batch are run: on this machine, or by the workers of a fleet."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

import geminorum
from geminorum import fleet
from geminorum.apps.command.batch.input import Task
from geminorum.errors import FleetUnavailable, GeminorumError

if TYPE_CHECKING:
    from geminorum import Acp, Api, Cli, Options, Result

T = TypeVar("T")
log = logging.getLogger("geminorum.batch")

_RETRY_SECONDS = 1.0


class Settle(Protocol):
    """Writes down what came of an attempt; returns the error after which it is to be sent again."""

    def __call__(
        self, result: Result[Any] | None, error: GeminorumError | None, job: str | None = None
    ) -> GeminorumError | None: ...


class Sender(Protocol):
    """Runs one prompt after the other, several at a time."""

    outlives_us: bool
    """Whether an attempt goes on after a kill of this process, and can be continued."""

    def open(self, hands: int, waiting: int) -> AbstractAsyncContextManager[None]:
        """For the length of a batch: so many at a time, of so many."""
        ...

    async def send(
        self, task: Task, attempt: int, options: Options, settle: Settle
    ) -> GeminorumError | None: ...


class LocalSender:
    """Runs prompts on this machine."""

    outlives_us = False

    def __init__(self, transport: Api | Cli | Acp) -> None:
        self._transport = transport

    @asynccontextmanager
    async def open(self, hands: int, waiting: int) -> AsyncIterator[None]:
        """Starts as many CLIs ahead as there are workers."""
        if not isinstance(self._transport, geminorum.Cli) or waiting <= hands:
            yield
            return
        async with replace(self._transport, spare=hands) as self._transport:
            yield

    async def send(
        self, task: Task, attempt: int, options: Options, settle: Settle
    ) -> GeminorumError | None:
        is_told = False
        try:
            async with geminorum.run(task.prompt, options, via=self._transport) as live:
                async for _ in live:
                    pass
                # Before the block ends, which may take the agent's jobs a while: until it is
                # written down, a kill would let the agent do it all again.
                is_told = True
                return settle(live.result, live.result.exception())
        except GeminorumError as error:
            if is_told:
                raise
            return settle(error.result, error)


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet that runs the prompts of a batch."""

    url: str | None
    """None: GEMINORUM_DB, or else the embedded PostgreSQL."""
    tenant: str
    workspace: str | None
    """A folder, packed for each job, or a git address."""


class FleetSender:
    """Submits prompts as jobs. A job goes on if the batch is killed; the next start finds it."""

    outlives_us = True

    def __init__(self, where: Elsewhere, batch: str, via: Any, attempts: int) -> None:
        """`batch` tells it from all others, also from one with the same prompts."""
        self._fleet = fleet.Fleet(where.url)
        self._batch, self._tenant = batch, where.tenant
        self._how: dict[str, Any] = {
            "via": via,
            "tenant": where.tenant,
            "workspace": where.workspace,
            "max_attempts": attempts,
        }

    @asynccontextmanager
    async def open(self, hands: int, waiting: int) -> AsyncIterator[None]:
        async with self._fleet:
            yield

    async def send(
        self, task: Task, attempt: int, options: Options, settle: Settle
    ) -> GeminorumError | None:
        job = None
        try:
            # Times without a database are waited through: a job that goes on must not be sent
            # again, and one that was not submitted has not failed.
            job = await _persist(lambda: self._submit(task, attempt, options))
            result = await _persist(job.result)
        except GeminorumError as error:
            return settle(error.result, error, job.id if job else None)
        return settle(result, None, job.id)

    async def _submit(self, task: Task, attempt: int, options: Options) -> fleet.Job[Any]:
        key = self._key(task, attempt)
        # By its key first: what is left of the budget, and so its options, may differ by now.
        known = await self._fleet.job_with_key(key, tenant=self._tenant)
        if known is not None:
            return known
        return await self._fleet.submit(task.prompt, options, idempotency_key=key, **self._how)

    def _key(self, task: Task, attempt: int) -> str:
        told = "\0".join((self._batch, task.id, task.digest, str(attempt)))
        digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
        return f"batch-{digest[:40]}"


async def _persist(work: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await work()
        except FleetUnavailable as error:
            log.warning("%s", error.message)
            await asyncio.sleep(_RETRY_SECONDS)
