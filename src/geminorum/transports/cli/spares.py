"""Headless CLIs that were started ahead of their prompts, for runs that isolation costs no time."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum.detect import CliProgram
from geminorum.errors import GeminorumError
from geminorum.options import Options
from geminorum.runtime.off_loop import run_off_loop
from geminorum.transports.callbacks.backchannel import Backchannel, Callbacks
from geminorum.transports.callbacks.final_answer import FinalAnswer, instructed_to_answer
from geminorum.transports.cli.process import CliProcess
from geminorum.transports.launch.context import SETTINGS_FILE, LaunchContext
from geminorum.transports.launch.control_place import is_within
from geminorum.transports.launch.preloads.start_record import StartRecord, state_of
from geminorum.transports.launch.resuming import prepare_resume
from geminorum.transports.launch.unused_session import UnusedSession
from geminorum.transports.process.descendants import Descendants
from geminorum.transports.process.free_memory import free_megabytes
from geminorum.transports.process.tree import OpenInput
from geminorum.wire.launch.argv import has_session_id

if TYPE_CHECKING:
    from geminorum.transports.cli.transport import Cli

log = logging.getLogger("geminorum.spares")

_FIRST_BYTE = b"\n"
"""Without one, the CLI stops waiting for its prompt after half a second. A script that Node loads
takes it away again."""
_SYSTEM_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Devices, and what the kernel makes up when it is read."""
_SHARED_MEMORY = Path("/dev/shm")  # nosec B108
"""Holds files like any other folder."""
_MEGABYTES_NEEDED = 512
"""To be left free: a spare takes about 200."""
_START_SECONDS, _LOOK_SECONDS = 60.0, 0.01
_LOOKS_PER_CHECK = 50
"""Every so many looks at a starting CLI, check whether it was stopped by a signal, too."""
_WAIT_SECONDS = 10.0
"""How long a run waits for a CLI that is starting: more than a start takes, also on a
busy machine."""
_MEMORY_CHECK_SECONDS = 2.0
REFILL_DELAY_SECONDS, REFILL_DELAY_AFTER_COLD_SECONDS = 1.0, 3.0
"""A run that has just begun needs the processor more than the one after it; one that starts cold
needs it until Node has loaded the CLI."""
_QUARTER_OF_AN_HOUR = 900
_MOST_UNFIT, _REST_SECONDS = 4, 30.0
"""Agents that change their folder make every CLI started ahead unfit, which costs a second of
processor time each: after so many in a row, none is started for a while."""
_IDLE_AGES = 10
"""After how many lifetimes without a run spares are no longer replaced."""


