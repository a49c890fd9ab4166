"""One turn through the headless CLI: a process, what its output says, and what may stop it."""

from __future__ import annotations

import time
import uuid
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from geminorum import cost
from geminorum.auth import payer
from geminorum.errors import SessionLost
from geminorum.events import Billing, Cost, Done, Error, Event, Init, ModelRequest, Status, Usage
from geminorum.options import Options
from geminorum.prompt import Prompt, delivered
from geminorum.runtime.interrupts import Interrupt
from geminorum.runtime.off_loop import run_off_loop
from geminorum.system.owned_folder import temporary_folder
from geminorum.transports.callbacks.backchannel import Backchannel
from geminorum.transports.callbacks.final_answer import (
    RETRY_PROMPT,
    instructed_to_answer,
)
from geminorum.transports.cli.output import CliOutput
from geminorum.transports.cli.process import CliProcess
from geminorum.transports.cli.spares import Spare, log
from geminorum.transports.cli.stop import CliStop
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.newer_cli import advice_if_newer
from geminorum.transports.launch.resuming import fallback_notice, prepare_resume, resolve_session
from geminorum.transports.process.full_disk import is_full, not_saved, was_not_recorded
from geminorum.transports.process.tree import Child
from geminorum.transports.turns.answer_rounds import AnswerRounds
from geminorum.transports.turns.bill import price_of, usd_of
from geminorum.transports.turns.denied_tools import ran_denied_tool
from geminorum.transports.turns.network import NetworkWatch
from geminorum.transports.turns.request_gate import TurnGate
from geminorum.transports.turns.session_file import SessionFileFeed
from geminorum.transports.turns.stop_checks import StallDetector
from geminorum.transports.turns.turn_limits import TurnLimits
from geminorum.wire.callbacks.mcp import own_name
from geminorum.wire.ending import FIRST_WORD, POLICY_ERROR, Ending, Stop
from geminorum.wire.launch.argv import has_session_id, imported_file
from geminorum.wire.policy.toml_writer import is_refused
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.stream_json.verdict import last_events

if TYPE_CHECKING:
    from geminorum.transports.cli.transport import Cli, CliConversation

_POLICY_CHECK_SECONDS = 0.1
"""Between two looks for a policy that the CLI could not read."""
_MEANT_FAILURES = 2


