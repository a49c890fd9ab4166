"""One turn through the headless CLI: a process, what its output says, and what may stop it."""

from __future__ import annotations

import asyncio
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminorum import cost
from geminorum.auth import payer
from geminorum.detect import CliProgram
from geminorum.errors import SessionLost
from geminorum.events import Billing, Cost, Done, Error, Event, Init, ModelRequest, Status, Usage
from geminorum.interrupts import Interrupt
from geminorum.off_loop import off_loop
from geminorum.options import Options
from geminorum.owned_folder import temporary_folder
from geminorum.prompt import Prompt, delivered
from geminorum.transports.backchannel import Backchannel
from geminorum.transports.bill import price_of, with_earlier
from geminorum.transports.cli_process import CliProcess
from geminorum.transports.denied_tools import ran_denied_tool
from geminorum.transports.final_answer import (
    ONCE_MORE,
    FinalAnswer,
    instructed_to_answer,
    is_complaint,
)
from geminorum.transports.full_disk import is_full, not_saved, was_not_recorded
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.ledger import Ledger
from geminorum.transports.network import NetworkWatch
from geminorum.transports.newer_cli import advice_if_newer
from geminorum.transports.process import Child
from geminorum.transports.resuming import going_fresh, prepare_resume, to_resume
from geminorum.transports.spares import Spare, log
from geminorum.transports.watch import Patrol, Reason, Silence, Spending
from geminorum.wire.argv import has_session_id, imported_file
from geminorum.wire.mcp import own_name
from geminorum.wire.policy_toml import is_refused
from geminorum.wire.stream_json import StreamDecoder
from geminorum.wire.verdict import FIRST_WORD, POLICY_ERROR, Ending, Stop, last_events

if TYPE_CHECKING:
    from geminorum.transports.cli import Cli, CliConversation

_YIELD_EVERY_BYTES = 512 * 1024
"""Bytes between two looks at what else the event loop has to do: a few milliseconds of work."""
_POLICY_CHECK_SECONDS = 0.1
"""Between two looks for a policy that the CLI could not read."""
_MEANT_FAILURES = 2
_LOOKS, _MOMENT = 250, 0.004
"""How often, and how long each time, to wait for the session file to catch up with the stream: a
loaded machine takes its time."""


