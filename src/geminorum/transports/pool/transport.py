"""A pool of warm processes that conversations share: starts, lends, checks and replaces them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial

import msgspec

from geminorum.decisions import Decide
from geminorum.errors import (
    CliTooOld,
    GeminorumError,
    InvalidOptions,
    PoolBusy,
    ProtocolError,
    StartTimeout,
)
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.transports.acp.process import AcpProcess
from geminorum.transports.acp.session import AcpSession
from geminorum.transports.acp.transport import (
    Acp,
    AcpConversation,
    SharedWith,
    await_ready,
    with_decide,
    with_gate,
)
from geminorum.transports.acp.turn import AcpTurn
from geminorum.transports.cli.transport import Cli, CliConversation
from geminorum.transports.gates import RequestGate
from geminorum.transports.launch.context import working_folder
from geminorum.transports.launch.transport import CliTransport
from geminorum.transports.pool.headless import HeadlessSlots
from geminorum.transports.pool.queue import PoolQueue, Ticket
from geminorum.transports.pool.worker import (
    CRASHED,
    SILENT,
    UNUSED,
    Limits,
    Worker,
    key_of,
    memory_of,
)

_UNANSWERED = (StartTimeout, ProtocolError, CliTooOld)
"""The process did not give a session to one conversation; it would not to the next, either."""


class ProcessReport(msgspec.Struct, frozen=True):
    """The state of one process of the pool."""

    pid: int | None
    """None while it is starting."""
    conversations: int
    sessions: int
    """Number of sessions since it was started."""
    tool_calls: int
    age: float
    memory_mb: float | None
    retired: str | None
    """Why it takes no new conversations; it ends after its last one."""


class PoolReport(msgspec.Struct, frozen=True):
    """Figures for monitoring a pool; counters start with the pool."""

    processes: tuple[ProcessReport, ...]
    waiting: int
    """Conversations waiting for a place."""
    started: int
    conversations: int
    turns: int
    recycled: dict[str, int]
    """By reason: age, sessions, tool calls, memory, silence, not started; `unused` made room for
    another kind of process."""
    crashed: int


class Pool:
    """A transport that starts warm processes on demand, shares and replaces them:

    ```python
    async with Pool(Acp(), size=2) as pool:
        async with connect(Options(cwd="a"), via=pool) as chat: ...
        await ask("Say hello", via=pool)
    ```

    With a `Cli`, up to `size` conversations at once have a process for each turn, started ahead.
    """

    def __init__(
        self,
        transport: Acp | Cli | None = None,
        *,
        size: int = 4,
        at_once: int = 8,
        wait: float | None = 60.0,
        max_age: float | None = 3600.0,
        max_sessions: int | None = 50,
        max_tool_calls: int | None = 300,
        max_memory_mb: float | None = 600.0,
        spare: bool = True,
    ) -> None:
        """Up to `size` processes, each with `at_once` conversations; `wait` seconds for a place.

        A process that reaches one of the other limits takes no new conversations and ends after its
        last one. `spare` opens a session in advance in the folder used last. With a `Cli`, only
        `size` and `wait` apply.
        """
        _refuse_other_transports(transport)
        self._acp = transport if isinstance(transport, Acp) else Acp()
        self.transport: Acp | Cli = transport or self._acp
        self._headless = (
            HeadlessSlots(transport, size, wait) if isinstance(transport, Cli) else None
        )
        _refuse_below_one(size=size, at_once=at_once, max_sessions=max_sessions)
        _refuse_nothing(wait=wait, max_age=max_age, max_memory_mb=max_memory_mb)
        _refuse_below_one(max_tool_calls=max_tool_calls)
        self._size, self._wait = size, wait
        self._limits = Limits(
            at_once=at_once,
            max_age=max_age,
            max_sessions=max_sessions,
            max_tool_calls=max_tool_calls,
            max_memory_mb=max_memory_mb,
            spare=spare,
        )
        self._workers: list[Worker] = []
        self._endings: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue = PoolQueue(wait)
        self._started = self._conversations = self._turns = 0
        self._retirements: Counter[str] = Counter()

    def cli_transport(self) -> CliTransport:
        """What starts the CLIs, whose sessions a store can keep."""
        return self._headless.transport if self._headless else self._acp

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        return self.cli_transport().secrets()

    # ---- the block

    async def __aenter__(self) -> Pool:
        if self._loop is not None:
            raise GeminorumError(
                "this pool is already open", hint=python_only("make another: Pool(…)")
            )
        self._loop = asyncio.get_running_loop()
        if self._headless is not None:
            self._headless.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        self._queue.wake()  # Conversations that wait for a place learn that there will be none.
        for worker in [*self._workers]:
            self._end(worker)
        await _wait_for_all(self._endings)
        if self._headless is not None:
            await self._headless.close()

    # ---- a transport

    def deciding(self, decide: Decide) -> SharedWith:
        """Returns a transport to the same processes with another `decide`."""
        if self._headless is None:
            with_decide(self._acp, decide)
        return SharedWith(self, decide)

    def gated(self, gate: RequestGate) -> SharedWith:
        """Returns a transport to the same processes with another `gate`."""
        return SharedWith(self, gate=gate)

    def open(
        self, options: Options, decide: Decide | None = None, gate: RequestGate | None = None
    ) -> AbstractAsyncContextManager[AcpConversation | CliConversation]:
        if (headless := self._headless) is not None:
            self._require_open()
            transport = headless.transport
            transport = transport.deciding(decide) if decide else transport
            return headless.open(options, transport.gated(gate) if gate else transport)
        warm = with_gate(with_decide(self._acp, decide), gate)
        return _PoolSlot(partial(self._enter, options, warm))

    async def warm(self, options: Options | None = None) -> None:
        """Starts a process for conversations with these options, and a session for the first one;
        returns when both are ready. Optional: it saves the first conversation the startup time.
        """
        options = options or Options()
        if self._headless is not None:
            self._require_open()
            await self._headless.warm(options)
            return
        worker = await self._acquire_worker(self._acp, options, sessions=0)
        try:
            await await_ready(await worker.wait_for_process(), self._acp.start_timeout)
            if (making := worker.make_spare(options)) is not None:
                await asyncio.wait([making])
        finally:
            self._release(worker)

    def report(self) -> PoolReport:
        """Reports the processes, their load and how often they were replaced."""
        if self._headless is not None:
            return _report_on_headless(self._headless)
        crashed = self._retirements[CRASHED]
        return PoolReport(
            tuple(_report_on(worker) for worker in self._workers if not worker.gone),
            len(self._queue),
            self._started,
            self._conversations,
            self._turns,
            {reason: count for reason, count in self._retirements.items() if reason != CRASHED},
            crashed,
        )

    # ---- a place in a process

    async def _enter(
        self, options: Options, transport: Acp, slot: _PoolSlot, stack: AsyncExitStack
    ) -> AcpConversation:
        worker, process = await self._acquire_process(transport, options, slot)
        conversations: list[_PooledConversation] = []
        stack.callback(lambda: self._release(worker, *conversations))
        conversations.append(
            conversation := _PooledConversation(self, transport, worker, process, options)
        )
        self._conversations += 1
        return await stack.enter_async_context(conversation)

    async def _acquire_process(
        self, transport: Acp, options: Options, slot: _PoolSlot
    ) -> tuple[Worker, AcpProcess]:
        asked = time.monotonic()
        while True:
            folder = working_folder(options)
            worker = await self._acquire_worker(transport, options)
            slot.phase = "starting a process of the pool"
            try:
                return worker, await worker.wait_for_process()
            except GeminorumError as error:
                self._release(worker)
                # It was to start in the folder of another conversation, and that folder is gone.
                foreign = isinstance(error, InvalidOptions) and worker.folder != folder
                # It was started before anybody asked for it, and what it lacked then may be here.
                premature = error.retryable and worker.began < asked
                if not (foreign or premature):
                    raise
            except BaseException:
                self._release(worker)
                raise

    async def _acquire_worker(self, transport: Acp, options: Options, sessions: int = 1) -> Worker:
        """Waits for a process that has room, or starts one."""
        self._require_open()
        try:
            async with asyncio.timeout(self._wait):
                with self._queue.join(key_of(transport, options)) as ticket:
                    worker = await self._wait_for_worker(ticket, transport, options)
                    worker.acquire(options, sessions)
                    return worker
        except TimeoutError as error:
            raise PoolBusy(f"no place in the pool after {self._wait:g} s") from error

    async def _wait_for_worker(self, ticket: Ticket, transport: Acp, options: Options) -> Worker:
        while True:
            self._require_open()
            for worker in [*self._workers]:
                self._examine(worker)
            if (found := self._worker_for(ticket, transport, options)) is not None:
                return found
            await self._queue.wait(self._make_room(ticket))

    def _require_open(self) -> None:
        if self._loop is None:
            raise GeminorumError(
                "the pool is not open", hint=python_only("async with Pool(…) as pool: …")
            )
        if self._loop is not asyncio.get_running_loop():
            hint = python_only("make one pool per loop; without await it is geminorum.sync.Pool")
            raise GeminorumError("this pool belongs to another event loop", hint=hint)

    def _worker_for(self, ticket: Ticket, transport: Acp, options: Options) -> Worker | None:
        folder = working_folder(options)
        fit = [one for one in self._workers if one.key == ticket.key and self._has_room(one)]
        if fit and self._queue.is_first_of_its_kind(ticket):
            # Fill one before the next: a process costs 200 MB, a session three.
            return max(fit, key=lambda worker: (worker.has_spare_for(folder), worker.active))
        if not fit and self._can_grow and self._queue.is_first(ticket):
            return self._start_worker(transport, options)
        return None

    def _has_room(self, worker: Worker) -> bool:
        fit = worker.retired is None and not worker.is_being_pinged
        return fit and worker.active < self._limits.at_once

    @property
    def _can_grow(self) -> bool:
        return sum(not worker.gone for worker in self._workers) < self._size

    def _start_worker(self, transport: Acp, options: Options) -> Worker:
        # Without the `decide` of a conversation: a process has the pool's own.
        transport = with_gate(self._acp, transport.gate)
        worker = Worker(transport, options, self._limits, self._recheck)
        self._workers.append(worker)
        self._started += 1
        return worker

    def _make_room(self, ticket: Ticket) -> float | None:
        """Retires the process that was idle longest, unless one is closing already.

        If none is idle and the first in the queue has waited long enough, retires the one with
        the fewest conversations. Returns the seconds until then.
        """
        if not self._queue.is_first(ticket) or any(map(_is_closing, self._workers)):
            return None
        kept = [one for one in self._workers if one.retired is None and not one.is_being_pinged]
        if idle := [one for one in kept if not one.active]:
            self._retire(min(idle, key=lambda worker: worker.last_used), UNUSED)
            return None
        # A place in one of its kind will do, and so will that of one which is already emptying.
        if len(kept) < len(self._workers) or any(one.key == ticket.key for one in kept):
            return None
        if (seconds_left := self._queue.overtaken_seconds_left(ticket)) <= 0:
            self._retire(min(kept, key=lambda worker: worker.active), UNUSED)
        return max(seconds_left, 0) or None

    # ---- the end of one

    def _release(self, worker: Worker, conversation: _PooledConversation | None = None) -> None:
        worker.release()
        if conversation is not None and worker.retired is None:
            if conversation.was_left_waiting:
                self._retire(worker, SILENT)
            elif conversation.gave_up:
                worker.ping()
        self._recheck(worker)

    def on_turn_end(self, worker: Worker, turn: AcpTurn, options: Options) -> None:
        self._turns += 1
        worker.tool_calls += turn.tool_uses
        # Now and not sooner: it would have slowed the turn down.
        worker.make_spare(options)

    def _recheck(self, worker: Worker) -> None:
        self._examine(worker)
        self._queue.wake()

    def _examine(self, worker: Worker) -> None:
        if worker.closing:
            return  # We end it ourselves: that is no crash.
        if worker.retired is None and (reason := worker.retire_reason()) is not None:
            self._retire(worker, reason)
        elif worker.retired is not None and not worker.active:
            self._end(worker)

    def _retire(self, worker: Worker, reason: str) -> None:
        worker.retired = reason
        self._retirements[reason] += 1
        if not worker.active:
            self._end(worker)
        if reason == CRASHED:
            self._replace(worker)
        self._queue.wake()

    def _end(self, worker: Worker) -> None:
        if not worker.closing:
            worker.closing = True
            self._endings.add(task := asyncio.create_task(self._close_worker(worker)))
            task.add_done_callback(self._endings.discard)

    async def _close_worker(self, worker: Worker) -> None:
        try:
            await worker.close()
        finally:
            self._workers.remove(worker)
            self._replace(worker)
            self._queue.wake()

    def _replace(self, worker: Worker) -> None:
        """Starts another of its kind ahead of need. Not for one that was never used, or a program
        that dies at once would be started forever, and not if others wait for the place."""
        useless = worker.retired == UNUSED or not worker.has_served
        if self._loop is None or useless or self._queue or not self._can_grow:
            return
        if not any(one.key == worker.key and self._has_room(one) for one in self._workers):
            # Its folder may be gone by now: then no replacement is needed.
            with suppress(GeminorumError):
                self._start_worker(worker.transport, worker.options).make_spare(worker.options)


class _PoolSlot:
    """A place for one conversation in a process of the pool, from its opening to its end."""

    def __init__(
        self, enter: Callable[[_PoolSlot, AsyncExitStack], Awaitable[AcpConversation]]
    ) -> None:
        self._enter = enter
        self._stack = AsyncExitStack()
        self.phase = "waiting for a place in the pool"

    async def __aenter__(self) -> AcpConversation:
        async with AsyncExitStack() as stack:
            conversation = await self._enter(self, stack)
            self._stack = stack.pop_all()
        return conversation

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


class _PooledConversation(AcpConversation):
    """A conversation in a process of the pool."""

    def __init__(
        self, pool: Pool, transport: Acp, worker: Worker, process: AcpProcess, options: Options
    ) -> None:
        super().__init__(transport, options, process)
        self._pool, self._worker = pool, worker

    @property
    def was_left_waiting(self) -> bool:
        """Did the process never give it a session?"""
        task = self._opening
        over = task is not None and task.done() and not task.cancelled()
        return task is not None and over and isinstance(task.exception(), _UNANSWERED)

    @property
    def gave_up(self) -> bool:
        """Did it leave, perhaps at its own time limit, before the process gave it a session?"""
        return self._opening is not None and self._opening.cancelled()

    def end_turn(self, turn: AcpTurn) -> None:
        super().end_turn(turn)
        self._pool.on_turn_end(self._worker, turn, self.options)

    async def _open_session(self) -> AcpSession:
        return await self._worker.take_session(self.options, self.tools)


def _is_closing(worker: Worker) -> bool:
    return worker.closing and not worker.gone


def _report_on(worker: Worker) -> ProcessReport:
    return ProcessReport(
        worker.pid,
        worker.active,
        worker.sessions,
        worker.tool_calls,
        worker.age,
        worker.memory_mb,
        worker.retired,
    )


async def _wait_for_all(tasks: set[asyncio.Task[None]]) -> None:
    """Waits for all tasks, even if we are cancelled meanwhile: each has bounds of its own, and
    nothing must be left behind."""
    cancelled: asyncio.CancelledError | None = None
    while tasks:
        try:
            await asyncio.wait([*tasks])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _report_on_headless(slots: HeadlessSlots) -> PoolReport:
    processes = [
        ProcessReport(spare.pid, 0, 0, 0, spare.age, memory_of(spare.pid), None)
        for spare in slots.spares
    ]
    return PoolReport(
        tuple(processes), slots.waiting, slots.started, slots.conversations, slots.turns, {}, 0
    )


def _refuse_other_transports(transport: object) -> None:
    if transport is not None and not isinstance(transport, Acp | Cli):
        raise InvalidOptions(
            f"a pool of {transport!r}", hint=python_only("Pool(Acp(…)) or Pool(Cli(…))")
        )


def _refuse_below_one(**figures: int | None) -> None:
    for name, figure in figures.items():
        whole = isinstance(figure, int) and not isinstance(figure, bool)
        if figure is not None and (not whole or figure < 1):
            raise InvalidOptions(f"{name}={figure!r}", hint=f"{name} is a whole number from 1 on")


def _refuse_nothing(**figures: float | None) -> None:
    for name, figure in figures.items():
        if figure is not None and not figure > 0:
            raise InvalidOptions(
                f"{name}={figure!r}", hint=python_only(f"{name} is more than 0; None: no limit")
            )
