"""One warm process of a pool: its conversations, its spare session, and when to retire it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import psutil

from geminorum.environment import upwards
from geminorum.errors import GeminorumError
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.runtime.off_loop import run_off_loop
from geminorum.transports.acp.process import AcpProcess, ProcessEnded, Refused, process_wide
from geminorum.transports.acp.session import AcpSession, configure_session, open_session
from geminorum.transports.acp.tools import SessionTools
from geminorum.transports.acp.transport import Acp
from geminorum.transports.launch.command import compile_cache
from geminorum.transports.launch.context import LaunchContext, working_folder
from geminorum.transports.launch.control_place import is_within, place_outside
from geminorum.transports.process.tree_memory import tree_megabytes
from geminorum.wire.policy.toml_writer import Steering

CRASHED, UNUSED, NOT_STARTED, SILENT = "crashed", "unused", "not started", "silence"
"""Why a process is let go, beside the limits: it ended by itself; another kind was wanted; there
never was one; it does not answer."""
_MIN_PING_SECONDS = 0.5
"""The shortest time to wait for the answer to a ping: a busy process may be slow."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one process may hold, and go through, before it is replaced. None: no limit."""

    at_once: int
    max_age: float | None
    max_sessions: int | None
    max_tool_calls: int | None
    max_memory_mb: float | None
    spare: bool


Key = tuple[Options, dict[str, str], Path | None, tuple[Path | None, bool], str | None]


def key_of(transport: Acp, options: Options) -> Key:
    """Everything that a process is started with; conversations share one if their keys are equal.

    The variables of this process are part of it: a changed API key must reach the next run.
    """
    context = LaunchContext(transport, options)
    own = _folder_to_itself(context)
    scope = None if transport.gate is None else transport.gate.scope
    return process_wide(options), dict(context.env), own, _control_outside(context), scope


def _control_outside(context: LaunchContext) -> tuple[Path | None, bool]:
    """Where control files lie outside of the conversation's folders, and whether the cache of
    compiled code does."""
    folders = context.agent_folders
    return place_outside(folders), is_within(compile_cache(), folders)


def _folder_to_itself(context: LaunchContext) -> Path | None:
    """The folder, if its content would apply to conversations from other folders, too: variables,
    settings (the CLI has one telemetry per process, and it logs prompts), and the files that the
    policy of a process protects."""
    folder, home = context.cwd, context.home
    settings = folder / ".gemini" / "settings.json"
    above = [one for one in upwards(folder) if one not in (home, home.resolve())]
    read = context.options.trust_workspace is not False and folder != home and settings.exists()
    dotenv = any((one / ".gemini" / ".env").exists() for one in above)
    mine = context.transport.dotenv or read or dotenv
    steered = context.steering._replace(is_open=False) != Steering()
    return folder if mine or steered else None


class SpareSession:
    """A session that was opened ahead of the conversation that takes it, if there is one."""

    def __init__(self) -> None:
        self._session: AcpSession | None = None
        self._fingerprint: list[int] = []
        self.making: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self.making is None else [self.making]

    @property
    def is_being_made(self) -> bool:
        return self.making is not None and not self.making.done()

    async def wait(self) -> None:
        if self.making is not None:
            await asyncio.wait([self.making])

    def keep(self, session: AcpSession, fingerprint: list[int]) -> None:
        self._session, self._fingerprint = session, fingerprint

    def is_for(self, folder: Path) -> bool:
        return self._session is not None and self._session.cwd == folder

    @property
    def is_current(self) -> bool:
        """Are the files that it read at its start, such as GEMINI.md, still the same?"""
        return self._session is not None and self._fingerprint == _fingerprint(self._session.cwd)

    def take(self) -> AcpSession:
        session, self._session = self._session, None
        assert session is not None
        return session

    def drop(self) -> bool:
        """Closes it; was there one?"""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        return session is not None