@dataclass(frozen=True, slots=True)
class SpareOrder:
    """What a run starts with, apart from its prompt."""

    transport: Cli
    options: Options
    """With the session to resume, by its id. A new session gets its id with the spare."""
    program: CliProgram
    callbacks: Callbacks
    offered: str = field(init=False)
    """What the model is told of functions and of the shape to answer in, as text: callers may
    change a schema in place, and in Python 1 equals True."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "offered", _offered_by(self.callbacks))

    @property
    def refusal(self) -> str | None:
        """Why no CLI can be started ahead for it; None if one can."""
        transport, program = self.transport, self.program
        reasons = {
            "this system has no pipes to wait at": sys.platform == "win32",
            "this CLI is not the npm package": program.node is None or program.version is None,
            "this CLI is too old": not has_session_id(program.version),
            "a sandbox starts a CLI of its own": bool(transport.sandbox),
            "relaunch starts a CLI of its own": transport.relaunch,
            "extra_args may mean anything": bool(transport.extra_args),
            "a session id can be used once": self.options.session_id is not None,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def resembles(self, other: SpareOrder) -> bool:
        """Could a spare that was started for one do for the other, as far as a glance can tell?"""
        ours, theirs = self.options, other.options
        return (
            ours.resume == theirs.resume
            and ours.output_schema == theirs.output_schema
            and self.offered == other.offered
            and self.program == other.program
            and self.transport == other.transport
            and self.callbacks.offers == other.callbacks.offers
        )


def _offered_by(reach: Callbacks) -> str:
    tools = [(tool.name, tool.description, tool.schema) for tool in reach.tools]
    return json.dumps([tools, reach.shape and reach.shape.schema], default=repr)


class Spare:
    """A CLI that waits for its prompt."""

    def __init__(self, order: SpareOrder) -> None:
        self.order, self.answer = order, None
        if order.callbacks.shape is not None:
            self.answer = FinalAnswer(order.callbacks.shape, order.transport.answer_attempts)
        self.session_id = None if order.options.resume is not None else str(uuid.uuid4())
        """Of the session that is begun with it."""
        self.process = CliProcess(order.program, Backchannel(order.callbacks, self.answer))
        self._record: StartRecord | None = None
        self._began, self._quarter = time.monotonic(), _quarter_of_the_hour()
        self._program_state = _state_of(order.program)
        self._unused = self._unused_session()
        self._input = OpenInput(_FIRST_BYTE)  # The last: nothing of it is left where one fails.

    def _unused_session(self) -> UnusedSession:
        context, resumed = self._context_of(self.order), self.order.options.resume
        session = resumed or self.session_id
        assert session is not None
        is_resumed = resumed is not None
        return UnusedSession(str(context.home), str(context.cwd), session, is_resumed)

    async def start(self) -> None:
        """Returns when it waits for its prompt; raises if it will not come to that."""
        try:
            await self.process.start(self._launch)
            async with asyncio.timeout(_START_SECONDS):
                record = await self._await_record()
            await run_off_loop(partial(self._settle, record))
        except BaseException:
            await self.close()
            raise

    async def _await_record(self) -> StartRecord:
        child, looks = self.process.child, 0
        while (record := self._read_record()) is None:
            looks += 1
            if child.exit_code is not None:
                raise GeminorumError(f"it ended: {self.process.stderr()}")
            if looks % _LOOKS_PER_CHECK == 0 and await run_off_loop(lambda: child.is_stopped):
                raise GeminorumError("it was stopped")
            await asyncio.sleep(_LOOK_SECONDS)
        return record

    def _launch(self, process: CliProcess) -> None:
        context = self._context_of(self.order)
        if context.options.resume is not None:
            process.lock_session(context)
            prepare_resume(context.home, context.cwd, context.options.resume)
            # Others may have the session while this one starts and waits.
            process.release_session()
        process.prepare(context, records_start=True)
        # Before it starts: from then on a kill -9 of us would leave its session behind.
        self._unused.note_in(process.prepared.home)
        process.launch(context, self._input)

    def _read_record(self) -> StartRecord | None:
        recorder = self.process.prepared.recorder
        assert recorder is not None
        return recorder.read()

    def _settle(self, record: StartRecord) -> None:
        context = self._context_of(self.order)
        prepared = self.process.prepared
        self._servers = Descendants(self.pid)
        names = (SETTINGS_FILE, *prepared.plan.home.files)
        record = record.without_own_files(prepared.home, names, context.options.resume)
        kept = [*context.folders, prepared.home, *_read_in(context.home)]
        self._record = without_system(record, _package_of(self.order.program), kept)
        if context.options.resume is not None:
            self._unused.remove()  # The file that the CLI began beside the session.

    def why_unfit(self, order: SpareOrder, max_age: float) -> str | None:
        """Why a run would not be the same as one that starts now; None if it would. In a thread:
        it looks at every file that the CLI has looked at."""
        child = self.process.child
        if child.exit_code is not None:
            return "it has ended"
        if child.is_stopped:
            return "it was stopped"
        if child.written:
            return "it spoke before it was asked"
        if self.age > max_age:
            return "it is too old"
        if self._quarter != _quarter_of_the_hour():
            return "the day may have changed"
        if self._program_state != _state_of(order.program):
            return "the CLI was replaced"
        return self._changed_plan(order) or self._changed_file() or self._ended_server()

    def _changed_plan(self, order: SpareOrder) -> str | None:
        prepared, context = self.process.prepared, self._context_of(order)
        return prepared.plan.difference(prepared.plan_for(context))

    def _changed_file(self) -> str | None:
        assert self._record is not None
        changed = self._record.first_difference()
        return None if changed is None else f"{changed!r} has changed"

    def _ended_server(self) -> str | None:
        pid = self._servers.first_out_of_order()
        return None if pid is None else f"process {pid}, which it has started, has ended"

    def _context_of(self, order: SpareOrder) -> LaunchContext:
        """What a start for this order would have to do with, in the same session."""
        options = order.options.changed(session_id=self.session_id)
        if self.answer is not None:
            options = instructed_to_answer(options)
        return LaunchContext(order.transport, options)

    @property
    def pid(self) -> int:
        return self.process.child.pid

    @property
    def age(self) -> float:
        return time.monotonic() - self._began

    def hold_session(self) -> None:
        """Locks the session for the run. In a thread; SessionBusy if another run holds it, OSError
        if another has gone on with it."""
        UnusedSession.forget(self.process.prepared.home)
        lock = self.process.lock_session(self._context_of(self.order))
        if lock is not None:
            self.process.child.hold(lock.fileno())
        if (changed := self._changed_file()) is not None:
            raise OSError(changed)

    async def send(self, prompt: bytes) -> None:
        """Gives it its prompt. OSError if it does not take it."""
        await self._input.send(prompt)

    async def close(self) -> None:
        """Ends it, and leaves nothing of it behind, however often the caller is cancelled."""
        try:
            await run_off_loop(self.kill)
        finally:
            try:
                await self.process.close()
            finally:
                await run_off_loop(self._unused.remove)

    def kill(self) -> None:
        """Ends the process, if there is one. In a thread."""
        try:
            # At once: asked to end, it would run the hooks for the end of a session.
            if hasattr(self.process, "child"):
                self.process.child.kill()
        finally:
            self._input.close()


def _quarter_of_the_hour() -> int:
    """The CLI tells its model the date. In every zone, midnight is at a quarter of an hour."""
    return int(time.time() // _QUARTER_OF_AN_HOUR)


def _package_of(program: CliProgram) -> Path:
    return Path(program.command[-1]).parent.parent


def without_system(record: StartRecord, package: Path, kept: list[Path]) -> StartRecord:
    """Leaves out devices and the CLI's own package, but nothing in the folders that are kept."""
    left_out = [*_SYSTEM_FOLDERS]
    if not any(is_within(folder, [package]) for folder in kept):
        # Another link to one of its files, which package managers make, is no other program.
        left_out.append(package)
    return record.outside(left_out, but_for=[*kept, _SHARED_MEMORY])


