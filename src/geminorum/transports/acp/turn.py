"""One turn in a session of a warm process: the prompt, its updates, its limits."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from geminorum import cost
from geminorum.auth import payer
from geminorum.errors import GeminorumError, ProtocolError, RunFailed
from geminorum.events import (
    Cost,
    Done,
    Error,
    Event,
    Init,
    ModelRequest,
    Usage,
    UserMessage,
)
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.prompt import Prompt, encoded
from geminorum.runtime.interrupts import Interrupt
from geminorum.transports.acp.event_queue import EventQueue
from geminorum.transports.acp.process import AcpProcess, ProcessEnded, Refused
from geminorum.transports.acp.prompt_call import PromptCall
from geminorum.transports.acp.questions import Questions
from geminorum.transports.acp.session import AcpSession
from geminorum.transports.acp.session_file import AcpSessionFileFeed
from geminorum.transports.acp.stop import AcpStop
from geminorum.transports.acp.tools import SessionTools
from geminorum.transports.callbacks.final_answer import RETRY_PROMPT
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.newer_cli import advice_if_newer
from geminorum.transports.process.full_disk import is_full, not_saved
from geminorum.transports.turns.answer_rounds import AnswerRounds
from geminorum.transports.turns.bill import price_of, usd_of
from geminorum.transports.turns.denied_tools import ran_denied_tool
from geminorum.transports.turns.network import NetworkWatch
from geminorum.transports.turns.outbox import now
from geminorum.transports.turns.request_gate import TurnGate
from geminorum.transports.turns.stop_checks import Reason, StallDetector
from geminorum.transports.turns.turn_limits import TurnLimits
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import AcpDecoder
from geminorum.wire.acp.verdict import TurnEnding, ended_early, fits, last_events, reported
from geminorum.wire.ending import FIRST_WORD, Ending, Stop
from geminorum.wire.notices import PARSE_ERROR
from geminorum.wire.policy.toml_writer import is_denied

if TYPE_CHECKING:
    from geminorum.transports.acp.transport import Acp, AcpConversation

_ROUND_CHECK_SECONDS = 0.05
_MOMENT = 0.004
"""Seconds between two looks at the session file, which is a moment behind the wire."""
_LOOKS_FOR_RESULTS, _LOOKS_FOR_SUMS = 250, 100
"""A loaded machine takes its time. Results always come; sums may never fit, where the CLI has asked
for itself."""
_EXIT_WAIT = 500
_HURRY_SECONDS = 0.3
"""For a process to answer a cancel once the caller was cancelled and will not wait."""
_LAST_GRACE = 1.0
"""Seconds at most for a process that had its whole grace to hear a cancel, and did not; and for
one to hear it while it tries to reach the network, where the CLI hears nothing."""
_SAMPLE = 200
_UNREAD_QUESTION = "the CLI asked for permission in a way that geminorum cannot read: refused"


class AcpTurn:
    """Sends a prompt in a session, decodes its updates, enforces its limits.

    It listens by itself, so that a question is answered even while nobody reads; what has to be
    looked up in the session file is, when it is read.
    """

    def __init__(self, conversation: AcpConversation, prompt: Prompt) -> None:
        encoded(prompt, literal=False)
        self.conversation = conversation
        # A lone surrogate cannot be sent; a question mark in its place can.
        self._prompt = str(prompt).encode("utf-8", "replace").decode()
        self._session: AcpSession | None = None
        self._rounds = AnswerRounds()
        self.decoder = self._new_decoder()
        self._began = time.monotonic()
        self._log_start = conversation.log_start
        self._queue = EventQueue()
        self._call = PromptCall()
        self._stop = AcpStop()
        self._questions = Questions(self)
        self._limits: TurnLimits | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._heard, self._synced_at = 1, 0
        self.interrupt = Interrupt(lambda reason: self._begin_stop(reason, None))

    async def __aenter__(self) -> AcpTurn:
        self.conversation.begin_turn(self)
        self._rounds = AnswerRounds(self._tools.start_answer())
        self._limits = self._new_limits()
        self._beginning = asyncio.create_task(self._begin())
        cost.warm_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if not self._queue.is_over:
                await self.stop("cancel")
        finally:
            self._forget()
            self.conversation.dangling |= self._broke_off_at_a_tool()
            self.conversation.end_turn(self)
            beginning = [] if self._beginning is None else [self._beginning]
            await _end_tasks(*self._questions.tasks, *beginning, *self._stop.tasks)

    @property
    def _transport(self) -> Acp:
        return self.conversation.transport

    @property
    def _options(self) -> Options:
        return self.conversation.options

    @property
    def _process(self) -> AcpProcess:
        return self.conversation.process

    @property
    def _tools(self) -> SessionTools:
        return self.conversation.tools

    @property
    def _network(self) -> NetworkWatch:
        assert self._limits is not None
        return self._limits.network

    @property
    def is_stopping(self) -> bool:
        return self._stop.requested is not None

    def _broke_off_at_a_tool(self) -> bool:
        """May the CLI remember a call without its response? Google would refuse what follows."""
        return self.tool_uses > 0 and (self.is_stopping or not self._call.has_succeeded)

    def _new_decoder(self) -> AcpDecoder:
        refused = partial(is_denied, self._options)
        session_id = self._session.id if self._session else None
        return AcpDecoder(
            session_id, is_refused=refused, own=self._tools.names, named=self._tools.named
        )

    @property
    def stderr(self) -> str:
        return self._process.stderr(self._log_start)

    @property
    def tool_uses(self) -> int:
        """The number of tool calls that the turn has reported so far."""
        return self.decoder.tool_uses

    # ---- the way in

    async def _begin(self) -> None:
        """Waits for the session, then sends the prompt; the stream reports earlier failures."""
        try:
            self._session = await self.conversation.wait_for_session()
        except ProcessEnded:
            await self._exit_known()
            process, newer = self._process, self._newer
            is_lapsed = process.is_lapsed
            ending = Ending(process.exit_code, self.stderr, newer=newer, is_lapsed=is_lapsed)
            self._end_without_session(ended_early(ending).error)
        except Refused as refused:
            self._network.look()
            ending = Ending(None, self.stderr, network=self._network.trouble)
            self._end_without_session(reported(refused.error, ending).error)
        except GeminorumError as error:
            text, kind = error.message, type(error)
            self._end_without_session(Error(text, kind.code, hint=error.hint))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._end_without_session(
                Error(
                    text, RunFailed.code, hint=advice("check {Options.cwd}[ and {Options.model}]")
                )
            )
        else:
            self._ask(self._session)

    def _end_without_session(self, error: Error | None) -> None:
        self._call.broken = error or Error("there is no session", ProtocolError.code)
        self._end()

    def _ask(self, session: AcpSession) -> None:
        if self._queue.is_over:
            return  # Stopped while it waited.
        if self._process.gone:
            self._end()
            return
        self.decoder.session_id = session.id
        self._emit_init(session)
        self._send(session, acp.prompt(session.id, self._prompt, literal=self._options.literal))

    def _send(self, session: AcpSession, prompt: dict[str, object]) -> None:
        session.session_file.begin()
        self._process.add_handler(session.id, self)
        self._ask_at_gate(session)
        self._call.number = self._process.call("session/prompt", prompt, self._on_reply)
        self._watch_limits()

    def _emit_init(self, session: AcpSession) -> None:
        common: Any = {"timestamp": now(), "session_id": session.id}
        notices, self.conversation.notices = self.conversation.notices, []
        self._queue.push([msgspec.structs.replace(one, session_id=session.id) for one in notices])
        init = Init(session.model, str(session.cwd), **common)
        self.emit([init, UserMessage(self._prompt, **common)])

    def _new_limits(self) -> TurnLimits:
        limit = self._options.network_timeout
        log = self._process.network
        is_busy = lambda _: self._is_busy or self._is_held  # noqa: E731
        network = NetworkWatch(log, limit, self._announce, is_busy)
        return TurnLimits(network, self._begin_stop)

    def _ask_at_gate(self, session: AcpSession) -> None:
        """Has the process ask for this turn before its requests, if it asks at all."""
        gate, prices = self._transport.gate, self._transport.prices
        if gate is None or self._process.gate is None:
            return
        turn = TurnGate(gate, prices, self._announce_wait, lambda: self._is_busy)
        self._process.gate.requests.enter(session.id, turn)

    def _announce_wait(self, notice: Error) -> None:
        self.emit([self._stamped(notice)])

    def _watch_limits(self) -> None:
        options, transport, limits = self._options, self._transport, self._limits
        assert limits is not None
        stall = transport.stall_timeout
        limits.watch_silence(
            StallDetector(
                self._signs_of_life, None, stall, tool_runs=lambda: self.decoder.tool_runs
            )
        )
        budget, prices = options.max_budget_usd, transport.prices
        limits.watch_budget(budget, prices, self.requests, lambda: self._rounds.is_awaited)
        if options.max_turns is not None:
            limits.watch(_ROUND_CHECK_SECONDS, self._count_rounds)

    # ---- messages: called by the process, in the order of the wire

    def on_update(self, update: Raw, halved: str | None) -> None:
        self._heard += 1
        self._sync_session_file()
        self.emit(self.decoder.update(update, now(), halved))

    def on_permission_request(self, number: int | str | None, params: Raw) -> None:
        self._heard += 1
        self._sync_session_file()
        question = acp.decoded(params, acp.Question)
        if question is not None:
            self._questions.ask(number, question, params)
            return
        self._process.answer(number, acp.WITHDRAWN)
        self.emit(self.decoder.unknown("session/request_permission", params, now()))
        self.emit([self._notice(_UNREAD_QUESTION, PARSE_ERROR)])

    def on_unknown_method(self, method: str, params: Raw) -> None:
        self._heard += 1
        self._sync_session_file()
        self.emit(self.decoder.unknown(method, params, now()))

    def on_invalid_line(self, line: bytes) -> None:
        sample = line[:_SAMPLE].decode("utf-8", "replace")
        text = f"expected a message of the protocol; raw: {sample}"
        self.emit([self._notice(text, PARSE_ERROR)])

    def _on_reply(self, reply: acp.Message | None) -> None:
        self._call.reply = reply
        self._sync_session_file()
        self._end()

    def _sync_session_file(self) -> None:
        """What the file tells of calls that the wire is silent about comes before what the model
        says next. Once for all lines that came together."""
        if self._synced_at != self._process.heard:
            self._synced_at = self._process.heard
            self._session_file.read()
        # At its end a turn has heard all that the wire will tell.
        waits = self._call.reply is None
        has_ended = self.decoder.has_ended
        fresh = self._session_file.answers(has_ended) if waits else self._session_file.answers()
        for answer in fresh:
            self.emit(self.decoder.add_unseen(*answer, now()))

    def emit(self, events: list[Event]) -> None:
        """Gives events to the consumer, and ends the turn if a denied tool ran."""
        self._queue.push(events)
        if ran_denied_tool(events, self._options, [*self._tools.names]):
            self._begin_stop("unrestricted", None)

    def _end(self) -> None:
        self._network.look()  # For its last output: nobody looks after this.
        self._forget()
        self._questions.cancel()  # The process no longer waits for the answers.
        self._tools.cancel()
        self._queue.end()

    def _forget(self) -> None:
        """Removes the handler: late messages belong to no turn."""
        if self._session is not None:
            self._process.remove_handler(self._session.id, self)
            if self._process.gate is not None:
                self._process.gate.requests.leave(self._session.id)
        if self._call.number is not None:
            self._process.forget(self._call.number)
        if self._limits is not None:
            self._limits.cancel()
        self._stop.cancel_timer()

    # ---- the way out

    async def read(self) -> list[Event]:
        queue = self._queue
        while not queue.is_done:
            queue.note()
            count = self._free_to_go()
            if count:
                await self._await_results(queue.events[:count])
                # No await from here on: a cancellation must not fall between taking and giving.
                return self._judged(self._completed(queue.take(count)))
            if queue.is_over:
                events = self._judged(await self._finish_round())
                if not self._needs_retry:
                    return events
                if said := self._retry_answer(events):
                    return said
            else:
                await queue.wait_changed()
        self.interrupt.pass_on()
        return []

    def _completed(self, events: list[Event]) -> list[Event]:
        """The events with what the session file adds, once there is a session."""
        if self._session is None:
            return events
        return [self._session_file.completed(event) for event in events]

    def _judged(self, events: list[Event]) -> list[Event]:
        """The events as they are for an answer in a shape, if there is to be one."""
        answer = self._rounds.answer
        if answer is None:
            return events
        events = answer.judged(events)
        if answer.is_exhausted:
            self._begin_stop("no_answer", None)
        return events

    @property
    def _needs_retry(self) -> bool:
        """Has the agent ended without an answer, and may it be asked once more?"""
        return self._rounds.needs_retry and not self._stop.is_wanted and not self._process.gone

    def _retry_answer(self, events: list[Event]) -> list[Event]:
        """Sends another prompt in the same session and turn; returns what was said until then."""
        assert self._session is not None
        said = self._rounds.end_round(events)
        self._rounds.begin_round()
        self.decoder, self._call = self._new_decoder(), PromptCall()
        self._queue.reopen()
        again: Any = {"timestamp": now(), "session_id": self._session.id}
        self.emit([UserMessage(RETRY_PROMPT, **again)])
        self._limits = TurnLimits(self._network, self._begin_stop)
        self._send(self._session, acp.prompt(self._session.id, RETRY_PROMPT, literal=True))
        return said

    def _free_to_go(self) -> int:
        """How many events may go: a call waits for its arguments, which the file has at its end."""
        events = self._queue.events
        if self._queue.is_over:
            return len(events)
        lacking = map(self.decoder.lacks_input, events)
        return next((place for place, lacks in enumerate(lacking) if lacks), len(events))

    async def _await_results(self, events: list[Event]) -> None:
        """Waits for the session file: a tool's result is sent a moment before it is written."""
        if self._session is None:
            return
        for _ in range(_LOOKS_FOR_RESULTS):
            if not self._session_file.lacks(events):
                return
            self._session_file.read()
            await asyncio.sleep(_MOMENT)

    async def _finish_round(self) -> list[Event]:
        prompted, error = self._call.outcome()
        if self._process.gone:
            await self._exit_known()
        await self._await_sums(prompted)
        if self._queue.is_done:
            return []
        self._queue.is_done = True
        ending = self._ending(prompted, error)
        at, duration = now(), time.monotonic() - self._began
        resume = self._session.id if self._session else None
        events = last_events(
            self.decoder, ending, at=at, duration=duration, price=self._price, resume=resume
        )
        done = events[-1]
        assert isinstance(done, Done)
        events[-1] = self._rounds.whole(done, self._price)
        if self._was_not_saved(prompted):
            events.insert(0, self._stamped(not_saved(self._process.home)))
        return self._completed(events)

    def _was_not_saved(self, prompted: acp.Prompted | None) -> bool:
        """Is the disk full? The CLI then goes on without its session file, and says nothing."""
        told = prompted is not None and prompted.quota is not None and prompted.quota.model_usage
        return bool(told) and not self._session_file.requests and is_full(self._process.home)

    async def _await_sums(self, prompted: acp.Prompted | None) -> None:
        """The last answer's tokens may still be on their way to the file."""
        quota = prompted.quota if prompted else None
        if self._session is None:
            return
        self._session_file.read(thoroughly=True)
        for _ in range(_LOOKS_FOR_SUMS):
            if quota is None or not quota.model_usage or not self._session_file.found:
                return
            if fits(quota, self._session_file.rounds):
                return
            await asyncio.sleep(_MOMENT)
            self._session_file.read()

    def _ending(self, prompted: acp.Prompted | None, error: acp.RpcError | None) -> TurnEnding:
        session = self._session
        return TurnEnding(
            self._process_ending(),
            prompted,
            error,
            session.session_file.rounds if session else (),
            session.session_file.requests if session else (),
            session is None or session.asks_unseen,
            self._has_turn_limit(prompted),
            self._call.broken,
        )

    def _process_ending(self) -> Ending:
        stop, limit = self._stop.requested or (None, None)
        process, network = self._process, self._network.trouble
        code, lapsed = (process.exit_code, process.is_lapsed) if process.gone else (None, False)
        question = self.interrupt.question
        return Ending(
            code, self.stderr, stop, limit, self._phase, network, self._newer, lapsed, question
        )

    @property
    def _newer(self) -> str:
        return advice_if_newer(self._process.program.version)

    def _has_turn_limit(self, prompted: acp.Prompted | None) -> bool:
        asked = prompted is not None and prompted.stop_reason == "max_turn_requests"
        return asked and LaunchContext(self._transport, self._options).has_turn_limit

    @property
    def _phase(self) -> str | None:
        """What the turn did while it had no session."""
        if self._session is not None:
            return None
        return "opening a session" if self._process.shaken_hands else FIRST_WORD

    async def _exit_known(self) -> None:
        """A pipe may end a moment before its process."""
        for _ in range(_EXIT_WAIT):
            if self._process.exit_code is not None:
                return
            await asyncio.sleep(_MOMENT)

    # ---- what may stop it

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        self._begin_stop(reason, limit)
        await self._queue.wait_over()

    def _begin_stop(self, reason: Stop, limit: float | None) -> None:
        self._stop.is_wanted = True
        if self._queue.is_over or self.is_stopping:
            return
        self._stop.requested = (reason, limit)
        if self._call.number is None or self._session is None:
            self._end()
            return
        # First the cancel, then the answers: a question that is answered before would let the
        # model be asked once more.
        self._process.notify("session/cancel", {"sessionId": self._session.id})
        self._questions.cancel()
        grace = self._transport.grace
        self._stop.kill_after(min(grace, _LAST_GRACE) if reason == "network" else grace, self._kill)

    def hurry(self) -> None:
        self._begin_stop("cancel", None)
        if not self._queue.is_over:
            self._stop.hurry(min(self._transport.grace, _HURRY_SECONDS), self._give_up)

    def _give_up(self) -> None:
        """Leaves the process to itself: others may be working in it."""
        self._process.drain()
        self._end()

    async def _kill(self) -> None:
        """Kills a process that ignores the cancel. Its other sessions end, too."""
        try:
            await self._process.stop(_LAST_GRACE)
        finally:
            self._end()

    def _count_rounds(self) -> Reason | None:
        self._session_file.read()
        most = self._options.max_turns
        over = most is not None and len(self._session_file.rounds) > most
        return ("turns", most) if over else None

    @property
    def _is_busy(self) -> bool:
        """Does a tool run, or is a request undecided? Other sessions make failed requests then."""
        return self.decoder.tool_runs or self._questions.is_open

    @property
    def _is_held(self) -> bool:
        """Does a request of the process wait to be let through? It may be this turn's."""
        return self._process.gate is not None and self._process.gate.requests.is_waiting

    def _announce(self, retry: Error) -> None:
        if not self._is_busy:
            self.emit([self._stamped(retry)])

    def _stamped(self, notice: Error) -> Error:
        where = self.decoder.session_id
        return msgspec.structs.replace(notice, session_id=where, timestamp=now())

    def _signs_of_life(self) -> int:
        # Who waits for a person to decide, or for a limit, does not stall.
        self._heard += self._questions.is_open or self._is_held
        return self._heard

    def spent(self) -> Decimal | None:
        return usd_of(self.requests(), self._transport.prices)

    def requests(self) -> list[ModelRequest]:
        if self._session is None:
            return []
        self._session_file.read()
        return self._rounds.requests([*self._session_file.requests])

    @property
    def _session_file(self) -> AcpSessionFileFeed:
        assert self._session is not None
        return self._session.session_file

    def _notice(self, text: str, code: str) -> Error:
        where = self.decoder.session_id
        return Error(text, code, recoverable=True, timestamp=now(), session_id=where)

    def _price(self, usage: Usage | None) -> Cost | str:
        return price_of(usage, self._transport.prices, payer(self._options, self._process.env))


async def _end_tasks(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
