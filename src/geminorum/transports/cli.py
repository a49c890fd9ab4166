"""The headless Gemini CLI as a door: one process per turn, its stream decoded into events."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from geminorum import cost
from geminorum.detect import CliProgram, find_cli
from geminorum.errors import GeminorumError, InvalidOptions, Unsupported
from geminorum.events import Done, Event, Status
from geminorum.options import Options
from geminorum.prompt import encoded
from geminorum.redaction import redacted, secrets_in
from geminorum.transports.home import Overlay, selected_auth
from geminorum.transports.launch import (
    command_of,
    environment,
    home_of,
    policies_of,
    settings_of,
    variables_of,
    working_folder,
)
from geminorum.transports.process import Child
from geminorum.wire.argv import missing_flags
from geminorum.wire.policy_toml import is_refused
from geminorum.wire.stream_json import StreamDecoder
from geminorum.wire.verdict import POLICY_ERROR, Ending, Stop, last_events

_NOT_YET = (
    "max_budget_usd",
    "output_schema",
)

_BREATH = 512 * 1024
"""Bytes between two looks at what else the event loop has to do: a few milliseconds of work."""


@dataclass(frozen=True, slots=True)
class Cli:
    """The Gemini CLI, headless, one process per turn."""

    executable: str | os.PathLike[str] | None = None
    """A path or a name; None: what GEMINI_CLI_PATH, PATH and the usual places hold."""
    grace: float = 5.0
    """Seconds between asking the process tree to end and ending it."""
    sandbox: bool | str | None = None
    """True, or the name of the sandbox program ("docker")."""
    extra_args: tuple[str, ...] = ()
    start_timeout: float | None = 60.0
    """Seconds until the first sign of life; None waits for ever."""
    stall_timeout: float | None = None
    """Seconds of silence in mid-run that end it; None: a tool may take its time."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the CLI for these runs, above the user's and ours: `{"mcpServers": {…}}`,
    `{"general": {"maxAttempts": 1}}`."""
    relaunch: bool = False
    """Let the CLI start itself a second time, as it does by hand: half a second slower."""
    heap_mb: int | None = None
    """Memory for the CLI's heap; None: half of the machine's, as the CLI itself would take."""
    plan_tools: bool = False
    """Offer the tools by which a model in plan mode approves its own plan and goes on in yolo."""
    dotenv: bool = False
    """Read the `.env` of the folder, which may send the API key somewhere else."""
    secrets_in_tools: bool = False
    """Let shell tools see keys and tokens of the environment."""
    shared_tmp: bool = False
    """Let the CLI leave its error reports, whole conversations, in the system's temporary folder;
    otherwise the run has one of its own, which ends with it."""

    def __post_init__(self) -> None:
        if isinstance(self.extra_args, str):
            raise InvalidOptions("extra_args takes a tuple", hint=f"({self.extra_args!r},)")

    def open(self, options: Options) -> CliConversation:
        return CliConversation(self, options)


class CliConversation:
    """Turns in one session: each resumes what the one before left."""

    def __init__(self, door: Cli, options: Options) -> None:
        self._door, self._options = door, options
        self._program: CliProgram | None = None
        self._turn: CliTurn | None = None

    async def __aenter__(self) -> CliConversation:
        options = self._options
        _refuse_unsupported(options)
        # In a thread: to learn a Node's version a process may have to be started.
        found = await asyncio.to_thread(find_cli, self._door.executable, environment(options))
        if missing := missing_flags(options, found.version):
            raise Unsupported(
                f"this CLI is too old for {', '.join(missing)}",
                hint="update it with `npm install -g @google/gemini-cli@latest`",
            )
        self._program = found
        return self

    async def __aexit__(self, *_: object) -> None:
        self._program = None

    def turn(self, prompt: str) -> CliTurn:
        assert self._program is not None
        return CliTurn(self, self._door, self._options, self._program, prompt)

    def begun(self, turn: CliTurn) -> None:
        if self._turn is not None:
            raise GeminorumError(
                "a turn of this conversation is still running",
                hint="wait for it, or open another conversation with connect()",
            )
        self._turn = turn

    def ended(self, turn: CliTurn) -> None:
        """Takes over the session of a turn, once the CLI has really stored it."""
        if self._turn is turn:
            self._turn = None
        if turn.status == "error" and self._options.resume != turn.session_id:
            return  # A first prompt that failed is rolled back; there is nothing to resume.
        if turn.session_id:
            self._options = self._options.changed(resume=turn.session_id, session_id=None)


class CliTurn:
    """A running process and what its output says."""

    def __init__(
        self,
        conversation: CliConversation,
        door: Cli,
        options: Options,
        program: CliProgram,
        prompt: str,
    ) -> None:
        self._conversation = conversation
        self._door, self._options, self._program = door, options, program
        self._stdin = encoded(prompt, literal=options.literal)
        self._cwd = working_folder(options)
        self._secrets: list[str] = []
        self._decoder = StreamDecoder(
            cwd=str(self._cwd), is_refused=partial(is_refused, self._options)
        )
        self._stack = AsyncExitStack()
        self._began = time.monotonic()
        self._stop: Stop | None = None
        self._limit: float | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._heard, self._heard_at = 0, 0.0
        self._unpaused = 0
        self._policy_checked = False
        self.status: Status | None = None

    async def __aenter__(self) -> CliTurn:
        self._conversation.begun(self)
        try:
            async with AsyncExitStack() as stack:
                self._child = await stack.enter_async_context(self._spawned(stack))
                self._stack = stack.pop_all()
        except BaseException:
            self._conversation.ended(self)
            raise
        cost.warm_up()
        self._heard_at = time.monotonic()
        self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._stopping is not None:
            self._stopping.cancel()
        try:
            await self._stack.aclose()
        finally:
            self._conversation.ended(self)

    def _spawned(self, stack: AsyncExitStack) -> Child:
        door, options, program = self._door, self._options, self._program
        env = environment(options)
        base = home_of(options, env)
        settings = settings_of(door, options, env, selected_auth(base))
        instructions = None if options.replace_system_prompt else options.system_prompt
        home = stack.enter_context(Overlay(base, settings, instructions))
        env |= variables_of(door, options, program, home)
        self._secrets = secrets_in(env)
        command = command_of(door, options, program, policies_of(door, options, program, home))
        return Child(command, cwd=self._cwd, env=env, stdin=self._stdin, grace=door.grace)

    @property
    def session_id(self) -> str | None:
        return self._decoder.session_id

    @property
    def stderr(self) -> str:
        return self._child.stderr(lambda text: redacted(text, self._secrets))

    async def read(self) -> list[Event]:
        while self.status is None:
            await self._breathe()
            chunk = await self._child.read()
            # No await from here on: a cancellation must not fall between reading and handing out.
            self._unpaused += len(chunk)
            self._check_policy()
            events = self._decoder.feed(chunk) if chunk else self._last_events()
            if events:
                return events
        return []

    def _check_policy(self) -> None:
        """The CLI reads its policies before it first speaks, and runs on without a broken one."""
        if not self._policy_checked:
            self._policy_checked = True
            if POLICY_ERROR in self._child.stderr():
                self._begin_stop("bad_policy", None)

    async def _breathe(self) -> None:
        """A consumer that never has to wait would keep every other task waiting."""
        if self._unpaused >= _BREATH:
            self._unpaused = 0
            await asyncio.sleep(0)

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        self._begin_stop(reason, limit)
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def _begin_stop(self, reason: Stop, limit: float | None) -> None:
        # What ended by itself was not ended by us.
        if self._stop is None and self._child.exit_code is None:
            self._stop, self._limit = reason, limit
            self._stopping = asyncio.create_task(self._child.stop())

    def _listen(self) -> None:
        """Look now and then whether it speaks; how slowly it is read does not matter."""
        limits = [self._door.start_timeout, self._door.stall_timeout]
        if known := [limit for limit in limits if limit is not None]:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(min(known) / 2, self._judge_silence)

    def _judge_silence(self) -> None:
        now, written = time.monotonic(), self._child.written
        if written > self._heard:
            self._heard, self._heard_at = written, now
        limit = self._door.stall_timeout if self._heard else self._door.start_timeout
        if limit is not None and now - self._heard_at >= limit:
            self._begin_stop("stall" if self._heard else "start_timeout", limit)
        else:
            self._listen()

    def _last_events(self) -> list[Event]:
        events = last_events(
            self._decoder,
            Ending(self._child.exit_code, self.stderr, self._stop, self._limit),
            at=time.time_ns() // 1_000_000,
            duration=time.monotonic() - self._began,
            price=cost.cost_of,
        )
        done = events[-1]
        assert isinstance(done, Done)
        self.status = done.status
        return events


def _refuse_unsupported(options: Options) -> None:
    default = Options()
    wanted = [name for name in _NOT_YET if getattr(options, name) != getattr(default, name)]
    if wanted:
        raise Unsupported(
            f"the Cli door cannot honour {', '.join(wanted)} yet",
            hint="leave it out; the changelog says when it arrives",
        )