def _read_in(home: Path) -> list[Path]:
    """Not all of it: the home of a user without one is the root of the system."""
    return [home / ".gemini", home / ".agents"]


def _state_of(program: CliProgram) -> list[object]:
    """Changes when the CLI or its Node is replaced."""
    files = [*map(Path, program.command), _package_of(program) / "package.json"]
    # Without the last of the times, which also changes when a file gets another name.
    return [state and state[:-1] for state in (state_of(str(file)) for file in files)]


class Spares:
    """Keeps a number of spares for the options that were used last, in one event loop."""

    def __init__(
        self,
        count: int,
        max_age: float,
        *,
        renews: bool,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`renews`: a spare that has become too old is replaced. `loop` is where they can be used;
        None: where they are asked for first."""
        self._count, self._max_age, self._renews = count, max_age, renews
        self.waiting: list[Spare] = []
        self._starting: dict[asyncio.Task[None], SpareOrder] = {}
        self._ending: dict[asyncio.Task[None], SpareOrder] = {}
        self._awaited: list[SpareOrder] = []
        """What runs that wait for one that is starting have ordered."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._expiries: dict[Spare, asyncio.TimerHandle] = {}
        self._loop, self._is_open = loop, True
        self.started = 0
        self._last_taken = time.monotonic()
        self._unfit, self._rest_until = 0, 0.0
        """How many in a row were of no use, and until when no more are started therefore."""

    async def take(self, order: SpareOrder) -> Spare | None:
        """A spare for this run; None if it has to start cold. `refill` follows."""
        if self._is_elsewhere():
            log.debug("the run starts cold: it runs in another event loop than its Cli")
            return None
        self._last_taken = time.monotonic()
        while (spare := await self._take_or_wait(order)) is not None:
            try:
                why = await run_off_loop(partial(spare.why_unfit, order, self._max_age))
            except BaseException:
                self._discard(spare, "the run was given up")
                raise
            if why is None:
                self._unfit = 0
                return spare
            self._discard(spare, why)
            self._count_unfit()
        await self._await_end(order)
        return None

    def _is_elsewhere(self) -> bool:
        """Is the caller in another event loop, where none of this can be used?"""
        self._loop = self._loop or asyncio.get_running_loop()
        return self._loop is not asyncio.get_running_loop()

    async def _await_end(self, order: SpareOrder) -> None:
        """Waits for those that may still have to lock the session of this run."""
        session = order.options.resume
        ending = [task for task, of in self._ending.items() if of.options.resume == session]
        if session is not None and ending:
            await asyncio.wait(ending)

    def _count_unfit(self) -> None:
        self._unfit += 1
        if self._unfit >= _MOST_UNFIT:
            self._unfit, self._rest_until = 0, time.monotonic() + _REST_SECONDS

    def refill(self, order: SpareOrder, delay: float = 0.0) -> None:
        """Starts as many as are missing, after so many seconds."""
        if self._is_elsewhere():
            return
        if (why := order.refusal) is not None:
            log.debug("no CLI is started ahead: %s", why)
            return
        self._call_later("refill", delay, lambda: self._refill(order))

    async def warm(self, order: SpareOrder) -> None:
        """Starts as many as are missing; returns when they wait for their prompts."""
        self._refill(order)
        if self._starting:
            await asyncio.wait([*self._starting])

    async def close(self) -> None:
        """Ends all of them; returns when nothing is left, however often the caller is cancelled."""
        self._is_open = False
        for timer in self._timers.values():
            timer.cancel()
        for task in self._starting:
            task.cancel()
        for spare in [*self.waiting]:
            self._discard(spare, "its block has ended")
        cancelled: asyncio.CancelledError | None = None
        while tasks := [*self._starting, *self._ending]:
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _take_or_wait(self, order: SpareOrder) -> Spare | None:
        """Takes a CLI that waits for its prompt, or one that soon will."""
        starting = self._starting_for(order)
        self._awaited.append(order)
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await self._take_first(order)
        except TimeoutError:
            self._give_up(starting)
            return None
        finally:
            self._awaited.remove(order)

    async def _take_first(self, order: SpareOrder) -> Spare | None:
        while True:
            fit = next((spare for spare in self.waiting if spare.order.resembles(order)), None)
            if fit is not None:
                self._remove(fit)
                return fit
            starting = self._starting_for(order)
            if len(starting) < sum(of.resembles(order) for of in self._awaited):
                return None  # Enough runs wait for these.
            await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)

    def _starting_for(self, order: SpareOrder) -> list[asyncio.Task[None]]:
        return [task for task, of in self._starting.items() if of.resembles(order)]

    def _give_up(self, tasks: list[asyncio.Task[None]]) -> None:
        """Ends those of them that are starting still."""
        for task in tasks:
            if (order := self._starting.pop(task, None)) is not None:
                log.debug("a CLI that was to be started ahead takes too long")
                task.cancel()
                self._end_with(task, order)
                self._count_unfit()

    def _refill(self, order: SpareOrder) -> None:
        if not self._is_open or time.monotonic() < self._rest_until:
            return
        for spare in [one for one in self.waiting if not one.order.resembles(order)]:
            self._discard(spare, "other options are in use")
        missing = self._count - len(self.waiting) - len(self._starting)
        for _ in range(missing):
            if (free := free_megabytes()) < _MEGABYTES_NEEDED:
                log.debug("no CLI is started ahead: only %d MB of memory are free", free)
                return
            task = asyncio.create_task(self._start(order))
            self._starting[task] = order
            task.add_done_callback(lambda done: self._starting.pop(done, None))

    async def _start(self, order: SpareOrder) -> None:
        try:
            spare = await run_off_loop(lambda: Spare(order), undo=Spare.kill)
            await spare.start()
        except (GeminorumError, OSError) as error:  # A full process table, for one.
            log.debug("a CLI that was to be started ahead did not start: %s", error)
            return
        self.started += 1
        self.waiting.append(spare)
        loop = asyncio.get_running_loop()
        self._expiries[spare] = loop.call_later(self._max_age, self._expire, spare)
        self._call_later("memory", _MEMORY_CHECK_SECONDS, self._check_memory)

    def _expire(self, spare: Spare) -> None:
        if spare in self.waiting:
            self._discard(spare, "it is too old")
            idle = time.monotonic() - self._last_taken
            if self._renews and idle < self._max_age * _IDLE_AGES:
                self.refill(spare.order)

    def _check_memory(self) -> None:
        if free_megabytes() < _MEGABYTES_NEEDED:
            for spare in [*self.waiting]:
                self._discard(spare, "memory is short")
        if self.waiting:
            self._call_later("memory", _MEMORY_CHECK_SECONDS, self._check_memory)

    def _discard(self, spare: Spare, why: str) -> None:
        log.debug("a CLI that was started ahead is not used: %s", why)
        if spare in self.waiting:
            self._remove(spare)
        self._end_with(asyncio.create_task(spare.close()), spare.order)

    def _remove(self, spare: Spare) -> None:
        """It does not wait any more."""
        self.waiting.remove(spare)
        self._expiries.pop(spare).cancel()

    def _end_with(self, task: asyncio.Task[None], order: SpareOrder) -> None:
        """The task ends a CLI that was started for this order."""
        self._ending[task] = order
        task.add_done_callback(self._ending.pop)

    def _call_later(self, name: str, delay: float, work: Callable[[], None]) -> None:
        """One of each kind at a time; the sooner one counts."""
        if not self._is_open:
            return
        loop, known = asyncio.get_running_loop(), self._timers.get(name)
        if known is not None and not known.cancelled():
            if loop.time() < known.when() <= loop.time() + delay:
                return
            known.cancel()
        self._timers[name] = loop.call_later(delay, work)
