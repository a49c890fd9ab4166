"""Fleet: submits jobs, follows their events from anywhere, returns their results."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from geminorum.errors import FleetError, Interrupted, InvalidOptions, UnknownJob
from geminorum.events import DataT, Done, Event
from geminorum.fleet import retention, schema, status
from geminorum.fleet.address import database_url
from geminorum.fleet.database import Database, patiently
from geminorum.fleet.events import reading
from geminorum.fleet.events.feed import EventFeed, Numbered
from geminorum.fleet.jobs import job_ids, resubmission, rows
from geminorum.fleet.jobs.details import JobDetails, details_of
from geminorum.fleet.jobs.rows import JobInfo, NewJob, State
from geminorum.fleet.limits import table as limits_table
from geminorum.fleet.limits.rules import (
    Limit,
    LimitInfo,
    LimitKind,
    Reaction,
    new_limit,
    require_whose,
)
from geminorum.fleet.retention import Pruned
from geminorum.fleet.status import FleetStatus
from geminorum.fleet.travel import VIAS, Outcome, Via, ended_by, spec_of
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.runtime.lazy import lazy_module
from geminorum.runtime.off_loop import run_off_loop
from geminorum.views.result import Result

if TYPE_CHECKING:
    from geminorum import schema as answer_schema
    from geminorum import workspace as workspaces
    from geminorum.workspace import Patch
else:
    answer_schema = lazy_module("geminorum.schema")
    workspaces = lazy_module("geminorum.workspace")

DEFAULT_TENANT = "default"
_MAX_NAME = 100
_CANCEL_ROUNDS = 3
"""Of asking for the end of a job that is put back and taken again meanwhile."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What `submit` takes, for `submit_many`."""

    prompt: str
    options: Options[Any] = Options()
    via: Via = "cli"
    tenant: str = DEFAULT_TENANT
    workspace: str | None = None
    """A folder, which is packed and travels, or a git address, which the worker fetches:
    `git+https://host/path@ref`. None: an empty folder, or `Options.cwd`, which exists there."""
    priority: int = 0
    """Higher comes first, within a tenant."""
    idempotency_key: str | None = None
    """A job with the same key and tenant is submitted once."""
    max_attempts: int = 3
    """How often it is tried if a worker is lost, or the failure may pass."""


