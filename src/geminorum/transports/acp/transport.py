"""A warm Gemini CLI as a transport: one process for many turns, over ACP."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from geminorum.decisions import Decide
from geminorum.detect import CliProgram
from geminorum.environment import environment_of
from geminorum.errors import (
    GeminorumError,
    MissingResult,
    ProtocolError,
    SessionLost,
    StartTimeout,
    Unsupported,
)
from geminorum.events import Error
from geminorum.hints import advice, python_only
from geminorum.options import Options
from geminorum.prompt import Prompt
from geminorum.runtime.off_loop import run_off_loop
from geminorum.transports import Conversation
from geminorum.transports.acp.process import AcpProcess, ProcessEnded, Refused, refuse_older
from geminorum.transports.acp.session import AcpSession, open_session
from geminorum.transports.acp.tools import SessionTools
from geminorum.transports.acp.turn import AcpTurn
from geminorum.transports.gates import RequestGate
from geminorum.transports.launch.approvals_guard import refuse_reachable_approvals
from geminorum.transports.launch.context import LaunchContext, working_folder
from geminorum.transports.launch.preloads.read_guard import check_folders
from geminorum.transports.launch.preloads.request_gate import refuse_ungated
from geminorum.transports.launch.program import check_listed, find_program
from geminorum.transports.launch.resuming import fallback_notice, resolve_session
from geminorum.transports.launch.transport import CliTransport
from geminorum.transports.turns.asking_place import decisions_of
from geminorum.transports.turns.slot import TurnSlot
from geminorum.wire.ending import LAPSED

if TYPE_CHECKING:
    from geminorum.transports.pool.transport import Pool

_NOT_HERE = {
    "session_id": advice(
        "a warm CLI names its sessions itself; leave it out[, or use {via.cli|Cli()}]"
    ),
}


@dataclass(frozen=True, slots=True)
class Acp(CliTransport):
    """The Gemini CLI, warm: one process for the whole conversation, turns that start in
    milliseconds, and `decide`, which is asked before a tool acts.
    """

    # The CLI asks us, and we ask the caller's `decide`.
    interactive: ClassVar[bool] = True

    def own_settings(self, options: Options) -> Mapping[str, Any]:
        return {
            # Otherwise the wire says nothing of what a command printed.
            "tools": {"shell": {"enableInteractiveShell": False}},
            # The CLI repeats a failed request in silence: ten times, over three minutes.
            "general": {"maxAttempts": 3},
        }

    def refuse_program(self, program: CliProgram) -> None:
        refuse_older(program.version, f"at {program.path}")

    def open(self, options: Options) -> AcpConversation:
        return AcpConversation(self, options)

    def warm(self, options: Options | None = None) -> WarmAcp:
        """Starts one shared process in advance. It is ready when the block is entered:

        ```python
        async with Acp().warm() as warm:
            async with connect(Options(cwd="a"), via=warm) as a, connect(via=warm) as b: ...
        ```
        """
        return WarmAcp(self, options or Options())


def with_gate(transport: Acp, gate: RequestGate | None) -> Acp:
    return transport if gate is None else transport.gated(gate)


def with_decide(transport: Acp, decide: Decide | None) -> Acp:
    """The transport of one conversation in a shared process. Raises Unsupported if that process was
    started without `decide`: its policies depend on it.
    """
    if decide is None:
        return transport
    if transport.decide is None:
        hint = python_only(
            "start it with Acp(decide=…), which also answers chats without a decide of their own"
        )
        raise Unsupported("this warm process was started with nobody to ask", hint=hint)
    return transport.deciding(decide)


async def await_ready(process: AcpProcess, limit: float | None) -> None:
    """Waits until the process takes sessions; raises why it does not."""
    try:
        async with asyncio.timeout(limit):
            await process.wait_until_ready()
    except TimeoutError as error:
        text = f"no hello after {limit:g} s"
        raise StartTimeout(text, hint=advice("see {Acp.start_timeout=…}")) from error
    except (ProcessEnded, Refused) as error:
        if process.is_lapsed:
            raise MissingResult(LAPSED) from error
        hint = process.stderr() or "start it by hand: gemini --acp"
        raise ProtocolError("the CLI ended at its start", hint=hint) from error


class SharedWith:
    """A transport to a shared process, with its own `decide` or gate."""

    def __init__(
        self,
        transport: WarmAcp | Pool,
        decide: Decide | None = None,
        gate: RequestGate | None = None,
    ) -> None:
        self._transport, self._decide, self._gate = transport, decide, gate

    def cli_transport(self) -> CliTransport:
        return self._transport.cli_transport()

    def secrets(self) -> list[str]:
        return self._transport.secrets()

    def open(self, options: Options) -> AbstractAsyncContextManager[Conversation]:
        return self._transport.open(options, self._decide, self._gate)


class WarmAcp:
    """One process as a transport: every conversation is a session of that process.

    Each session has its own folder, model, approval, time limit and budget; what belongs to the
    process (environment, policies, system prompt …) must be what it was started with.
    """

    def __init__(self, transport: Acp, options: Options) -> None:
        self._transport, self._options = transport, options
        # As of now: a pool lends it to those who have the same.
        self._env = environment_of(options)
        self._stack = AsyncExitStack()
        self._process: AcpProcess | None = None

    async def __aenter__(self) -> WarmAcp:
        """Returns when the process is ready for sessions; raises if it cannot be."""
        try:
            await await_ready(await self.start(), self._transport.start_timeout)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def start(self) -> AcpProcess:
        """Starts the process without waiting until it is ready."""
        program = await _find_program(self._transport, self._options)
        process = AcpProcess(self._transport, self._options, program, self._env)
        self._process = await self._stack.enter_async_context(process)
        return self._process

    async def __aexit__(self, *_: object) -> None:
        self._process = None
        await self._stack.aclose()

    @property
    def process(self) -> AcpProcess:
        if self._process is None:
            raise GeminorumError(
                "the warm process is not open",
                hint=python_only("async with Acp().warm() as warm: …"),
            )
        return self._process

    def cli_transport(self) -> CliTransport:
        return self._transport

    def secrets(self) -> list[str]:
        return self._transport.secrets()

    def deciding(self, decide: Decide) -> SharedWith:
        """Returns a transport to the same process with another `decide`."""
        with_decide(self._transport, decide)
        return SharedWith(self, decide)

    def gated(self, gate: RequestGate) -> SharedWith:
        """Returns a transport to the same process with another `gate`."""
        return SharedWith(self, gate=gate)

    def open(
        self, options: Options, decide: Decide | None = None, gate: RequestGate | None = None
    ) -> AcpConversation:
        # One that ended before its hello says by its last words what is wrong with it.
        if self.process.gone and self.process.shaken_hands:
            raise MissingResult(
                "the warm process has ended",
                hint=python_only(
                    "open another with Acp().warm(); a Pool replaces its processes by itself"
                ),
            )
        transport = with_gate(with_decide(self._transport, decide), gate)
        return AcpConversation(transport, options, self.process)


class AcpConversation:
    """Turns in one session of a warm process."""

    phase = "looking for the CLI"
    """What takes the time when this is opened; the session is opened in the background."""

    def __init__(self, transport: Acp, options: Options, process: AcpProcess | None = None) -> None:
        self.transport, self.options = transport, options
        self.decisions = decisions_of(transport, options)
        if transport.decide is not None and options.approval == "yolo":
            text = "decide is never called: these options already allow everything"
            warnings.warn(text, stacklevel=3)
        asks = transport.decide is not None
        self.tools = SessionTools(
            transport,
            options,
            transport.answer_attempts,
            asks=asks,
            on_interrupt=self._on_interrupt,
        )
        self._given, self._process = process, process
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[AcpSession] | None = None
        self._slot = TurnSlot[AcpTurn]()
        self._had_turn = False
        self.notices: list[Error] = []
        """Events for the start of the next turn."""
        self.dangling = False
        """Did a turn break off after a tool was called? The CLI may remember the call alone."""

    @property
    def process(self) -> AcpProcess:
        assert self._process is not None
        return self._process

    @property
    def log_start(self) -> int:
        """Where the stderr of the next turn begins, as a size of the process's log.

        A process may die before its first turn begins, so that turn includes what was said before.
        """
        is_first = self._given is None and not self._had_turn
        return 0 if is_first or not self.process.shaken_hands else self.process.log_size

    async def __aenter__(self) -> AcpConversation:
        check_listed(self.transport, self.options)
        async with AsyncExitStack() as stack:
            self._process = await self._acquire_process(stack)
            self._process.refuse_denied_answer(self.options)
            self._choose_session()
            await stack.enter_async_context(self.tools)
            # In the background: the stream of the first turn reports failures.
            self._opening = asyncio.create_task(self._open())
            stack.push_async_callback(self._close)
            self._stack = stack.pop_all()
        self._slot.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._slot.close()
        finally:
            await self._stack.aclose()

    def turn(self, prompt: Prompt) -> AcpTurn:
        return AcpTurn(self, prompt)

    async def wait_for_session(self) -> AcpSession:
        """Returns the session once it is open; reloads it if the CLI may have lost a response."""
        assert self._opening is not None
        try:
            if self.dangling and not self.process.gone:
                await self._reload(await asyncio.shield(self._opening))
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            if not self._opening.cancelled():
                raise  # It is the caller who was cancelled.
            raise ProcessEnded("session") from None

    async def _reload(self, session: AcpSession) -> None:
        self.dangling = False
        session.close()
        self.options = self.options.changed(resume=session.id)
        self._opening = asyncio.create_task(self._open())

    def begin_turn(self, turn: AcpTurn) -> None:
        self._slot.acquire(turn)
        self._had_turn = True

    def end_turn(self, turn: AcpTurn) -> None:
        self._slot.release(turn)

    def _on_interrupt(self, error: BaseException) -> None:
        """Keeps an exception for the whole program until the reader of the turn takes it."""
        if self._slot.turn is not None:
            self._slot.turn.interrupt.take(error)

    async def _acquire_process(self, stack: AsyncExitStack) -> AcpProcess:
        if self._given is not None:
            _refuse_unsupported(self.options)
            _refuse_ungated_process(self.transport, self._given)
            await run_off_loop(partial(self._check_with, self._given))
            return self._given
        program = await _find_program(self.transport, self.options)
        await run_off_loop(partial(self._check_folders, program))
        return await stack.enter_async_context(AcpProcess(self.transport, self.options, program))

    def _check_with(self, process: AcpProcess) -> None:
        process.check(self.options)
        self._check_folders(process.program)

    def _check_folders(self, program: CliProgram) -> None:
        context = LaunchContext(self.transport, self.options)
        check_folders(context, program)
        refuse_reachable_approvals(context)

    def _choose_session(self) -> None:
        wanted, home = self.options.resume, self.process.home
        if wanted is None:
            return
        try:
            found = resolve_session(home, working_folder(self.options), wanted)
            self.options = self.options.changed(resume=found)
        except SessionLost as lost:
            self._start_new_session(lost)

    def _start_new_session(self, lost: SessionLost) -> None:
        if not self.transport.fresh_if_lost:
            raise lost
        self.options = self.options.changed(resume=None)
        self.notices.append(fallback_notice(lost.message, time.time_ns() // 1_000_000))

    async def _open(self) -> AcpSession:
        limit = self.transport.start_timeout
        try:
            async with asyncio.timeout(limit):
                try:
                    return await self._open_session()
                except SessionLost as lost:
                    self._start_new_session(lost)
                return await self._open_session()
        except TimeoutError as error:
            text = f"no session after {limit:g} s"
            hint = advice(
                "[see {.stderr}][; a slow machine needs {Acp.start_timeout=…}"
                "[, {None} waits forever]]"
            )
            raise StartTimeout(text, hint=hint) from error

    async def _open_session(self) -> AcpSession:
        return await open_session(self.process, self.options, self.tools)

    async def _close(self) -> None:
        task = self._opening
        assert task is not None
        # Not behind the wait: who is cancelled there must not keep the session's lock.
        task.add_done_callback(_close_session)
        task.cancel()
        await asyncio.wait([task])


def _close_session(opening: asyncio.Task[AcpSession]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def _find_program(transport: Acp, options: Options) -> CliProgram:
    _refuse_unsupported(options)
    return await run_off_loop(lambda: _find_gated_program(LaunchContext(transport, options)))


def _find_gated_program(context: LaunchContext) -> CliProgram:
    found = find_program(context)
    refuse_ungated(context, found)
    return found


def _refuse_ungated_process(transport: Acp, process: AcpProcess) -> None:
    if transport.gate is not None and transport.gate.is_strict and process.gate is None:
        hint = python_only("use Acp(), or a Pool, which starts processes that ask")
        raise Unsupported("the requests of this warm process cannot be counted", hint=hint)


def _refuse_unsupported(options: Options) -> None:
    default = Options()
    for name, hint in _NOT_HERE.items():
        if getattr(options, name) != getattr(default, name):
            raise Unsupported(f"the Acp transport cannot honour {name}", hint=hint)