class Ping:
    """Sends a ping to a process and waits for its answer."""

    def __init__(self) -> None:
        self.is_unanswered = False
        self._task: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self._task is None else [self._task]

    @property
    def is_open(self) -> bool:
        return self._task is not None and not self._task.done()

    def send(self, process: AcpProcess, seconds: float, then: Callable[[], None]) -> None:
        self._task = asyncio.create_task(self._wait(process, seconds))
        self._task.add_done_callback(lambda _: then())

    async def _wait(self, process: AcpProcess, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await process.ping()
        except TimeoutError:
            self.is_unanswered = True


class Worker:
    """A process that is starting or running, its conversations, and a spare session."""

    def __init__(
        self, transport: Acp, options: Options, limits: Limits, on_change: Callable[[Worker], None]
    ) -> None:
        self.key, self.options = key_of(transport, options), options
        self.folder = working_folder(options)
        self.transport, self._limits, self._on_change = transport, limits, on_change
        self._warm = transport.warm(process_wide(options).changed(cwd=options.cwd))
        self._process: AcpProcess | None = None
        self.began = time.monotonic()
        self._spare = SpareSession()
        self._ping = Ping()
        self.active = 0
        self.sessions = 0
        """Sessions that were given out, or made in vain: the CLI keeps every one of them."""
        self.tool_calls = 0
        self.retired: str | None = None
        """Why it takes no more conversations; None: it takes them."""
        self.last_used = self.began
        self.closing = False
        self._starting = asyncio.create_task(self._start())

    # ---- its life

    async def wait_for_process(self) -> AcpProcess:
        """Returns the process once it has started; a failed start raises for every waiter."""
        try:
            return await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if not self._starting.cancelled():
                raise  # It is the caller who was cancelled.
            raise GeminorumError(
                "the pool was closed", hint=python_only("stay in its block")
            ) from None

    async def close(self) -> None:
        """Ends the process, all that it started, and whatever we were doing with it."""
        tasks = [self._starting, *self._spare.tasks, *self._ping.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if self.retired == SILENT and self._process is not None:
            self._process.kill()  # It would not hear that it is asked to leave.
        if not self._starting.cancelled():
            self._starting.exception()  # Nobody may have asked; asyncio would complain.
        self._spare.drop()
        await self._warm.__aexit__()

    async def _start(self) -> AcpProcess:
        self._process = await self._warm.start()
        self._process.when_gone = self._report_change
        return self._process

    def _report_change(self) -> None:
        if not self.closing:
            self._on_change(self)

    # ---- is it fit?

    @property
    def is_being_pinged(self) -> bool:
        """Is a ping unanswered?"""
        return self._ping.is_open

    def ping(self) -> None:
        """Sends a ping to a process that left a conversation waiting."""
        if self._process is not None and self._process.shaken_hands and not self.is_being_pinged:
            self._ping.send(
                self._process, max(self.transport.grace, _MIN_PING_SECONDS), self._report_change
            )

    @property
    def gone(self) -> bool:
        """Is there no process any more? A start that failed has left none either."""
        if self._process is not None:
            return self._process.gone
        return self._starting.done()

    def retire_reason(self) -> str | None:
        """Why it should take no more conversations; None: it is fit."""
        if self.gone:
            return CRASHED if self._process is not None else NOT_STARTED
        if self._ping.is_unanswered:
            return SILENT
        past = {
            "age": (self.age, self._limits.max_age),
            "sessions": (self.sessions, self._limits.max_sessions),
            "tool calls": (self.tool_calls, self._limits.max_tool_calls),
        }
        for name, (is_now, most) in past.items():
            if most is not None and is_now >= most:
                return name
        return self._overdue_start() or self._unhealthy()

    def _overdue_start(self) -> str | None:
        """A process that is not initialized within the start timeout never will be."""
        limit = self.transport.start_timeout
        hello = self._process is not None and self._process.shaken_hands
        return SILENT if limit is not None and not hello and self.age > limit else None

    def _unhealthy(self) -> str | None:
        if self._process is None:
            return None
        try:
            seen = psutil.Process(self._process.pid)
            # Killed a moment ago: its pipe has not told us yet.
            if seen.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return CRASHED
            if seen.status() == psutil.STATUS_STOPPED:
                return SILENT
            most = self._limits.max_memory_mb
            return "memory" if most is not None and tree_megabytes(seen) > most else None
        except psutil.NoSuchProcess:
            return CRASHED
        except (psutil.Error, OSError):
            return None  # What we may not look at, we leave alone.

    @property
    def has_served(self) -> bool:
        """Has it served a session, so that a replacement may, too?"""
        return self.sessions > 0 and self._process is not None and self._process.shaken_hands

    @property
    def age(self) -> float:
        return time.monotonic() - self.began

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def memory_mb(self) -> float | None:
        return None if self.pid is None else memory_of(self.pid)

    # ---- its sessions

    def acquire(self, options: Options, sessions: int) -> None:
        self.active += 1
        self.sessions += sessions
        self.options, self.last_used = options, time.monotonic()

    def release(self) -> None:
        self.active -= 1
        self.last_used = time.monotonic()

    async def take_session(self, options: Options, tools: SessionTools) -> AcpSession:
        """Returns the spare session if it fits, otherwise a new one."""
        process = await self.wait_for_process()
        if tools.names:
            # A session learns at its opening what it can call in this process.
            return await open_session(process, options, tools)
        if options.resume is None:
            # To open another beside it would take longer than to wait for it.
            await self._spare.wait()
        if options.resume is not None or not self._spare.is_for(working_folder(options)):
            return await open_session(process, options, tools)
        if not self._spare.is_current:
            self.sessions += self._spare.drop()
            return await open_session(process, options, tools)
        return await configure_session(process, options, self._spare.take())

    def has_spare_for(self, folder: Path) -> bool:
        return self._spare.is_for(folder)

    def make_spare(self, options: Options) -> asyncio.Task[None] | None:
        """Starts to open a spare session in the folder of these options."""
        if not self._spare.is_being_made and self._wants_spare(options):
            self._spare.making = asyncio.create_task(self._make_spare(options.changed(resume=None)))
        return self._spare.making

    def _wants_spare(self, options: Options) -> bool:
        most = self._limits.max_sessions
        room = most is None or self.sessions < most
        reaches_us = bool(self.transport.tools) or options.output_schema is not None
        unfit = self.retired is not None or self.gone or reaches_us
        if unfit or not room or not self._limits.spare:
            return False
        try:
            fits = key_of(self.transport, options) == self.key
            return fits and not self.has_spare_for(working_folder(options))
        except GeminorumError:
            return False  # The folder went away while it was worked in.

    async def _make_spare(self, options: Options) -> None:
        # A failure here, for example a full disk, will meet a conversation, which reports it.
        with suppress(GeminorumError, ProcessEnded, Refused, OSError):
            process = await self.wait_for_process()
            await run_off_loop(partial(process.check, options))
            # The conversation that takes it chooses model and mode.
            bare = options.changed(model=None, approval=None)
            fingerprint = _fingerprint(working_folder(bare))
            async with asyncio.timeout(self.transport.start_timeout):
                fresh = await open_session(process, bare)
            self.sessions += self._spare.drop()
            self._spare.keep(fresh, fingerprint)


def memory_of(pid: int) -> float | None:
    """Memory of a process and its descendants in MB; None without the permission to look."""
    try:
        return tree_megabytes(psutil.Process(pid))
    except (psutil.Error, OSError):
        return None


def _fingerprint(folder: Path) -> list[int]:
    """Fingerprint of the files that a session reads at its start; a change makes a spare stale."""
    told = [folder, folder / ".gemini" / "settings.json"]
    told += [one / "GEMINI.md" for one in upwards(folder)]
    return [file.stat().st_mtime_ns if file.exists() else 0 for file in told]
