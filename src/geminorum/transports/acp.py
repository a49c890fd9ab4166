"""A warm Gemini CLI as a transport: one process for many turns, over ACP."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from geminorum.cost import PriceBook
from geminorum.decisions import Decide, Decisions
from geminorum.detect import CliProgram, find_cli
from geminorum.errors import (
    GeminorumError,
    MissingResult,
    ProtocolError,
    SessionLost,
    StartTimeout,
    Unsupported,
)
from geminorum.events import Error
from geminorum.off_loop import off_loop
from geminorum.options import Options
from geminorum.permissions import check_listed
from geminorum.prompt import Prompt
from geminorum.redaction import secrets_in_settings
from geminorum.surroundings import environment
from geminorum.tools import Tool, tools_of
from geminorum.transports import Conversation, require_no_turn, require_open
from geminorum.transports.acp_process import AcpProcess, ProcessEnded, Refused, refuse_older
from geminorum.transports.acp_session import AcpSession, opened
from geminorum.transports.acp_tools import SessionTools
from geminorum.transports.acp_turn import AcpTurn
from geminorum.transports.backchannel import own_tools
from geminorum.transports.cli import check_callbacks, check_door
from geminorum.transports.keeper import KEEPERS
from geminorum.transports.launch.context import LaunchContext, working_folder
from geminorum.transports.launch.read_guard import check_folders
from geminorum.transports.newer_cli import warn_if_newer
from geminorum.transports.resuming import going_fresh, to_resume
from geminorum.transports.watch import StallTimeout
from geminorum.wire.argv import missing_flags

if TYPE_CHECKING:
    from geminorum.transports.pool import Pool

_NOT_HERE = {
    "session_id": "a warm CLI names its sessions itself; leave it out, or use Cli()",
}


@dataclass(frozen=True, slots=True)
class Acp:
    """The Gemini CLI, warm: one process for the whole conversation, turns that start in
    milliseconds, and `decide`, which is asked before a tool acts.
    """

    executable: str | os.PathLike[str] | None = None
    """A path or name. None: search GEMINI_CLI_PATH, PATH and the common locations."""
    grace: float = 5.0
    """Seconds between asking a turn or the process tree to stop and killing it."""
    decide: Decide | None = None
    """Answers permission requests. None: they are denied."""
    tools: Sequence[Callable[..., Any] | Tool] = ()
    """Functions of this process that the agent may call during a conversation; `decide` is asked
    about them."""
    decide_timeout: float | None = 300.0
    """Seconds until an unanswered request is denied. None: wait forever."""
    answer_attempts: int = 3
    """How often the agent may try to match `output_schema`."""
    extra_args: tuple[str, ...] = ()
    start_timeout: float | None = 60.0
    """Seconds until a session is open. None: wait forever."""
    stall_timeout: StallTimeout = "auto"
    """Seconds of silence that end a turn. "auto": 600, with no limit while a tool runs or a
    permission request is open. None: no limit."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """CLI settings for these sessions; they override the user's and geminorum's."""
    fresh_if_lost: bool = False
    """If the session to resume is gone, continue in a new one and report that in the stream."""
    prices: PriceBook | None = None
    """The price book. None: the list prices of the day."""
    heap_mb: int | None = None
    """Heap size of the CLI. None: half of the machine's memory, the CLI's own default."""
    plan_tools: bool = False
    """Offer the tools with which a model in plan mode asks to leave it."""
    dotenv: bool = False
    """Read the folder's `.env`, which may send the API key elsewhere."""
    secrets_in_tools: bool = False
    """Let shell tools see keys and tokens in the environment."""
    gemini_folder: bool = False
    """Let file tools write to `.gemini/` and `.agents/`, which affect later runs."""
    outside_links: bool = False
    """Also send context files (GEMINI.md) and skills that the folder links to outside the
    project."""
    shared_tmp: bool = False
    """Let the CLI leave its error reports, which hold whole conversations, in the system's
    temporary folder. Otherwise the process has its own, which is removed at the end."""
    # The protocol's first message would never pass a sandbox, nor a process started twice.
    sandbox: None = field(default=None, init=False, repr=False)
    pre_approved: tuple[str, ...] = field(default=(), init=False, repr=False)
    relaunch: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        check_door(self, ("start_timeout", "stall_timeout", "grace"))
        # Once and for all: what was passed may be an iterator.
        object.__setattr__(self, "tools", tools_of(self.tools))
        check_callbacks(self)

    # The CLI asks us, and we ask whoever decides.
    interactive: ClassVar[bool] = True

    def own_settings(self, options: Options) -> Mapping[str, Any]:
        """Settings that this transport needs; the caller's settings override them."""
        return {
            # Otherwise the wire says nothing of what a command printed.
            "tools": {"shell": {"enableInteractiveShell": False}},
            # The CLI repeats a failed request in silence: ten times, over three minutes.
            "general": {"maxAttempts": 3},
        }

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        return list(secrets_in_settings(self.settings))

    def deciding(self, decide: Decide) -> Acp:
        """Returns a copy with another `decide`."""
        return replace(self, decide=decide)

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