class Fleet:
    """A connection to the workers' database; opened by `async with Fleet() as fleet`."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: of a PostgreSQL; None: GEMINORUM_DB, or else one that geminorum runs itself."""
        self._url = url
        self._stack = AsyncExitStack()
        self._database: Database | None = None
        self._feed: EventFeed | None = None

    async def __aenter__(self) -> Fleet:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(database_url(self._url))
            self._database = await stack.enter_async_context(Database(url))
            await schema.require_current(self._database)
            self._feed = await stack.enter_async_context(EventFeed(self._database))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._database = self._feed = None
        await self._stack.aclose()

    async def submit(
        self,
        prompt: str,
        options: Options[DataT] | None = None,
        *,
        via: Via = "cli",
        tenant: str = DEFAULT_TENANT,
        workspace: str | os.PathLike[str] | None = None,
        priority: int = 0,
        idempotency_key: str | None = None,
        max_attempts: int = 3,
    ) -> Job[DataT]:
        """Queues a job for any worker, and returns at once. See `JobRequest` for the arguments."""
        request = JobRequest(
            prompt=prompt,
            options=Options() if options is None else options,
            via=via,
            tenant=tenant,
            workspace=None if workspace is None else os.fspath(workspace),
            priority=priority,
            idempotency_key=idempotency_key,
            max_attempts=max_attempts,
        )
        return (await self.submit_many([request]))[0]

    async def submit_many(self, requests: Iterable[JobRequest]) -> list[Job[Any]]:
        """Queues several jobs, all or none."""
        wanted = list(requests)
        new = await run_off_loop(lambda: [_new_job(request) for request in wanted])
        async with self.database.transaction() as connection:
            ids = await rows.submit(connection, new)
        pairs = zip(ids, wanted, strict=True)
        return [Job(self, job, request.options) for job, request in pairs]

    async def job(self, id: str | uuid.UUID) -> Job[Any]:
        """A job that was submitted before, by anybody."""
        job: Job[Any] = Job(self, rows.id_of(id), None)
        await job.info()
        return job

    async def find_job(self, beginning: str) -> Job[Any]:
        """The only job whose id begins like that; `InvalidOptions` if there are several."""
        async with self.database.transaction() as connection:
            return Job(self, await job_ids.whole_id(connection, beginning), None)

    async def job_with_key(self, key: str, *, tenant: str = DEFAULT_TENANT) -> Job[Any] | None:
        """The job that was submitted with this idempotency key; None if there is none."""
        async with self.database.transaction() as connection:
            found = await rows.id_with_key(connection, tenant, key)
        return None if found is None else Job(self, found, None)

    async def jobs(
        self, *, tenant: str | None = None, state: State | None = None, limit: int = 100
    ) -> list[JobInfo]:
        """Lists jobs, the newest first."""
        async with self.database.transaction() as connection:
            return await rows.list_jobs(connection, tenant=tenant, state=state, limit=limit)

    async def status(self) -> FleetStatus:
        """Workers, queues, running jobs, limits that jobs wait for, and spending by tenant."""
        async with self.database.transaction() as connection:
            return await status.status_of(connection)

    async def prune(self, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
        """Removes jobs that ended longer ago than that, their sessions, and lost workers."""
        if older_than < timedelta(0):
            raise InvalidOptions(f"older_than is an age, not {older_than}")
        return await retention.prune(self.database, older_than, dry_run=dry_run)

    async def limits(self) -> list[LimitInfo]:
        """The limits over all workers, and how far each is used."""
        async with self.database.transaction() as connection:
            return await limits_table.list_limits(connection)

    async def set_limit(
        self,
        kind: LimitKind,
        amount: float | Decimal,
        *,
        key: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
        burst: float | Decimal | None = None,
        reaction: Reaction = "delay",
    ) -> Limit:
        """Limits all workers together, from now on; replaces a limit of the same kind for the same.

        `key` (see `key_fingerprint`), `tenant` and `model` are one of them, "*" for each of its
        own, or None for all together. `burst` is how much more may come at a time; by default a
        second's share. A request above the limit waits, or is refused: `reaction="refuse"`.
        """
        scope = {"key": key, "tenant": tenant, "model": model}
        limit = new_limit(kind, amount, **scope, burst=burst, reaction=reaction)
        async with self.database.transaction() as connection:
            await limits_table.set_limit(connection, limit)
        return limit

    async def remove_limit(
        self,
        kind: LimitKind,
        *,
        key: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
    ) -> bool:
        """Removes the limit that was set for the same; False if there was none."""
        require_whose(kind, key, tenant, model)
        async with self.database.transaction() as connection:
            return await limits_table.remove_limit(connection, kind, key, tenant, model)

    @property
    def database(self) -> Database:
        if self._database is None:
            raise _not_open()
        return self._database

    @property
    def feed(self) -> EventFeed:
        if self._feed is None:
            raise _not_open()
        return self._feed


class Job(Generic[DataT]):
    """A job of the fleet, wherever it runs."""

    def __init__(self, fleet: Fleet, job: uuid.UUID, options: Options[DataT] | None) -> None:
        self._fleet, self._job, self._options = fleet, job, options

    @property
    def id(self) -> str:
        return str(self._job)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    async def info(self) -> JobInfo:
        async with self._fleet.database.transaction() as connection:
            found = await rows.info_of(connection, self._job)
        if found is None:
            raise self._unknown()
        return found

    async def details(self) -> JobDetails:
        """Its prompt, its options and its attempts, too."""
        async with self._fleet.database.transaction() as connection:
            found = await details_of(connection, self._job)
        if found is None:
            raise self._unknown()
        return found

    async def events(self, after: tuple[int, int] = (0, 0)) -> AsyncIterator[Event]:
        """All events from the first one on, also of a job that is over; the last is its Done."""
        async for _, event in self.numbered_events(after):
            yield event

    async def numbered_events(
        self, after: tuple[int, int] = (0, 0)
    ) -> AsyncIterator[tuple[tuple[int, int], Event]]:
        """Events with their cursors, (attempt, number): `after` continues behind one of them."""
        async with aclosing(self.event_batches(after)) as batches:
            async for batch in batches:
                for pair in batch:
                    yield pair

    async def event_batches(
        self, after: tuple[int, int] = (0, 0)
    ) -> AsyncGenerator[Numbered, None]:
        """The same as they arrive, several at a time; none of the batches is empty."""
        with self._fleet.feed.follow(self._job, after) as follower:
            while (found := await follower.read()) is not None:
                yield found
                if isinstance(found[-1][1], Done):
                    return
        await patiently(self.info)  # It is over, or gone: then this raises.

    async def read_events(
        self, after: tuple[int, int] = (0, 0), *, limit: int = 500
    ) -> list[tuple[tuple[int, int], Event]]:
        """Events with their cursors that are there now, no more than `limit`; does not wait."""
        return await reading.read_events(self._fleet.database, self._job, after, limit)

    async def result(self) -> Result[DataT]:
        """Waits for the end; returns the Result, or raises the exception, as a local run would."""
        outcome = await self._wait()
        if outcome.failure is not None:
            raise outcome.failure.exception()
        return cast("Result[DataT]", self._typed(outcome.result).raise_on_failure())

    async def wait(self) -> Result[DataT]:
        """Waits for the end; returns the Result also of a job that failed."""
        return self._typed((await self._wait()).result)

    async def retry(self) -> Job[DataT]:
        """Submits a job that failed, or was cancelled, once more; returns the new job."""
        async with self._fleet.database.transaction() as connection:
            new = await resubmission.resubmit(connection, self._job)
        return Job(self._fleet, new, self._options)

    async def cancel(self) -> None:
        """Stops the job, wherever it is. Its events, and its Done, can still be read."""
        closing, outcome = ended_by(Interrupted("the job was cancelled before it began"))
        for _ in range(_CANCEL_ROUNDS):
            async with self._fleet.database.transaction() as connection:
                if await rows.request_cancel(connection, self._job, closing, outcome):
                    return

    async def patch(self) -> Patch | None:
        """What the agent changed in its workspace; None if the job had none, or is not over."""
        async with self._fleet.database.transaction() as connection:
            data = await rows.patch_of(connection, self._job)
        return None if data is None else workspaces.Patch(data)

    async def _wait(self) -> Outcome:
        with self._fleet.feed.await_end(self._job) as end:
            while (outcome := await patiently(self._find_outcome)) is None:
                await patiently(self.info)  # It may be gone: then this raises.
                await end.wait()
        return outcome

    async def _find_outcome(self) -> Outcome | None:
        async with self._fleet.database.transaction() as connection:
            return await rows.outcome_of(connection, self._job)

    def _unknown(self) -> UnknownJob:
        return UnknownJob(f"the fleet has no job {self.id}")

    def _typed(self, result: Result[Any]) -> Result[Any]:
        if self._options is None or self._options.output_schema is None or result.data is None:
            return result
        shape = answer_schema.shape_of(self._options.output_schema)
        return msgspec.structs.replace(result, data=shape.typed(result.data))


def _new_job(request: JobRequest) -> NewJob:
    """Blocks: it packs the workspace."""
    for text, hint in _problems(request):
        raise InvalidOptions(text, hint=hint)
    source, pack = _packed(request.workspace)
    return NewJob(
        spec=spec_of(request.prompt, request.options, source, has_pack=pack is not None),
        via=request.via,
        tenant=request.tenant,
        priority=request.priority,
        max_attempts=request.max_attempts,
        idempotency_key=request.idempotency_key,
        pack=pack,
    )


def _packed(workspace: str | None) -> tuple[str | None, bytes | None]:
    if workspace is None:
        return None, None
    if workspace.startswith("git+"):
        return workspace, None
    return None, workspaces.pack(Path(workspace)).data


def _problems(request: JobRequest) -> Iterable[tuple[str, str | None]]:
    if request.via not in VIAS:
        hint = python_only(f"via is one of {', '.join(VIAS)}; a worker has the transport itself")
        yield f"via={request.via!r} cannot travel", hint
    if not isinstance(request.options, Options):
        yield f"options is a {type(request.options).__name__}", python_only("Options(…)")
    for name in ("tenant", "idempotency_key"):
        value = getattr(request, name)
        if value is not None and not (0 < len(value) <= _MAX_NAME and value.isprintable()):
            yield f"{name} has 1 to {_MAX_NAME} printable characters, not {value!r}", None
    if not 1 <= request.max_attempts <= _MAX_NAME:
        yield f"max_attempts is 1 to {_MAX_NAME}, not {request.max_attempts!r}", None


def _not_open() -> FleetError:
    return FleetError("the fleet is not open", hint=python_only("async with Fleet() as fleet: …"))
