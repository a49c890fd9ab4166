"""One attempt at a job: unpacks its workspace, runs its agent, sends its events, ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from msgspec.structs import replace

from geminorum import client
from geminorum.errors import (
    FleetUnavailable,
    GeminorumError,
    Interrupted,
    LimitReached,
    SessionBusy,
    SetupError,
    Unsupported,
    WorkspaceConflict,
    WorkspaceError,
)
from geminorum.events import Done, Error, Event, Text, TextDelta, ToolUse
from geminorum.fleet.database import Connection, Database, patiently
from geminorum.fleet.events.writer import Chunk, EventWriter
from geminorum.fleet.jobs.rows import decode_spec
from geminorum.fleet.limits.gate import Gatehouse, JobGate
from geminorum.fleet.limits.rules import label_in
from geminorum.fleet.limits.wait_mark import WaitMark
from geminorum.fleet.travel import (
    Failure,
    JobSpec,
    Outcome,
    ended_by,
    error_event,
    options_of,
    refuse_unknown_words,
)
from geminorum.fleet.workers import claims
from geminorum.fleet.workers.claims import Claim, Content
from geminorum.fleet.workers.session_store import AttemptStore
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.runtime.lazy import lazy_module
from geminorum.runtime.off_loop import run_off_loop
from geminorum.system.owned_folder import OwnedFolder
from geminorum.system.shortage import explain_shortage
from geminorum.transports import Transport

if TYPE_CHECKING:
    from geminorum import workspace as workspaces
    from geminorum.workspace import Workspace
else:
    workspaces = lazy_module("geminorum.workspace")

log = logging.getLogger("geminorum.fleet")

Reason: TypeAlias = Literal["cancel", "lost", "hand_back"]
CONTINUE = (
    "The process that you ran in was lost, and you continue on another machine. Your earlier work "
    "is above. Look at what is there before you repeat anything, then finish the task."
)
_RETRY_SECONDS, _MAX_BACKOFF_SECONDS = 0.2, 60.0
ROOM_PREFIX = "geminorum-job-"
"""Of the folders in which agents work."""


class Ending(NamedTuple):
    """How the agent's run ended."""

    events: list[Event]
    """The last ones, which are not written yet."""
    outcome: Outcome
    patch: bytes | None = None
    error: GeminorumError | None = None