def decided_by(door: Acp, decide: Decide | None) -> Acp:
    """The transport of one conversation in a shared process. Raises Unsupported if that process was
    started without `decide`: its policies depend on it.
    """
    if decide is None:
        return door
    if door.decide is None:
        hint = "start it with Acp(decide=…), which also answers chats without a decide of their own"
        raise Unsupported("this warm process was started with nobody to ask", hint=hint)
    return door.deciding(decide)


async def greeted(process: AcpProcess, limit: float | None) -> None:
    """Waits until the process takes sessions; raises why it does not."""
    try:
        async with asyncio.timeout(limit):
            await process.ready()
    except TimeoutError as error:
        text = f"no hello after {limit:g} s"
        raise StartTimeout(text, hint="see Acp(start_timeout=…)") from error
    except (ProcessEnded, Refused) as error:
        hint = process.stderr() or "start it by hand: gemini --acp"
        raise ProtocolError("the CLI ended at its start", hint=hint) from error


class SharedWith:
    """A transport to a shared process, with its own `decide`."""

    def __init__(self, transport: WarmAcp | Pool, decide: Decide) -> None:
        self._transport, self._decide = transport, decide

    def secrets(self) -> list[str]:
        return self._transport.secrets()

    def open(self, options: Options) -> AbstractAsyncContextManager[Conversation]:
        return self._transport.open(options, self._decide)


class WarmAcp:
    """One process as a transport: every conversation is a session of that process.

    Each session has its own folder, model, approval, time limit and budget; what belongs to the
    process (environment, policies, system prompt …) must be what it was started with.
    """

    def __init__(self, door: Acp, options: Options) -> None:
        self._door, self._options = door, options
        # As of now: a pool lends it to those who have the same.
        self._env = environment(options)
        self._stack = AsyncExitStack()
        self._process: AcpProcess | None = None

    async def __aenter__(self) -> WarmAcp:
        """Returns when the process is ready for sessions; raises if it cannot be."""
        try:
            await greeted(await self.start(), self._door.start_timeout)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def start(self) -> AcpProcess:
        """Starts the process without waiting until it is ready."""
        program = await _program(self._door, self._options)
        process = AcpProcess(self._door, self._options, program, self._env)
        self._process = await self._stack.enter_async_context(process)
        return self._process

    async def __aexit__(self, *_: object) -> None:
        self._process = None
        await self._stack.aclose()

    @property
    def process(self) -> AcpProcess:
        if self._process is None:
            raise GeminorumError(
                "the warm process is not open", hint="async with Acp().warm() as warm: …"
            )
        return self._process

    def secrets(self) -> list[str]:
        return self._door.secrets()

    def deciding(self, decide: Decide) -> SharedWith:
        """Returns a transport to the same process with another `decide`."""
        decided_by(self._door, decide)
        return SharedWith(self, decide)

    def open(self, options: Options, decide: Decide | None = None) -> AcpConversation:
        # One that ended before its hello says by its last words what is wrong with it.
        if self.process.gone and self.process.shaken_hands:
            raise MissingResult(
                "the warm process has ended",
                hint="open another with Acp().warm(); a Pool replaces its processes by itself",
            )
        return AcpConversation(decided_by(self._door, decide), options, self.process)


