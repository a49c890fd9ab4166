"""One turn through the headless CLI: a process, what its output says, and what may stop it."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from geminorum import cost
from geminorum.detect import CliProgram
from geminorum.errors import InvalidOptions, SessionLost
from geminorum.events import Cost, Done, Error, Event, ModelRequest, Status, Usage
from geminorum.options import Options
from geminorum.prompt import delivered
from geminorum.redaction import redacted, secrets_in
from geminorum.sessions import places
from geminorum.sessions.lock import SessionLock
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
from geminorum.transports.ledger import Ledger
from geminorum.transports.process import Child
from geminorum.transports.watch import Patrol, Silence, Spending
from geminorum.wire.argv import has_session_id
from geminorum.wire.policy_toml import is_refused
from geminorum.wire.stream_json import StreamDecoder
from geminorum.wire.verdict import POLICY_ERROR, Ending, Stop, last_events

if TYPE_CHECKING:
    from geminorum.transports.cli import Cli, CliConversation

_BREATH = 512 * 1024
"""Bytes between two looks at what else the event loop has to do: a few milliseconds of work."""
_PATIENCE, _MOMENT = 25, 0.004
"""How often, and how long each time, to wait for the session file to catch up with the stream."""


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
        self._stdin, self._prompt = delivered(prompt, literal=options.literal)
        self._cwd = working_folder(options)
        self._env = environment(options)
        self._home = home_of(options, self._env)
        self._secrets: list[str] = []
        self._decoder = self._new_decoder()
        self._stack = AsyncExitStack()
        self._began = time.monotonic()
        self._stop: Stop | None = None
        self._limit: float | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._ready: list[Event] = []
        """Events that are to be handed out."""
        self._unpaused = 0
        self._results_seen = 0
        self._policy_checked = False
        self.status: Status | None = None

    async def __aenter__(self) -> CliTurn:
        self._conversation.begun(self)
        try:
            self._choose_session()
            await self._start()
        except BaseException:
            self._conversation.ended(self)
            raise
        cost.warm_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
        try:
            await self._stack.aclose()
        finally:
            self._conversation.ended(self)

    def _choose_session(self) -> None:
        """Which session this is, as far as it can be known before the CLI says so."""
        options = self._options
        if options.resume is not None:
            self._resume(options.resume)
        elif options.max_budget_usd and not options.session_id and self._can_name_sessions():
            # With a name of our own, the spending can be followed before the first event is read.
            self._options = options.changed(session_id=str(uuid.uuid4()))

    def _can_name_sessions(self) -> bool:
        return has_session_id(self._program.version) and "--session-file" not in " ".join(
            self._door.extra_args
        )

    def _resume(self, wanted: str) -> None:
        if wanted != "latest":
            self._refuse_other_folder(wanted)
        elif found := places.latest(self._home, self._cwd):
            self._options = self._options.changed(resume=found)
        elif self._door.fresh_if_lost:
            self._go_fresh(f"{str(self._cwd)!r} has no session to resume")
        else:
            raise SessionLost(f"{str(self._cwd)!r} has no session to resume")

    def _refuse_other_folder(self, session_id: str) -> None:
        owner = places.project_of(self._home, session_id)
        if owner is not None and owner != self._cwd.resolve():
            raise InvalidOptions(
                f"session {session_id!r} belongs to the folder {str(owner)!r}",
                hint=f"resume it there, with Options(cwd={str(owner)!r})",
            )

    def _go_fresh(self, why: str) -> None:
        """Once more without the session, and a word about it at the head of the stream."""
        self._options = self._options.changed(resume=None)
        text, now = f"{why}; going on in a fresh session", time.time_ns() // 1_000_000
        self._ready.append(Error(text, SessionLost.code, recoverable=True, timestamp=now))

    def _new_decoder(self) -> StreamDecoder:
        refused = partial(is_refused, self._options)
        return StreamDecoder(cwd=str(self._cwd), is_refused=refused)

    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            if known := self._options.resume or self._options.session_id:
                stack.enter_context(SessionLock(self._home, known))
            self._ledger = Ledger(self._home, self._cwd, time.time_ns() // 1_000_000)
            self._child = await stack.enter_async_context(self._spawned(stack))
            for patrol in self._patrols():
                stack.callback(patrol.cancel)
            self._stack = stack.pop_all()

    def _spawned(self, stack: AsyncExitStack) -> Child:
        door, options, program = self._door, self._options, self._program
        settings = settings_of(door, options, self._env, selected_auth(self._home))
        instructions = None if options.replace_system_prompt else options.system_prompt
        home = stack.enter_context(Overlay(self._home, settings, instructions))
        env = self._env | variables_of(door, options, program, home)
        self._secrets = secrets_in(env)
        policies = policies_of(door, options, program, home)
        command = [*command_of(door, options, program, policies), *self._prompt]
        return Child(command, cwd=self._cwd, env=env, stdin=self._stdin, grace=door.grace)

    def _patrols(self) -> list[Patrol]:
        door, budget = self._door, self._options.max_budget_usd
        silence = Silence(lambda: self._child.written, door.start_timeout, door.stall_timeout)
        patrols = []
        if silence.pause is not None:
            patrols.append(Patrol(silence.pause, silence.look, self._begin_stop))
        if budget is not None:
            spending = Spending(self._requests, budget, door.prices)
            patrols.append(Patrol(spending.PAUSE, spending.look, self._begin_stop))
        return patrols

    @property
    def session_id(self) -> str | None:
        return self._decoder.session_id

    @property
    def stderr(self) -> str:
        return self._child.stderr(lambda text: redacted(text, self._secrets))

    async def read(self) -> list[Event]:
        while not self._ready and self.status is None:
            await self._breathe()
            chunk = await self._child.read()
            # No await from here on: a cancellation must not fall between reading and keeping.
            self._unpaused += len(chunk)
            self._check_policy()
            self._ready = self._decoder.feed(chunk) if chunk else self._last_events()
        if self._is_lost(self._ready):
            await self._fresh_start()
        await self._await_second_channel()
        events, self._ready = self._ledger.completed(self._ready), []
        return events

    async def _await_second_channel(self) -> None:
        """A tool's result is printed a moment before it is written to the session file."""
        if self._decoder.tool_results == self._results_seen:
            return
        for _ in range(_PATIENCE):
            self._ledger.read(self._known_session)
            if not self._ledger.lacks(self._ready):
                break
            await asyncio.sleep(_MOMENT)
        self._results_seen = self._decoder.tool_results

    def _is_lost(self, events: list[Event]) -> bool:
        """Was there nothing to resume, and shall the prompt be given to a fresh session?"""
        if self.status != "error" or not (self._options.resume and self._door.fresh_if_lost):
            return False
        return any(isinstance(event, Error) and event.code == SessionLost.code for event in events)

    async def _fresh_start(self) -> None:
        why = next(event.message for event in self._ready if isinstance(event, Error))
        await self._stack.aclose()
        self.status, self._policy_checked = None, False
        self._decoder, self._ready, self._results_seen = self._new_decoder(), [], 0
        self._go_fresh(why)
        await self._start()

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

    @property
    def _known_session(self) -> str | None:
        return self._decoder.session_id or self._options.session_id

    def _requests(self) -> list[ModelRequest]:
        return self._ledger.requests(self._known_session)

    def _last_events(self) -> list[Event]:
        events = last_events(
            self._decoder,
            Ending(self._child.exit_code, self.stderr, self._stop, self._limit),
            at=time.time_ns() // 1_000_000,
            duration=time.monotonic() - self._began,
            price=self._price,
            requests=self._requests(),
        )
        done = events[-1]
        assert isinstance(done, Done)
        self.status = done.status
        return events

    def _price(self, usage: Usage | None) -> Cost | str:
        prices = self._door.prices
        known = cost.cost_of(usage, prices, cost.billing(self._env))
        return known or cost.unknown_because(usage, prices) or ""