class CliTurn:
    """A running process and what its output says."""

    def __init__(
        self,
        conversation: CliConversation,
        door: Cli,
        options: Options,
        program: CliProgram,
        prompt: Prompt,
    ) -> None:
        self._conversation, self._reach = conversation, conversation.reach
        self._door, self._options, self._program = door, options, program
        self._delivered = delivered(prompt, literal=options.literal)
        """What goes to the CLI's stdin, and into its arguments."""
        self._context = LaunchContext(door, options)
        self._answer: FinalAnswer | None = None
        if self._reach.shape is not None:
            self._answer = FinalAnswer(self._reach.shape, door.answer_attempts)
        self._earlier: list[Usage | None] = []
        """What earlier processes of this turn used together; empty in the first."""
        self._decoder = self._new_decoder()
        self._process: CliProcess | None = None
        """None until there is one that can be stopped."""
        self._spare: Spare | None = None
        """The same, if it was started ahead of its prompt."""
        self._checks: list[Patrol] = []
        self._began = time.monotonic()
        self._wish: Reason | None = None
        """That it shall stop, whether or not there was anything left to stop."""
        self._stop: Stop | None = None
        self._limit: float | None = None
        self._stderr: str | None = None
        """What a program complained about that is gone by now."""
        self._stopping: asyncio.Task[None] | None = None
        self._interrupt = Interrupt(partial(self._begin_stop, "cancel", None))
        self._ready: list[Event] = []
        """Events that are to be handed out."""
        self._retries: list[Event] = []
        self._unpaused = self._taken = self._results_seen = 0
        self._policy_checked = False
        self._last_facts: tuple[str, Billing | None] = ("", None)
        self.status: Status | None = None

    async def __aenter__(self) -> CliTurn:
        self._conversation.begun(self)
        try:
            await self._start(may_be_spare=True)
        except BaseException:
            self._conversation.ended(self)
            raise
        cost.warm_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
        try:
            await self._close()
        finally:
            self._conversation.ended(self)

    def _can_be_named(self) -> bool:
        options, version = self._options, self._program.version
        named = options.resume or options.session_id
        own = any(word.startswith("--session-") for word in self._door.extra_args)
        return version is not None and has_session_id(version) and not named and not own

    def _find_session(self) -> None:
        """Which session is to be resumed, by its id; none where it is lost and that will do."""
        assert self._options.resume is not None
        try:
            found = to_resume(self._context.home, self._context.cwd, self._options.resume)
            self._options = self._options.changed(resume=found)
        except SessionLost as lost:
            if not self._door.fresh_if_lost:
                raise
            self._go_fresh(lost.message)

    def _go_fresh(self, why: str) -> None:
        """Once more without the session, and a word about it at the head of the stream."""
        self._options = self._options.changed(resume=None)
        self._ready.append(going_fresh(why, time.time_ns() // 1_000_000))

    def _new_decoder(self) -> StreamDecoder:
        refused = partial(is_refused, self._options)
        named = own_name if self._door.tools or self._answer else str
        return StreamDecoder(cwd=str(self._context.cwd), is_refused=refused, tool_name=named)

    async def _start(self, *, may_be_spare: bool = False) -> None:
        if self._options.resume is not None:
            await off_loop(self._find_session)
        if not (may_be_spare and await self._start_spare()):
            await self._start_cold()
        self._network = NetworkWatch(
            self._running.network, self._options.network_timeout, self._announce, self._is_at_a_tool
        )
        self._checks = self._patrols()
        if self._wish is not None:
            self._begin_stop(*self._wish)

    async def _start_cold(self) -> None:
        process = CliProcess(self._program, Backchannel(self._reach, self._answer))
        process.back.serve(self._nudge, self._interrupt.take)
        await process.start(self._launch)
        self._process = process

    def _launch(self, process: CliProcess) -> None:
        """In a thread: it reads and writes files."""
        if self._can_be_named():
            # With a name of our own it can be locked, and its spending followed, from the start.
            self._options = self._options.changed(session_id=str(uuid.uuid4()))
        options = self._options if self._answer is None else instructed_to_answer(self._options)
        context = self._context.with_options(options)
        lock = process.lock_session(context)
        if options.resume is not None:
            prepare_resume(context.home, context.cwd, options.resume)
        # With the lock held: what lies in the session's file by now belongs to earlier runs.
        self._ledger = self._new_ledger()
        process.launch(context, *self._delivered, lock)

    async def _start_spare(self) -> bool:
        """Gives the prompt to a CLI that was started ahead; False where there is none."""
        prompt, words = self._delivered
        if words or (spare := await self._conversation.take_spare(self._options)) is None:
            return False
        try:
            await off_loop(partial(self._hold_session_of, spare))
            await spare.send(prompt)
        except OSError as error:
            log.debug("a CLI that was started ahead took no prompt: %s", error)
            await spare.close()
            return False
        except BaseException:
            await spare.close()
            raise
        log.debug("the prompt went to a CLI that was started %.1f s ago", spare.age)
        spare.process.back.serve(self._nudge, self._interrupt.take)
        self._process, self._spare, self._answer = spare.process, spare, spare.answer
        self._options = self._options.changed(session_id=spare.session_id)
        return True

    def _hold_session_of(self, spare: Spare) -> None:
        spare.hold_session()
        self._ledger = self._new_ledger()

    def _new_ledger(self) -> Ledger:
        imported = imported_file(self._door.extra_args)
        home, cwd = self._context.home, self._context.cwd
        file = None if imported is None else cwd / Path(imported).expanduser()
        return Ledger(home, cwd, self._options.resume, file)

    def _cancel_checks(self) -> None:
        for check in self._checks:
            check.cancel()

    async def _close(self) -> None:
        self._cancel_checks()
        if self._process is not None:
            await self._process.close()

    @property
    def _running(self) -> CliProcess:
        assert self._process is not None
        return self._process

    @property
    def _child(self) -> Child:
        return self._running.child

    @property
    def _back(self) -> Backchannel:
        return self._running.back

    def _nudge(self) -> None:
        if self._process is not None:
            self._process.child.nudge()

    def _awaits_answer(self) -> bool:
        return self._answer is not None and not self._answer.arrived

    def _patrols(self) -> list[Patrol]:
        door, budget = self._door, self._options.max_budget_usd
        silence = Silence(
            lambda: self._child.written,
            door.start_timeout,
            door.stall_timeout,
            lambda: self._back.is_asking,
            lambda: self._tool_runs or self._child.written > self._taken,
        )
        watch = partial(Patrol, stop=self._begin_stop)
        seconds = _POLICY_CHECK_SECONDS
        patrols = [watch(seconds, self._policy_trouble, until=lambda: self._policy_checked)]
        patrols.append(watch(self._network.PAUSE, self._network.look))
        if silence.pause is not None:
            patrols.append(watch(silence.pause, silence.look))
        if budget is not None:
            spending = Spending(self._requests, budget, door.prices, self._awaits_answer)
            patrols.append(watch(spending.PAUSE, spending.look))
        return patrols

    @property
    def session_id(self) -> str | None:
        return self._decoder.session_id

    @property
    def is_rolled_back(self) -> bool:
        """Does the CLI forget the prompt? It does so after a failure, but not after a loop."""
        return self.status == "error" and not self._decoder.looped

    @property
    def stderr(self) -> str:
        if self._stderr is not None or self._process is None:
            return self._stderr or ""
        return self._process.stderr()

    async def read(self) -> list[Event]:
        while not self._ready and self.status is None:
            await self._yield_to_loop()
            chunk = await self._child.read()
            if chunk == b"" and self._was_killed_while_it_waited:
                await self._start_over()
                continue
            if chunk == b"":
                self._cancel_checks()
                self._last_facts = await off_loop(self._gather_last_facts)
            # No await from here on: a cancellation must not fall between reading and keeping.
            self._ready = self._taken_in(chunk)
            if self._unanswered():
                await self._ask_once_more()
        if self._is_lost(self._ready):
            await self._fresh_start()
        await self._await_second_channel()
        events, self._ready = self._ledger.completed(self._ready), []
        if not events:
            self._interrupt.pass_on()
        return events

    @property
    def _was_killed_while_it_waited(self) -> bool:
        """Has a CLI that was started ahead ended before its first word, and so done nothing?"""
        code = self._child.exit_code
        # With 0 it ends on SIGTERM, too.
        was_killed = code is not None and code <= 0 and not self._child.written
        return self._spare is not None and was_killed and self._wish is None

    async def _start_over(self) -> None:
        """With a process of its own for the same prompt."""
        log.debug("a CLI that was started ahead was killed; the run starts cold")
        spare, self._spare = self._spare, None
        assert spare is not None
        if spare.session_id is not None:
            self._options = self._options.changed(session_id=None)  # That one is taken.
        try:
            await self._restart()
        except BaseException:
            self.status = "error"  # There is no process that could be read to its end.
            raise
        finally:
            await spare.close()

    def _taken_in(self, chunk: bytes | None) -> list[Event]:
        events: list[Event] = []
        if chunk is not None:
            self._unpaused += len(chunk)
            self._taken += len(chunk)
            self._check_policy()
            events = self._decoder.feed(chunk) if chunk else self._last_events()
        events = [*self._take_retries(), *events]
        if self._earlier:
            # It began once, however many processes it takes.
            events = [event for event in events if not isinstance(event, Init)]
        events = self._back.completed(events, is_caught_up=not chunk)
        if (trouble := self._back.trouble) is not None:
            self._begin_stop(trouble, None)
        own = [tool.name for tool in self._reach.tools]
        if ran_denied_tool(events, self._options, [*own, *self._door.pre_approved]):
            self._begin_stop("unrestricted", None)
        if events and isinstance(done := events[-1], Done):
            self.status = done.status
        return events

    def _announce(self, retry: Error) -> None:
        self._retries.append(self._stamped(retry))
        self._nudge()

    def _stamped(self, notice: Error) -> Error:
        where, at = self._known_session, time.time_ns() // 1_000_000
        return msgspec.structs.replace(notice, session_id=where, timestamp=at)

    def _take_retries(self) -> list[Event]:
        retries, self._retries = self._retries, []
        return retries

    @property
    def _tool_runs(self) -> bool:
        return self._decoder.tool_uses > self._decoder.tool_results

    def _is_at_a_tool(self, network: NetworkWatch) -> bool:
        # A single failure may be a side call that nobody repeats; a subagent repeats its requests.
        return self._tool_runs and network.failures < _MEANT_FAILURES

    def _unanswered(self) -> bool:
        """Has the agent ended without an answer, and may it be asked once more?"""
        wanted = self._answer is not None and self._answer.is_owed
        return wanted and self.status is not None and self._wish is None and bool(self.session_id)

    async def _ask_once_more(self) -> None:
        """In the same session, by a process of its own, and as a part of this same turn."""
        assert self._answer is not None
        self._ready = self._ledger.completed(self._ready)
        *said, done = [event for event in self._ready if not is_complaint(event)]
        assert isinstance(done, Done)
        self._earlier = [done.usage]
        self._options = self._options.changed(resume=self.session_id, session_id=None)
        self._delivered = delivered(ONCE_MORE, literal=True)
        await self._restart()
        self._answer.is_owed, self._ready = False, said

    async def _await_second_channel(self) -> None:
        """A tool's result is printed a moment before it is written to the session file."""
        if self._decoder.tool_results == self._results_seen:
            return
        for _ in range(_LOOKS):
            self._ledger.read(self._known_session)
            if not self._ledger.lacks(self._ready):
                break
            await asyncio.sleep(_MOMENT)
        self._results_seen = self._decoder.tool_results

    def _is_lost(self, events: list[Event]) -> bool:
        """Was there nothing to resume, and shall the prompt be given to a fresh session?"""
        wanted = self._options.resume and self._door.fresh_if_lost and self._wish is None
        if not wanted or self.status != "error" or self._decoder.answered:
            return False
        return any(isinstance(event, Error) and event.code == SessionLost.code for event in events)

    async def _fresh_start(self) -> None:
        lost, why = self._ready, next(one.message for one in self._ready if isinstance(one, Error))
        self._ready = []
        try:
            self._go_fresh(why)
            await self._restart()
        except BaseException:
            self._ready = lost  # It stays at that.
            raise

    async def _restart(self) -> None:
        """Another process for the same turn."""
        self._stderr = self.stderr
        await self._close()
        self._process = None
        self._decoder, self._results_seen, self._taken = self._new_decoder(), 0, 0
        await self._start()
        self.status = self._stderr = None
        self._policy_checked = False

    def _check_policy(self) -> None:
        if (trouble := self._policy_trouble()) is not None:
            self._begin_stop(*trouble)

    def _policy_trouble(self) -> Reason | None:
        """The CLI reads its policies before it first speaks, and runs on without a broken one."""
        if self._policy_checked:
            return None
        self._policy_checked = self._child.written > 0
        return ("bad_policy", None) if POLICY_ERROR in self._child.stderr() else None

    async def _yield_to_loop(self) -> None:
        """A consumer that never has to wait would keep every other task waiting."""
        if self._unpaused >= _YIELD_EVERY_BYTES:
            self._unpaused = 0
            await asyncio.sleep(0)

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        self._begin_stop(reason, limit)
        if self._stopping is not None:
            # Not `shield`: where another task leaves the turn, it cancels this one, not its caller.
            await asyncio.wait([self._stopping])

    def hurry(self) -> None:
        self._begin_stop("cancel", None)
        if self._stopping is not None:
            self._child.kill()

    @property
    def _is_unrestricted(self) -> bool:
        """Has a tool run that the options deny? Also where the CLI has ended since."""
        return self._wish is not None and self._wish[0] == "unrestricted"

    def _begin_stop(self, reason: Stop, limit: float | None) -> None:
        self._wish = self._wish or (reason, limit)
        if self._process is None:
            return  # It is stopped as soon as there is something to stop.
        # What ended by itself was not ended by us.
        if self._stop is None and self._child.exit_code is None:
            self._child.begin_stop()
            self._stop, self._limit = reason, limit
            self._stopping = asyncio.create_task(self._stop_process())

    async def _stop_process(self) -> None:
        assert self._process is not None
        await self._process.withdraw()
        await self._child.stop()

    @property
    def _known_session(self) -> str | None:
        return self._decoder.session_id or self._options.resume or self._options.session_id

    def _requests(self) -> list[ModelRequest]:
        earlier = [request for usage in self._earlier if usage for request in usage.requests]
        return [*earlier, *self._ledger.requests(self._known_session)]

    def _gather_last_facts(self) -> tuple[str, Billing | None]:
        """What stderr says at the end, and who pays. In a thread: it reads files."""
        stderr = self.stderr
        if is_full(temporary_folder()):
            # Nor can it complain: what it says on stderr lies there as well.
            stderr += f"\nno room is left in {str(temporary_folder())!r}, where its output goes"
        self._ledger.read(self._known_session, thoroughly=True)
        return stderr, payer(self._options, self._context.env)

    def _last_events(self) -> list[Event]:
        self._network.look()
        stderr, _ = self._last_facts
        # Without the policy it has run perhaps, but never to a success.
        stop = self._stop or ("bad_policy" if POLICY_ERROR in stderr else None)
        stop = stop or ("unrestricted" if self._is_unrestricted else None)
        events = last_events(
            self._decoder,
            Ending(
                self._child.exit_code,
                stderr,
                stop,
                self._limit,
                self._phase,
                self._network.trouble,
                advice_if_newer(self._program.version),
            ),
            at=time.time_ns() // 1_000_000,
            duration=time.monotonic() - self._began,
            price=self._price,
            requests=self._ledger.answered,
        )
        done = events[-1]
        assert isinstance(done, Done)
        unsaved = [not_saved(self._context.home)] if was_not_recorded(stderr) else []
        warnings = map(self._stamped, unsaved)
        return [*warnings, *events[:-1], with_earlier(done, self._earlier, self._price)]

    @property
    def _phase(self) -> str | None:
        return None if self._child.written or self._earlier else FIRST_WORD

    def _price(self, usage: Usage | None) -> Cost | str:
        return price_of(usage, self._door.prices, self._last_facts[1])
