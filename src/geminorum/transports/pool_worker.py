"""One warm process of a pool: who is in it, what it has been through, and is it still fit?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import psutil

from geminorum.errors import GeminorumError
from geminorum.off_loop import off_loop
from geminorum.options import Options
from geminorum.surroundings import upwards
from geminorum.transports.acp import Acp
from geminorum.transports.acp_process import AcpProcess, ProcessEnded, Refused, process_wide
from geminorum.transports.acp_session import AcpSession, furnished, opened
from geminorum.transports.acp_tools import SessionTools
from geminorum.transports.launch.command import compile_cache
from geminorum.transports.launch.context import LaunchContext, working_folder
from geminorum.transports.launch.control_place import is_within, place_outside
from geminorum.transports.tree_memory import tree_megabytes
from geminorum.wire.policy_toml import Steering

CRASHED, UNUSED, NOT_STARTED, SILENT = "crashed", "unused", "not started", "silence"
"""Why a process is let go, beside the limits: it ended by itself; another kind was wanted; there
never was one; it does not answer."""
_SHORTEST_DOUBT = 0.5
"""Seconds at least for an answer that costs nothing: a busy process may be slow."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one process may hold, and go through, before it is replaced. None: no limit."""

    at_once: int
    max_age: float | None
    max_sessions: int | None
    max_tool_calls: int | None
    max_memory_mb: float | None
    spare: bool


Key = tuple[Options, dict[str, str], Path | None, tuple[Path | None, bool]]


def key_of(door: Acp, options: Options) -> Key:
    """What conversations have to agree in to share a process: all that it is started with.

    With the variables of this process: whoever changes a key in them expects the new one to hold.
    """
    context = LaunchContext(door, options)
    own = _folder_to_itself(context)
    return process_wide(options), dict(context.env), own, _control_outside(context)


def _control_outside(context: LaunchContext) -> tuple[Path | None, bool]:
    """Where what steers a process lies outside of the guest's folders, and whether the cache of
    compiled code does."""
    folders = context.agent_folders
    return place_outside(folders), is_within(compile_cache(), folders)


def _folder_to_itself(context: LaunchContext) -> Path | None:
    """The folder, where what lies in it would hold for the guests from other folders, too: its
    variables, settings (the CLI has one telemetry per process, and it logs prompts), and the files
    that the policy of a process protects."""
    folder, home = context.cwd, context.home
    settings = folder / ".gemini" / "settings.json"
    above = [one for one in upwards(folder) if one not in (home, home.resolve())]
    read = context.options.trust_workspace is not False and folder != home and settings.exists()
    dotenv = any((one / ".gemini" / ".env").exists() for one in above)
    mine = context.transport.dotenv or read or dotenv
    steered = context.steering._replace(is_open=False) != Steering()
    return folder if mine or steered else None