class Attempt:
    """A job in the hands of a worker."""

    def __init__(
        self,
        claim: Claim,
        transport: Transport,
        database: Database,
        writer: EventWriter,
        house: Gatehouse,
        on_change: Callable[[], object],
    ) -> None:
        """`on_change` is called when the agent runs, and nothing is left to prepare for it, and
        when it begins to wait for a limit, or waits no more."""
        self.claim, self._on_change, self.is_starting = claim, on_change, True
        self._transport, self._database, self._writer = transport, database, writer
        self._gate = JobGate(house, claim.tenant, WaitMark(database, claim, on_change))
        self._log = writer.open(claim.job, claim.attempt)
        self._task: asyncio.Task[Any] | None = None
        self._live: client.Run[Any] | None = None
        self._reason: Reason | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._notes: set[asyncio.Task[None]] = set()
        self._has_work = False
        """Has the agent said or done anything?"""
        self.met_setup_error = False
        """Has it failed because of this machine?"""
        self.ending = "lost"
        """How it ended: as `Result.status`, or "put back"; "lost" if the job is another's."""

    async def run(self) -> None:
        """Returns when the job has ended, was put back, or belongs to another worker."""
        self._task = asyncio.current_task()
        try:
            ending = await self._run_agent()
        except asyncio.CancelledError:
            if self._reason is None:
                raise
            ending = _ended(Interrupted("the job was stopped before its agent began"))
        except GeminorumError as error:
            ending = _ended(error)
        except Exception as error:
            log.exception("job %s", self.claim.job)
            ending = _ended(GeminorumError(f"the worker failed: {type(error).__name__}: {error}"))
        finally:
            self._task, self.is_starting = None, False
        self.met_setup_error = isinstance(ending.error, SetupError)
        await self._gate.close()
        await self._end(ending)

    def stop(self, reason: Reason) -> None:
        """Ends the agent. A job that is lost stays lost, and what has been said need not be said
        again: a second cancellation would only disturb the first."""
        if self._reason in ("lost", reason):
            return
        self._reason = reason
        if self._live is not None:
            self._stopping = asyncio.ensure_future(self._live.cancel())
        elif self._task is not None:
            self._task.cancel()

    @property
    def is_waiting(self) -> bool:
        """Does the job wait for a limit?"""
        return self._gate.is_waiting

    def spent(self) -> Decimal | None:
        """US dollars so far; None if that is not known."""
        return None if self._live is None else self._live.spent()

    async def _run_agent(self) -> Ending:
        if self.claim.is_cancelled:
            raise Interrupted("the job was cancelled")
        content = await patiently(self._content)
        spec = decode_spec(content.spec)
        refuse_unknown_words(content.spec)
        options = options_of(spec)
        with ExitStack() as stack:
            # A session that starts anew has changed nothing yet.
            progress = content.progress if self.claim.session else None
            room = _Room(spec, content.pack, progress)
            await run_off_loop(lambda: stack.enter_context(room))
            try:
                prompt, ready = await self._prepare(spec, options, room)
                return await self._follow(prompt, ready, room)
            finally:
                await run_off_loop(stack.close)

    async def _content(self) -> Content:
        async with self._database.statements() as connection:
            return await claims.content_of(connection, self.claim.job)

    async def _prepare(
        self, spec: JobSpec, options: Options[Any], room: _Room
    ) -> tuple[str, Options[Any]]:
        ready = options if options.cwd is not None else options.changed(cwd=room.folder)
        if self.claim.via == "api":
            return spec.prompt, ready
        ready = ready.changed(store=self._store())
        if self.claim.session is None:
            return spec.prompt, ready
        await self._say(f"attempt {self.claim.attempt} continues session {self.claim.session}")
        return CONTINUE, ready.changed(resume=self.claim.session, session_id=None)

    def _store(self) -> AttemptStore:
        whose = self.claim.tenant, self.claim.job, self.claim.attempt
        return AttemptStore(self._database.url, *whose, self._on_append())

    async def _say(self, text: str) -> None:
        await self._writer.add(self._log, [Error(text, "TAKEOVER", recoverable=True)])

    async def _follow(self, prompt: str, options: Options[Any], room: _Room) -> Ending:
        last: list[Event] = []
        """From the error that ends the run: another attempt may make it one that passed."""
        via = _gated(self._transport, self._gate)
        async with client.run(prompt, options, via=via) as self._live:
            self.is_starting = False
            self._on_change()
            if self._reason is not None:
                await self._live.cancel()
            while events := await self._live.read():
                self._has_work |= any(isinstance(one, (Text, TextDelta, ToolUse)) for one in events)
                place = 0 if last else _end_of_good(events)
                last += events[place:]
                await self._writer.add(self._log, events[:place])
        result = self._live.result
        ending = Ending(last, Outcome(result=result), error=result.exception())
        try:
            return ending._replace(patch=await run_off_loop(room.patch))
        except (GeminorumError, OSError) as error:
            return ending if ending.error else _without_patch(ending, error)

    async def _end(self, ending: Ending) -> None:
        delay = self._retry_delay(ending)
        self._log.add(ending.events if delay is None else [self._retry_notice(ending, delay)])
        # Before the transaction, which holds the job, and would keep the writer waiting for it.
        chunks = await self._writer.take_rest(self._log)
        while self._reason != "lost":
            try:
                async with self._database.transaction() as connection:
                    if await claims.hold(connection, self.claim.job, self.claim.attempt):
                        await self._write_end(connection, ending, chunks, delay)
                    return
            except FleetUnavailable as error:
                log.warning("job %s waits for the database: %s", self.claim.job, error.message)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write_end(
        self, connection: Connection, ending: Ending, chunks: list[Chunk], delay: float | None
    ) -> None:
        outcome, cost = ending.outcome, ending.outcome.result.cost
        usd = self.spent() if cost is None else cost.usd
        if delay is None:
            await claims.finish(connection, self.claim, chunks, outcome, ending.patch, usd=usd)
            self.ending = outcome.result.status
        else:
            is_back = await claims.put_back(
                *(connection, self.claim, chunks, outcome.result.status, delay),
                usd=usd,
                waits_for=_limit_in_the_way(ending),
                is_excused=self._reason == "hand_back" or _has_only_waited(ending),
                has_work=self._has_work,
                progress=ending.patch,
            )
            self.ending = "put back" if is_back else "interrupted"

    def _retry_delay(self, ending: Ending) -> float | None:
        """Seconds until another attempt; None: this was the last."""
        if self._reason == "hand_back" and not ending.outcome.result.ok:
            return 0.0
        error = ending.error
        if self._reason or error is None:
            return None
        if _limit_in_the_way(ending) is not None:
            return error.retry_after or 0.0
        if self.claim.is_last and not _has_only_waited(ending):
            return None
        if not (error.retryable or isinstance(error, SetupError)):
            return None
        # Attempts that do not count may be more than a thousand.
        backoff = min(2.0 ** min(self.claim.attempt, 10), _MAX_BACKOFF_SECONDS)
        return float(max(error.retry_after or 0.0, backoff))

    def _retry_notice(self, ending: Ending, delay: float) -> Event:
        if ending.error is None or self._reason == "hand_back":
            text = "the worker is leaving; another continues"
            return Error(text, "HANDED_BACK", recoverable=True)
        notice = error_event(ending.error, recoverable=True)
        if _limit_in_the_way(ending) is not None:
            text = f"{notice.message}; the job goes on in {delay:g} s"
            return Error(text, notice.code, recoverable=True, hint=notice.hint, retryable=True)
        text = f"{notice.message}; attempt {self.claim.attempt + 1} begins in {delay:g} s"
        return Error(text, notice.code, recoverable=True, hint=notice.hint, status=notice.status)

    def _on_append(self) -> Any:
        loop = asyncio.get_running_loop()
        return lambda session: loop.call_soon_threadsafe(self._note_checkpoint, session)

    def _note_checkpoint(self, session: str) -> None:
        task = asyncio.ensure_future(self._write_checkpoint(session))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _write_checkpoint(self, session: str) -> None:
        try:
            async with self._database.transaction() as connection:
                await claims.note_checkpoint(
                    connection, self.claim.job, self.claim.attempt, session
                )
        except FleetUnavailable as error:
            log.warning("a checkpoint of job %s is not noted: %s", self.claim.job, error.message)
            if self._task is not None:
                await asyncio.sleep(_RETRY_SECONDS)
                await self._write_checkpoint(session)