class AcpConversation:
    """Turns in one session of a warm process."""

    phase = "looking for the CLI"
    """What takes the time when this is opened; the session is opened in the background."""

    def __init__(self, door: Acp, options: Options, process: AcpProcess | None = None) -> None:
        self.door, self.options = door, options
        self.decisions = Decisions(door.decide, door.decide_timeout)
        if door.decide is not None and options.approval == "yolo":
            text = "decide is never called: these options already allow everything"
            warnings.warn(text, stacklevel=3)
        asks = door.decide is not None
        self.tools = SessionTools(
            door, options, door.answer_attempts, asks=asks, on_interrupt=self._interrupted
        )
        self._given, self._process = process, process
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[AcpSession] | None = None
        self._turn: AcpTurn | None = None
        self._is_open = self._had_turn = False
        self.notices: list[Error] = []
        """What is to be said at the head of the next turn."""
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
        own = {tool.name for tool in own_tools(self.door)}
        listed = (*(self.options.allowed_tools or ()), *self.options.disallowed_tools)
        check_listed(listed, own, stacklevel=2)
        async with AsyncExitStack() as stack:
            self._process = await self._own_or_given(stack)
            self._process.refuse_denied_answer(self.options)
            self._choose_session()
            await stack.enter_async_context(self.tools)
            # In the background: what goes wrong is told by the first turn's stream.
            self._opening = asyncio.create_task(self._open())
            stack.push_async_callback(self._close)
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        try:
            if self._turn is not None:
                await self._turn.stop("cancel")
        finally:
            await self._stack.aclose()

    def turn(self, prompt: Prompt) -> AcpTurn:
        return AcpTurn(self, prompt)

    async def session(self) -> AcpSession:
        """The session, once it is open; loaded anew where the CLI may have lost a response."""
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

    def begun(self, turn: AcpTurn) -> None:
        require_open(is_open=self._is_open)
        require_no_turn(self._turn)
        self._turn, self._had_turn = turn, True

    def ended(self, turn: AcpTurn) -> None:
        if self._turn is turn:
            self._turn = None

    def _interrupted(self, error: BaseException) -> None:
        """A function raised what is meant for the whole program: whoever reads the turn gets it."""
        if self._turn is not None:
            self._turn.interrupt.take(error)

    async def _own_or_given(self, stack: AsyncExitStack) -> AcpProcess:
        if self._given is not None:
            _refuse_unsupported(self.options)
            await off_loop(partial(self._check_with, self._given))
            return self._given
        program = await _program(self.door, self.options)
        await off_loop(partial(self._check_folders, program))
        return await stack.enter_async_context(AcpProcess(self.door, self.options, program))

    def _check_with(self, process: AcpProcess) -> None:
        process.check(self.options)
        self._check_folders(process.program)

    def _check_folders(self, program: CliProgram) -> None:
        check_folders(LaunchContext(self.door, self.options), program)

    def _choose_session(self) -> None:
        wanted, home = self.options.resume, self.process.home
        if wanted is None:
            return
        try:
            found = to_resume(home, working_folder(self.options), wanted)
            self.options = self.options.changed(resume=found)
        except SessionLost as lost:
            self._go_fresh(lost)

    def _go_fresh(self, lost: SessionLost) -> None:
        if not self.door.fresh_if_lost:
            raise lost
        self.options = self.options.changed(resume=None)
        self.notices.append(going_fresh(lost.message, time.time_ns() // 1_000_000))

    async def _open(self) -> AcpSession:
        limit = self.door.start_timeout
        try:
            async with asyncio.timeout(limit):
                try:
                    return await self._opened()
                except SessionLost as lost:
                    self._go_fresh(lost)
                return await self._opened()
        except TimeoutError as error:
            text = f"no session after {limit:g} s"
            hint = "see .stderr; a slow machine needs Acp(start_timeout=…), None waits forever"
            raise StartTimeout(text, hint=hint) from error

    async def _opened(self) -> AcpSession:
        return await opened(self.process, self.options, self.tools)

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


async def _program(door: Acp, options: Options) -> CliProgram:
    _refuse_unsupported(options)
    working_folder(options)
    # In a thread: to learn a Node's version a process may have to be started.
    found = await off_loop(lambda: _found(door, options))
    refuse_older(found.version, f"at {found.path}")
    warn_if_newer(found.version)
    if missing := missing_flags(options, found.version):
        raise Unsupported(
            f"this CLI is too old for {', '.join(missing)}",
            hint="update it with `npm install -g @google/gemini-cli@latest`",
        )
    return found


def _found(door: Acp, options: Options) -> CliProgram:
    KEEPERS.prepare()
    return find_cli(door.executable, environment(options))


def _refuse_unsupported(options: Options) -> None:
    default = Options()
    for name, hint in _NOT_HERE.items():
        if getattr(options, name) != getattr(default, name):
            raise Unsupported(f"the Acp transport cannot honour {name}", hint=hint)