class Worker:
    """A process that is starting or running, its guests, and a session made ahead for the next."""

    def __init__(
        self, door: Acp, options: Options, limits: Limits, on_change: Callable[[Worker], None]
    ) -> None:
        self.key, self.options = key_of(door, options), options
        self.folder = working_folder(options)
        self._door, self._limits, self._on_change = door, limits, on_change
        self._warm = door.warm(process_wide(options).changed(cwd=options.cwd))
        self._process: AcpProcess | None = None
        self._began = time.monotonic()
        self._spare: AcpSession | None = None
        self._seen: list[int] = []
        self._making: asyncio.Task[None] | None = None
        self._doubt: asyncio.Task[None] | None = None
        self._is_silent = False
        self.guests = 0
        self.sessions = 0
        """Sessions that were given out, or made in vain: the CLI keeps every one of them."""
        self.tool_calls = 0
        self.retired: str | None = None
        """Why it takes no more guests."""
        self.last_used = self._began
        self.closing = False
        self._starting = asyncio.create_task(self._start())

    # ---- its life

    async def started(self) -> AcpProcess:
        """The process; raises what kept it from starting, and that to everybody who waits."""
        try:
            return await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if not self._starting.cancelled():
                raise  # It is the caller who was cancelled.
            raise GeminorumError("the pool was closed", hint="stay in its block") from None

    async def close(self) -> None:
        """Ends the process, all that it started, and whatever we were doing with it."""
        tasks = [one for one in (self._making, self._doubt, self._starting) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if self.retired == SILENT and self._process is not None:
            self._process.kill()  # It would not hear that it is asked to leave.
        if not self._starting.cancelled():
            self._starting.exception()  # Nobody may have asked; asyncio would complain.
        self._drop_spare()
        await self._warm.__aexit__()

    async def _start(self) -> AcpProcess:
        self._process = await self._warm.start()
        self._process.when_gone = self._over
        return self._process

    def _over(self) -> None:
        if not self.closing:
            self._on_change(self)

    # ---- is it fit?

    @property
    def is_in_doubt(self) -> bool:
        """Is it asked right now whether it still hears?"""
        return self._doubt is not None and not self._doubt.done()

    def doubt(self) -> None:
        """Asks a process that left a guest waiting for a sign of life."""
        process = self._process
        if process is not None and process.shaken_hands and not self.is_in_doubt:
            self._doubt = asyncio.create_task(self._await_sign_of_life(process))
            self._doubt.add_done_callback(lambda _: self._over())

    async def _await_sign_of_life(self, process: AcpProcess) -> None:
        try:
            async with asyncio.timeout(max(self._door.grace, _SHORTEST_DOUBT)):
                await process.ping()
        except TimeoutError:
            self._is_silent = True

    @property
    def gone(self) -> bool:
        """Is there no process any more? A start that failed has left none either."""
        if self._process is not None:
            return self._process.gone
        return self._starting.done()

    def flaw(self) -> str | None:
        """Why it should take no more guests; None where nothing speaks against it."""
        if self.gone:
            return CRASHED if self._process is not None else NOT_STARTED
        if self._is_silent:
            return SILENT
        past = {
            "age": (self.age, self._limits.max_age),
            "sessions": (self.sessions, self._limits.max_sessions),
            "tool calls": (self.tool_calls, self._limits.max_tool_calls),
        }
        for name, (is_now, most) in past.items():
            if most is not None and is_now >= most:
                return name
        return self._late() or self._sick()

    def _late(self) -> str | None:
        """One that has not said hello by now never will."""
        limit = self._door.start_timeout
        hello = self._process is not None and self._process.shaken_hands
        return SILENT if limit is not None and not hello and self.age > limit else None

    def _sick(self) -> str | None:
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
        """Has it been of use to anybody, so that another of its kind may be?"""
        return self.sessions > 0 and self._process is not None and self._process.shaken_hands

    @property
    def age(self) -> float:
        return time.monotonic() - self._began

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def memory_mb(self) -> float | None:
        return None if self.pid is None else memory_of(self.pid)

    # ---- its sessions

    def take_in(self, options: Options, sessions: int) -> None:
        self.guests += 1
        self.sessions += sessions
        self.options, self.last_used = options, time.monotonic()

    def let_out(self) -> None:
        self.guests -= 1
        self.last_used = time.monotonic()

    async def session(self, options: Options, tools: SessionTools) -> AcpSession:
        """The one made ahead, where it will do; otherwise another."""
        process = await self.started()
        if tools.names:
            # What a session can reach in this process it is told when it is opened.
            return await opened(process, options, tools)
        if options.resume is None and self._making is not None:
            # To open another beside it would take longer than to wait for it.
            await asyncio.wait([self._making])
        spare = self._spare
        if spare is None or options.resume is not None or spare.cwd != working_folder(options):
            return await opened(process, options, tools)
        if self._seen != _look_of(spare.cwd):
            # It was told of files, and of GEMINI.md, when it was opened.
            self.sessions += self._drop_spare()
            return await opened(process, options, tools)
        self._spare = None
        return await furnished(process, options, spare)

    def has_spare_for(self, folder: Path) -> bool:
        return self._spare is not None and self._spare.cwd == folder

    def make_spare(self, options: Options) -> asyncio.Task[None] | None:
        """Begins to open a session ahead, in the folder of these options."""
        busy = self._making is not None and not self._making.done()
        if busy or not self._wants_spare(options):
            return self._making
        self._making = asyncio.create_task(self._make_spare(options.changed(resume=None)))
        return self._making

    def _wants_spare(self, options: Options) -> bool:
        most = self._limits.max_sessions
        room = most is None or self.sessions < most
        reaches_us = bool(self._door.tools) or options.output_schema is not None
        unfit = self.retired is not None or self.gone or reaches_us
        if unfit or not room or not self._limits.spare:
            return False
        try:
            fits = key_of(self._door, options) == self.key
            return fits and not self.has_spare_for(working_folder(options))
        except GeminorumError:
            return False  # The folder went away while it was worked in.

    async def _make_spare(self, options: Options) -> None:
        # Whatever goes wrong here, a full disk too, would go wrong for a guest, who is told.
        with suppress(GeminorumError, ProcessEnded, Refused, OSError):
            process = await self.started()
            await off_loop(partial(process.check, options))
            # Model and mode are for its guest to choose.
            bare = options.changed(model=None, approval=None)
            seen = _look_of(working_folder(bare))
            async with asyncio.timeout(self._door.start_timeout):
                fresh = await opened(process, bare)
            if self._drop_spare():
                self.sessions += 1
            self._spare, self._seen = fresh, seen

    def _drop_spare(self) -> bool:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        return spare is not None


def memory_of(pid: int) -> float | None:
    """Of a process and its descendants, in MB; None where we may not look."""
    try:
        return tree_megabytes(psutil.Process(pid))
    except (psutil.Error, OSError):
        return None


def _look_of(folder: Path) -> list[int]:
    """Changes where a session that is opened now would be told something else than before."""
    told = [folder, folder / ".gemini" / "settings.json"]
    told += [one / "GEMINI.md" for one in upwards(folder)]
    return [file.stat().st_mtime_ns if file.exists() else 0 for file in told]