class _Room:
    """The folder of an attempt. Blocks: for threads."""

    def __init__(self, spec: JobSpec, pack: bytes | None, progress: bytes | None = None) -> None:
        """`progress` is a patch: what an earlier attempt had changed."""
        self._spec, self._pack, self._progress = spec, pack, progress
        self.folder = Path()
        self._workspace: Workspace | None = None
        self._made: OwnedFolder | None = None

    def __enter__(self) -> _Room:
        try:
            with _machine_is_blamed():
                self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            self._made.remove()

    def _open(self) -> None:
        there = self._spec.options.get("cwd")
        if there is not None:
            self.folder = Path(there)
            self._workspace = workspaces.Workspace.open(self.folder)
            return
        self._made = OwnedFolder(ROOM_PREFIX)
        self.folder = self._made.path / "work"
        self._fill()

    def patch(self) -> bytes | None:
        """What has changed in the workspace; None if the job has none."""
        return None if self._workspace is None else self._workspace.diff().data

    def _fill(self) -> None:
        source = self._spec.source if self._pack is None else workspaces.Pack(self._pack)
        if source is None:
            self.folder.mkdir()
        else:
            self._workspace = workspaces.Workspace.open(source, self.folder)
            self._restore()

    def _restore(self) -> None:
        if self._workspace is None or self._progress is None:
            return
        try:
            self._workspace.apply(workspaces.Patch(self._progress))
        except WorkspaceConflict as error:
            log.warning("the source of a workspace has changed: %s", error.message)


@contextmanager
def _machine_is_blamed() -> Iterator[None]:
    """What the system refuses, such as room on its disk, another machine may have: SetupError."""
    try:
        with explain_shortage():
            yield
    except WorkspaceError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise SetupError(error.message, hint=error.hint) from error
    except OSError as error:
        hint = "let the worker write in its temporary folder: export TMPDIR=…"
        raise SetupError(f"the workspace cannot be opened: {error}", hint=hint) from error


def _end_of_good(events: Sequence[Event]) -> int:
    """The place of the first event that says that the run is over, or has failed."""
    for place, event in enumerate(events):
        if isinstance(event, Done) or (isinstance(event, Error) and not event.recoverable):
            return place
    return len(events)


def _limit_in_the_way(ending: Ending) -> str | None:
    """The limit that delays the job for long, if that is why it ended."""
    error = ending.error
    return label_in(error.message) if isinstance(error, LimitReached) and error.retryable else None


def _has_only_waited(ending: Ending) -> bool:
    """For a limit, or for another run in its session: such an attempt does not count."""
    return _limit_in_the_way(ending) is not None or isinstance(ending.error, SessionBusy)


def _gated(transport: Any, gate: JobGate) -> Transport:
    """The transport with the gate before its requests."""
    if hasattr(transport, "gated"):
        return cast("Transport", transport.gated(gate))
    if gate.is_strict:
        text = f"the fleet has limits, and {type(transport).__name__} cannot count its requests"
        raise Unsupported(text, hint=python_only("give the worker Cli, Acp, Api or a Pool"))
    return cast("Transport", transport)


def _without_patch(ending: Ending, reason: GeminorumError | OSError) -> Ending:
    """The agent has done its work, but what it changed cannot come home."""
    error = reason if isinstance(reason, GeminorumError) else WorkspaceError(str(reason))
    said, result = error_event(error), ending.outcome.result
    events = [
        replace(event, status="error") if isinstance(event, Done) else event
        for event in ending.events
    ]
    told = replace(result, status="error", errors=[*result.errors, said])
    outcome = Outcome(result=told, failure=Failure.of(error))
    return Ending([*events[:-1], said, *events[-1:]], outcome, error=error)


def _ended(error: GeminorumError) -> Ending:
    events, outcome = ended_by(error)
    return Ending(events, outcome, error=error)