class CliTurn:
    """Runs the CLI for one prompt, decodes its output, enforces its limits."""

    def __init__(self, conversation: CliConversation, options: Options, prompt: Prompt) -> None:
        self._conversation = conversation
        self._context = LaunchContext(conversation.transport, options)
        self._delivered = delivered(prompt, literal=options.literal)
        """What goes to the CLI's stdin, and into its arguments."""
        self._rounds = AnswerRounds(conversation.new_answer())
        self._output = self._new_output()
        self._process: CliProcess | None = None
        """None until there is one that can be stopped."""
        self._spare: Spare | None = None
        """The same, if it was started ahead of its prompt."""
        self._began = time.monotonic()
        self._stop = CliStop()
        self._stderr: str | None = None
        """What a program complained about that is gone by now."""
        self._interrupt = Interrupt(lambda reason: self._begin_stop(reason, None))
        self._ready: list[Event] = []
        """Events that are to be handed out."""
        self._last_facts: tuple[str, Billing | None] = ("", None)
        self.status: Status | None = None

    async def __aenter__(self) -> CliTurn:
        self._conversation.begin_turn(self)
        try:
            await self._start(may_be_spare=True)
        except BaseException:
            self._conversation.end_turn(self)
            raise
        cost.warm_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.cancel()
        try:
            await self._close()
        finally:
            self._conversation.end_turn(self)

    @property
    def _options(self) -> Options:
        return self._context.options

    def _change_options(self, **changes: Any) -> None:
        self._context = self._context.with_options(self._options.changed(**changes))

    @property
    def _transport(self) -> Cli:
        return self._conversation.transport

    @property
    def _decoder(self) -> StreamDecoder:
        return self._output.decoder

    def _can_be_named(self) -> bool:
        options, version = self._options, self._conversation.program.version
        named = options.resume or options.session_id
        own = any(word.startswith("--session-") for word in self._transport.extra_args)
        return version is not None and has_session_id(version) and not named and not own

    def _find_session(self) -> None:
        """Which session is to be resumed, by its id; none where it is lost and that will do."""
        assert self._options.resume is not None
        try:
            found = resolve_session(self._context.home, self._context.cwd, self._options.resume)
            self._change_options(resume=found)
        except SessionLost as lost:
            if not self._transport.fresh_if_lost:
                raise
            self._start_new_session(lost.message)

    def _start_new_session(self, why: str) -> None:
        """Once more without the session, and a word about it at the head of the stream."""
        self._change_options(resume=None)
        self._ready.append(fallback_notice(why, time.time_ns() // 1_000_000))

    def _new_output(self) -> CliOutput:
        refused = partial(is_refused, self._options)
        named = own_name if self._transport.tools or self._rounds.answer else str
        decoder = StreamDecoder(cwd=str(self._context.cwd), is_refused=refused, tool_name=named)
        return CliOutput(decoder)

    async def _start(self, *, may_be_spare: bool = False) -> None:
        if self._options.resume is not None:
            await run_off_loop(self._find_session)
        if not (may_be_spare and await self._start_spare()):
            await self._start_cold()
        self._limits = self._new_limits()
        if self._stop.requested is not None:
            self._begin_stop(*self._stop.requested)

    async def _start_cold(self) -> None:
        process = CliProcess(
            self._conversation.program,
            Backchannel(self._conversation.callbacks, self._rounds.answer),
        )
        self._serve(process)
        await process.start(self._launch)
        self._process = process

    def _serve(self, process: CliProcess) -> None:
        """Has the process call this turn, and no other."""
        gate, prices = self._transport.gate, self._transport.prices
        turn = None if gate is None else TurnGate(gate, prices, self._announce)
        process.back.serve(self._nudge, self._interrupt.take, turn)

    def _launch(self, process: CliProcess) -> None:
        """In a thread: it reads and writes files."""
        if self._can_be_named():
            # With a name of our own it can be locked, and its spending followed, from the start.
            self._change_options(session_id=str(uuid.uuid4()))
        options = self._options
        if self._rounds.answer is not None:
            options = instructed_to_answer(options)
        context = self._context.with_options(options)
        lock = process.lock_session(context)
        if options.resume is not None:
            prepare_resume(context.home, context.cwd, options.resume)
        # With the lock held: what lies in the session's file by now belongs to earlier runs.
        self._session_file = self._new_session_file()
        process.prepare(context)
        process.launch(context, *self._delivered, lock)

    async def _start_spare(self) -> bool:
        """Gives the prompt to a CLI that was started ahead; False where there is none."""
        prompt, words = self._delivered
        if words or (spare := await self._conversation.take_spare(self._options)) is None:
            return False
        try:
            await run_off_loop(partial(self._hold_session_of, spare))
            await spare.send(prompt)
        except OSError as error:
            log.debug("a CLI that was started ahead took no prompt: %s", error)
            await spare.close()
            return False
        except BaseException:
            await spare.close()
            raise
        log.debug("the prompt went to a CLI that was started %.1f s ago", spare.age)
        self._serve(spare.process)
        self._process, self._spare, self._rounds = spare.process, spare, AnswerRounds(spare.answer)
        self._change_options(session_id=spare.session_id)
        return True

    def _hold_session_of(self, spare: Spare) -> None:
        spare.hold_session()
        self._session_file = self._new_session_file()

    def _new_session_file(self) -> SessionFileFeed:
        imported = imported_file(self._transport.extra_args)
        home, cwd = self._context.home, self._context.cwd
        file = None if imported is None else cwd / Path(imported).expanduser()
        return SessionFileFeed(home, cwd, self._options.resume, file)

    async def _close(self) -> None:
        if self._process is not None:
            self._limits.cancel()
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
            self._process.child.wake_reader()

    def _new_limits(self) -> TurnLimits:
        transport, output, child = self._transport, self._output, self._child
        seconds = self._options.network_timeout
        network = NetworkWatch(self._running.network, seconds, self._announce, self._is_busy)
        limits = TurnLimits(network, self._begin_stop)
        limits.watch(
            _POLICY_CHECK_SECONDS,
            partial(output.check_policy, child),
            until=lambda: output.is_policy_checked,
        )
        limits.watch_silence(
            StallDetector(
                lambda: child.written,
                transport.start_timeout,
                transport.stall_timeout,
                lambda: self._back.is_asking or self._back.is_holding,
                lambda: output.tool_runs or output.is_behind(child),
            )
        )
        budget, prices = self._options.max_budget_usd, transport.prices
        limits.watch_budget(budget, prices, self.requests, lambda: self._rounds.is_awaited)
        return limits

    @property
    def session_id(self) -> str | None:
        return self._decoder.session_id

    @property
    def is_rolled_back(self) -> bool:
        """Does the CLI forget the prompt? It does so after a failure, but not after a loop, nor
        where a question was left to wait."""
        is_kept = self._decoder.looped or self._interrupt.waiting is not None
        return self.status == "error" and not is_kept

    @property
    def stderr(self) -> str:
        if self._stderr is not None or self._process is None:
            return self._stderr or ""
        return self._process.stderr()

    async def read(self) -> list[Event]:
        while not self._ready and self.status is None:
            await self._output.yield_to_loop()
            chunk = await self._child.read()
            if chunk == b"" and self._was_killed_while_it_waited:
                await self._start_over()
                continue
            if chunk == b"":
                self._limits.cancel()
                self._last_facts = await run_off_loop(self._gather_last_facts)
            # No await from here on: a cancellation must not fall between reading and keeping.
            self._ready = self._take_in(chunk)
            if self._unanswered():
                await self._retry_answer()
        if self._is_lost(self._ready):
            await self._restart_without_session()
        await self._sync_session_file()
        events, self._ready = self._session_file.completed(self._ready), []
        if not events:
            self._interrupt.pass_on()
        return events

    @property
    def _was_killed_while_it_waited(self) -> bool:
        """Has a CLI that was started ahead ended before its first word, and so done nothing?"""
        code = self._child.exit_code
        # With 0 it ends on SIGTERM, too.
        was_killed = code is not None and code <= 0 and not self._child.written
        if self._child.is_lapsed:
            return False  # Whether the prompt is still ours to give is not known here.
        return self._spare is not None and was_killed and self._stop.requested is None

    async def _start_over(self) -> None:
        """With a process of its own for the same prompt."""
        log.debug("a CLI that was started ahead was killed; the run starts cold")
        spare, self._spare = self._spare, None
        assert spare is not None
        if spare.session_id is not None:
            self._change_options(session_id=None)  # That one is taken.
        try:
            await self._restart()
        except BaseException:
            self.status = "error"  # There is no process that could be read to its end.
            raise
        finally:
            await spare.close()

    def _take_in(self, chunk: bytes | None) -> list[Event]:
        events: list[Event] = []
        if chunk is not None:
            if (trouble := self._output.check_policy(self._child)) is not None:
                self._begin_stop(*trouble)
            events = self._output.feed(chunk) if chunk else self._last_events()
        # Behind that: the last look at the network may have announced a retry.
        events = [*self._limits.take_retries(), *events]
        if not self._rounds.is_first:
            # It began once, however many processes it takes.
            events = [event for event in events if not isinstance(event, Init)]
        events = self._back.completed(events, is_caught_up=not chunk)
        if (reason := self._back.trouble) is not None:
            self._begin_stop(reason, None)
        own = [tool.name for tool in self._conversation.callbacks.tools]
        if ran_denied_tool(events, self._options, [*own, *self._transport.pre_approved]):
            self._begin_stop("unrestricted", None)
        if events and isinstance(done := events[-1], Done):
            self.status = done.status
        return events

    def _announce(self, retry: Error) -> None:
        self._limits.announce(self._stamped(retry))
        self._nudge()

    def _stamped(self, notice: Error) -> Error:
        where, at = self._known_session, time.time_ns() // 1_000_000
        return msgspec.structs.replace(notice, session_id=where, timestamp=at)

    def _is_busy(self, network: NetworkWatch) -> bool:
        # A single failure may be a side call that nobody repeats; a subagent repeats its requests.
        is_at_a_tool = self._output.tool_runs and network.failures < _MEANT_FAILURES
        return is_at_a_tool or self._back.is_holding

    def _unanswered(self) -> bool:
        """Has the agent ended without an answer, and may it be asked once more?"""
        wanted = self._rounds.needs_retry and self._stop.requested is None
        return wanted and self.status is not None and bool(self.session_id)

    async def _retry_answer(self) -> None:
        """In the same session, by a process of its own, and as a part of this same turn."""
        # Kept before anything else: what the file tells, it tells once.
        self._ready = self._session_file.completed(self._ready)
        said = self._rounds.end_round(self._ready)
        self._change_options(resume=self.session_id, session_id=None)
        self._delivered = delivered(RETRY_PROMPT, literal=True)
        await self._restart()
        self._rounds.begin_round()
        self._ready = said

    async def _sync_session_file(self) -> None:
        """Waits for the session file: a tool's result is printed a moment before it is written."""
        if self._output.has_new_results:
            await self._session_file.catch_up(self._known_session, self._ready)
            self._output.note_results()

    def _is_lost(self, events: list[Event]) -> bool:
        """Was there nothing to resume, and shall the prompt be given to a fresh session?"""
        wanted = (
            self._options.resume and self._transport.fresh_if_lost and self._stop.requested is None
        )
        if not wanted or self.status != "error" or self._decoder.answered:
            return False
        return any(isinstance(event, Error) and event.code == SessionLost.code for event in events)

    async def _restart_without_session(self) -> None:
        lost, why = self._ready, next(one.message for one in self._ready if isinstance(one, Error))
        self._ready = []
        try:
            self._start_new_session(why)
            await self._restart()
        except BaseException:
            self._ready = lost  # It stays at that.
            raise

    async def _restart(self) -> None:
        """Another process for the same turn."""
        self._stderr = self.stderr
        await self._close()
        self._process = None
        self._output = self._new_output()
        await self._start()
        self.status = self._stderr = None

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        self._begin_stop(reason, limit)
        await self._stop.wait()

    def hurry(self) -> None:
        self._begin_stop("cancel", None)
        self._stop.hurry(self._process)

    def _begin_stop(self, reason: Stop, limit: float | None) -> None:
        self._stop.request((reason, limit), self._process)

    @property
    def _known_session(self) -> str | None:
        return self._decoder.session_id or self._options.resume or self._options.session_id

    def spent(self) -> Decimal | None:
        return usd_of(self.requests(), self._transport.prices)

    def requests(self) -> list[ModelRequest]:
        return self._rounds.requests(self._session_file.requests(self._known_session))

    def _gather_last_facts(self) -> tuple[str, Billing | None]:
        """What stderr says at the end, and who pays. In a thread: it reads files."""
        stderr = self.stderr
        if is_full(temporary_folder()):
            # Nor can it complain: what it says on stderr lies there as well.
            stderr += f"\nno room is left in {str(temporary_folder())!r}, where its output goes"
        self._session_file.read(self._known_session, thoroughly=True)
        return stderr, payer(self._options, self._context.env)

    def _last_events(self) -> list[Event]:
        self._limits.network.look()
        stderr, _ = self._last_facts
        stop, limit = self._stop_reason(stderr)
        events = last_events(
            self._decoder,
            Ending(
                self._child.exit_code,
                stderr,
                stop,
                limit,
                self._phase,
                self._limits.network.trouble,
                advice_if_newer(self._conversation.program.version),
                self._child.is_lapsed,
                self._interrupt.question,
            ),
            at=time.time_ns() // 1_000_000,
            duration=time.monotonic() - self._began,
            price=self._price,
            requests=self._session_file.answered,
        )
        done = events[-1]
        assert isinstance(done, Done)
        unsaved = [not_saved(self._context.home)] if was_not_recorded(stderr) else []
        warnings = map(self._stamped, unsaved)
        return [*warnings, *events[:-1], self._rounds.whole(done, self._price)]

    def _stop_reason(self, stderr: str) -> tuple[Stop | None, float | None]:
        if self._stop.begun is not None:
            return self._stop.begun
        # Without the policy it has run perhaps, but never to a success.
        if POLICY_ERROR in stderr:
            return "bad_policy", None
        # A tool ran that the options deny, and then the CLI has ended by itself.
        is_unrestricted = self._stop.requested == ("unrestricted", None)
        return ("unrestricted" if is_unrestricted else None), None

    @property
    def _phase(self) -> str | None:
        is_silent = not self._child.written and self._rounds.is_first
        return FIRST_WORD if is_silent else None

    def _price(self, usage: Usage | None) -> Cost | str:
        return price_of(usage, self._transport.prices, self._last_facts[1])
