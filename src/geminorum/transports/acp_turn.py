"""One turn in a session of a warm process: a prompt, what is told of it, and what may stop it."""

from __future__ import annotations

import asyncio
import contextvars
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from geminorum import cost
from geminorum.auth import payer
from geminorum.decisions import CANCELLED, Allow, AllowAlways, Decision, Deny
from geminorum.errors import GeminorumError, ProtocolError, RunFailed
from geminorum.events import (
    Cost,
    Done,
    Error,
    Event,
    Init,
    ModelRequest,
    PermissionRequest,
    Usage,
    UserMessage,
)
from geminorum.interrupts import Interrupt
from geminorum.prompt import Prompt, encoded
from geminorum.transports.acp_ledger import AcpLedger
from geminorum.transports.acp_process import ProcessEnded, Refused
from geminorum.transports.acp_session import AcpSession
from geminorum.transports.bill import price_of, with_earlier
from geminorum.transports.denied_tools import ran_denied_tool
from geminorum.transports.final_answer import ONCE_MORE, FinalAnswer, is_complaint
from geminorum.transports.full_disk import is_full, not_saved
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.network import NetworkWatch
from geminorum.transports.newer_cli import advice_if_newer
from geminorum.transports.outbox import now
from geminorum.transports.watch import Patrol, Reason, Silence, Spending
from geminorum.wire import acp
from geminorum.wire.acp_events import AcpDecoder, omits_input
from geminorum.wire.acp_verdict import TurnEnding, ended_early, fits, last_events, reported
from geminorum.wire.policy_toml import is_denied
from geminorum.wire.stream_json import PARSE_ERROR
from geminorum.wire.verdict import FIRST_WORD, Ending, Stop

if TYPE_CHECKING:
    from geminorum.transports.acp import AcpConversation

_ROUND = 0.05
_MOMENT = 0.004
"""Seconds between two looks at the session file, which is a moment behind the wire."""
_LOOKS_FOR_RESULTS, _LOOKS_FOR_SUMS = 250, 100
"""A loaded machine takes its time. Results always come; sums may never fit, where the CLI has asked
for itself."""
_EXIT_WAIT = 500
_HURRY_SECONDS = 0.3
"""How long a process may take to answer a cancel when nobody has patience any more."""
_LAST_GRACE = 1.0
"""Seconds at most for a process that had its whole grace to hear a cancel, and did not; and for
one to hear it while it tries to reach the network, where the CLI hears nothing."""
_SAMPLE = 200
_UNREAD_QUESTION = "the CLI asked for permission in a way that geminorum cannot read: refused"
_NAMELESS = "refused: the CLI did not say which tool it asks about; a newer CLI may need Cli()"
_NO_OPTION = "refused: the CLI offered no option that allows it once; a newer CLI may need Cli()"


class AcpTurn:
    """A prompt in a session. Listens by itself, so that a question is answered even while nobody
    reads; what has to be looked up in the session file is, when it is read."""

    def __init__(self, conversation: AcpConversation, prompt: Prompt) -> None:
        encoded(prompt, literal=False)
        # A lone surrogate cannot be sent; a question mark in its place can.
        self._conversation = conversation
        self._prompt = str(prompt).encode("utf-8", "replace").decode()
        self._door, self._options = conversation.door, conversation.options
        self._process = conversation.process
        self._session: AcpSession | None = None
        self._tools = conversation.tools
        self._answer: FinalAnswer | None = None
        self._earlier: list[Usage | None] = []
        """What was used before the agent was asked once more; empty the first time."""
        self._decoder = self._new_decoder()
        self._began = time.monotonic()
        self._log_start = conversation.log_start
        self._ready: list[Event] = []
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        """Nothing more will be told."""
        self._number: int | None = None
        self._reply: acp.Message | None = None
        self._broken: Error | None = None
        """Why there was no session to ask in."""
        self._wish: Reason | None = None
        self._questions: dict[int | str | None, asyncio.Task[Any]] = {}
        self._patrols: list[Patrol] = []
        self._beginning: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._killing: asyncio.Task[None] | None = None
        self._heard, self._glanced = 1, 0
        self._network = self._new_network_watch()
        self._done = False
        # The process calls us in the context of whoever started it, who may be another tenant.
        self._context = contextvars.copy_context()
        self.interrupt = Interrupt(partial(self._begin_stop, "cancel", None))
        self._unwanted = False
        """Was it to stop, though it may have ended just before?"""

    async def __aenter__(self) -> AcpTurn:
        self._conversation.begun(self)
        self._answer = self._tools.new_answer()
        self._patrols = [self._network_patrol()]
        self._beginning = asyncio.create_task(self._begin())
        cost.warm_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if not self._over.is_set():
                await self.stop("cancel")
        finally:
            self._forget()
            self._conversation.dangling |= self._broke_off_at_a_tool()
            self._conversation.ended(self)
            tasks = [*self._questions.values(), self._beginning, self._killing]
            await _ended(*filter(None, tasks))

    def _broke_off_at_a_tool(self) -> bool:
        """May the CLI remember a call without its response? Google would refuse what follows."""
        replied = self._reply is not None and self._reply.error is None
        return self._decoder.tool_uses > 0 and (self._wish is not None or not replied)

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
        """How many calls of tools the turn has told of by now."""
        return self._decoder.tool_uses

    # ---- the way in

    async def _begin(self) -> None:
        """Waits for the session, then asks; what went wrong before is for the stream to tell."""
        try:
            self._session = await self._conversation.session()
        except ProcessEnded:
            await self._exit_known()
            ending = Ending(self._process.exit_code, self.stderr, newer=self._newer)
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
            self._end_without_session(Error(text, RunFailed.code, hint="check cwd and model"))
        else:
            self._ask(self._session)

    def _end_without_session(self, error: Error | None) -> None:
        self._broken = error or Error("there is no session", ProtocolError.code)
        self._end()

    def _ask(self, session: AcpSession) -> None:
        if self._over.is_set():
            return  # Stopped while it waited.
        if self._process.gone:
            self._end()
            return
        self._decoder.session_id = session.id
        self._say_hello(session)
        self._send(session, acp.prompt(session.id, self._prompt, literal=self._options.literal))

    def _send(self, session: AcpSession, prompt: dict[str, object]) -> None:
        session.ledger.begin()
        self._process.listen(session.id, self)
        self._number = self._process.call("session/prompt", prompt, self._replied)
        self._patrols += self._all_patrols()

    def _say_hello(self, session: AcpSession) -> None:
        common: Any = {"timestamp": now(), "session_id": session.id}
        notices, self._conversation.notices = self._conversation.notices, []
        self._ready += [msgspec.structs.replace(one, session_id=session.id) for one in notices]
        init = Init(session.model, str(session.cwd), **common)
        self._push([init, UserMessage(self._prompt, **common)])

    def _new_network_watch(self) -> NetworkWatch:
        limit = self._options.network_timeout
        return NetworkWatch(self._process.network, limit, self._announce, lambda _: self._is_busy)

    def _network_patrol(self) -> Patrol:
        return Patrol(self._network.PAUSE, self._network.look, stop=self._begin_stop)

    def _awaits_answer(self) -> bool:
        return self._answer is not None and not self._answer.arrived

    def _all_patrols(self) -> list[Patrol]:
        options, door = self._options, self._door
        watch = partial(Patrol, stop=self._begin_stop)
        patrols = []
        silence = Silence(
            self._signs_of_life,
            None,
            door.stall_timeout,
            tool_runs=lambda: self._decoder.tool_runs,
        )
        if silence.pause is not None:
            patrols.append(watch(silence.pause, silence.look))
        if options.max_budget_usd is not None:
            spending = Spending(
                self._requests, options.max_budget_usd, door.prices, self._awaits_answer
            )
            patrols.append(watch(spending.PAUSE, spending.look))
        if options.max_turns is not None:
            patrols.append(watch(_ROUND, self._count_rounds))
        return patrols

    # ---- what is told: called by the process, in the order of the wire

    def told(self, update: Raw, halved: str | None) -> None:
        self._heard += 1
        self._glance()
        self._push(self._decoder.update(update, now(), halved))

    def asked(self, number: int | str | None, params: Raw) -> None:
        self._heard += 1
        self._glance()
        question = acp.decoded(params, acp.Question)
        if question is None:
            self._process.answer(number, acp.WITHDRAWN)
            self._push(self._decoder.unknown("session/request_permission", params, now()))
            self._push([self._notice(_UNREAD_QUESTION, PARSE_ERROR)])
            return
        request = self._decoder.question(question, params, now())
        ask = partial(self._decide_at_call, request)
        if omits_input(question.tool_call) and self._tools.ask_at_call(request, ask):
            self._process.answer(number, acp.choice(question, Allow()))
            return
        self._push(self._decoder.asked(request, now()))
        self._questions[number] = asyncio.create_task(
            self._decide(number, question, request), context=self._context.copy()
        )

    def unknown(self, method: str, params: Raw) -> None:
        self._heard += 1
        self._glance()
        self._push(self._decoder.unknown(method, params, now()))

    def garbled(self, line: bytes) -> None:
        sample = line[:_SAMPLE].decode("utf-8", "replace")
        text = f"expected a message of the protocol; raw: {sample}"
        self._push([self._notice(text, PARSE_ERROR)])

    def _replied(self, reply: acp.Message | None) -> None:
        self._reply = reply
        self._glance()
        self._end()

    def _glance(self) -> None:
        """What the file tells of calls that the wire is silent about comes before what the model
        says next. Once for all lines that came together."""
        if self._glanced != self._process.heard:
            self._glanced = self._process.heard
            self._ledger.read()
        has_ended = self._decoder.has_ended
        # At its end a turn has heard all that the wire will tell.
        fresh = self._ledger.answers(has_ended) if self._reply is None else self._ledger.answers()
        for answer in fresh:
            self._push(self._decoder.unseen(*answer, now()))

    def _push(self, events: list[Event]) -> None:
        self._ready += events
        if events:
            self._news.set()
        if ran_denied_tool(events, self._options, [*self._tools.names]):
            self._begin_stop("unrestricted", None)

    def _end(self) -> None:
        self._network.look()  # For its last output: nobody looks after this.
        self._forget()
        for question in [*self._questions.values()]:
            question.cancel()  # Whoever asked is gone.
        self._tools.cancel()
        self._over.set()
        self._news.set()

    def _forget(self) -> None:
        """Nobody listens any more: what comes late belongs to no turn."""
        if self._session is not None:
            self._process.unlisten(self._session.id, self)
        if self._number is not None:
            self._process.forget(self._number)
        for timer in (*self._patrols, self._patience):
            if timer is not None:
                timer.cancel()

    # ---- questions

    async def _decide(
        self, number: int | str | None, question: acp.Question, request: PermissionRequest
    ) -> None:
        decision: Decision | None = None
        try:
            decision = await self._decision(question, request)
            if self._wish is not None:
                decision = None  # Said after the cancel: too late.
        finally:
            # Withdrawn where we were cancelled: a question without an answer would hang the turn.
            self._questions.pop(number, None)
            if isinstance(decision, Allow | AllowAlways):
                self._tools.allow_once(request)
            self._process.answer(number, acp.choice(question, decision))
            asked = self._door.decide is not None or decision is None
            events = self._decoder.decided(request, decision or CANCELLED, now(), asked=asked)
            self._push(events)

    async def _decision(self, question: acp.Question, request: PermissionRequest) -> Decision:
        if not question.tool_call.names_tool:
            # A rule for a tool's name would not match, and let it run.
            return Deny(_NAMELESS)
        decision = await self._conversation.decisions.ask(request, self.interrupt.take)
        is_allowed = isinstance(decision, Allow | AllowAlways)
        if is_allowed and acp.choice(question, decision) is acp.WITHDRAWN:
            return Deny(_NO_OPTION)
        return decision

    async def _decide_at_call(
        self, request: PermissionRequest, arguments: dict[str, Any]
    ) -> str | None:
        """Asks about a call of a function whose arguments were too long for the question; why it
        may not run, if so."""
        request = msgspec.structs.replace(request, input=arguments)
        self._push(self._decoder.asked(request, now()))
        question = self._conversation.decisions.ask(request, self.interrupt.take)
        task = asyncio.create_task(question, context=self._context.copy())
        self._questions[f"call {request.id}"] = task
        await asyncio.wait([task])
        self._questions.pop(f"call {request.id}", None)
        decision = None if task.cancelled() or self._wish is not None else task.result()
        self._push(self._decoder.decided(request, decision or CANCELLED, now()))
        if isinstance(decision, Allow | AllowAlways):
            return None
        return (decision.reason if decision else "") or "the user said no"

    # ---- the way out

    async def read(self) -> list[Event]:
        while not self._done:
            self._news.clear()
            count = self._free_to_go()
            if count:
                await self._await_second_channel(self._ready[:count])
                # No await from here on: a cancellation must not fall between taking and giving.
                events, self._ready = self._ready[:count], self._ready[count:]
                return self._judged([self._ledger.completed(event) for event in events])
            if self._over.is_set():
                events = self._judged(await self._last_events())
                if not self._is_owed:
                    return events
                if said := self._ask_once_more(events):
                    return said
            else:
                await self._news.wait()
        self.interrupt.pass_on()
        return []

    def _judged(self, events: list[Event]) -> list[Event]:
        """The events as they are for an answer in a shape, if there is to be one."""
        if self._answer is None:
            return events
        events = self._answer.judged(events)
        if self._answer.is_hopeless:
            self._begin_stop("no_answer", None)
        return events

    @property
    def _is_owed(self) -> bool:
        """Has the agent ended without an answer, and may it be asked once more?"""
        owed = self._answer is not None and self._answer.is_owed
        return owed and not self._unwanted and not self._process.gone

    def _ask_once_more(self, events: list[Event]) -> list[Event]:
        """In the same session, and as a part of this same turn; what was said until then."""
        assert self._answer is not None
        assert self._session is not None
        *said, done = [event for event in events if not is_complaint(event)]
        assert isinstance(done, Done)
        self._earlier, self._answer.is_owed = [done.usage], False
        self._decoder, self._reply, self._done = self._new_decoder(), None, False
        self._over.clear()
        again: Any = {"timestamp": now(), "session_id": self._session.id}
        self._push([UserMessage(ONCE_MORE, **again)])
        self._patrols = [self._network_patrol()]
        self._send(self._session, acp.prompt(self._session.id, ONCE_MORE, literal=True))
        return said

    def _free_to_go(self) -> int:
        """How many events may go: a call waits for its arguments, which the file has at its end."""
        if self._over.is_set():
            return len(self._ready)
        lacking = map(self._decoder.lacks_input, self._ready)
        return next((place for place, lacks in enumerate(lacking) if lacks), len(self._ready))

    async def _await_second_channel(self, events: list[Event]) -> None:
        """A tool's result is told a moment before it is written to the session file."""
        if self._session is None:
            return
        for _ in range(_LOOKS_FOR_RESULTS):
            if not self._ledger.lacks(events):
                return
            self._ledger.read()
            await asyncio.sleep(_MOMENT)

    async def _last_events(self) -> list[Event]:
        prompted, error = self._outcome()
        if self._process.gone:
            await self._exit_known()
        await self._await_sums(prompted)
        if self._done:
            return []
        self._done = True
        ending = self._ending(prompted, error)
        at, duration = now(), time.monotonic() - self._began
        resume = self._session.id if self._session else None
        events = last_events(
            self._decoder, ending, at=at, duration=duration, price=self._price, resume=resume
        )
        done = events[-1]
        assert isinstance(done, Done)
        events[-1] = with_earlier(done, self._earlier, self._price)
        if self._was_not_saved(prompted):
            events.insert(0, self._stamped(not_saved(self._process.home)))
        return [self._ledger.completed(event) for event in events] if self._session else events

    def _outcome(self) -> tuple[acp.Prompted | None, acp.RpcError | None]:
        reply = self._reply
        if reply is None or reply.error is not None:
            return None, reply.error if reply else None
        try:
            return acp.prompted_of(reply), None
        except msgspec.MsgspecError:
            return None, acp.RpcError(-32603, "the answer to the prompt is invalid")

    def _was_not_saved(self, prompted: acp.Prompted | None) -> bool:
        """Is the disk full? The CLI then goes on without its session file, and says nothing."""
        told = prompted is not None and prompted.quota is not None and prompted.quota.model_usage
        return bool(told) and not self._ledger.requests and is_full(self._process.home)

    async def _await_sums(self, prompted: acp.Prompted | None) -> None:
        """The last answer's tokens may still be on their way to the file."""
        quota = prompted.quota if prompted else None
        if self._session is None:
            return
        self._ledger.read(thoroughly=True)
        for _ in range(_LOOKS_FOR_SUMS):
            if quota is None or not quota.model_usage or not self._ledger.found:
                return
            if fits(quota, self._ledger.rounds):
                return
            await asyncio.sleep(_MOMENT)
            self._ledger.read()

    def _ending(self, prompted: acp.Prompted | None, error: acp.RpcError | None) -> TurnEnding:
        stop, limit = self._wish or (None, None)
        code = self._process.exit_code if self._process.gone else None
        session = self._session
        return TurnEnding(
            Ending(code, self.stderr, stop, limit, self._phase, self._network.trouble, self._newer),
            prompted,
            error,
            session.ledger.rounds if session else (),
            session.ledger.requests if session else (),
            session is None or session.asks_unseen,
            self._has_turn_limit(prompted),
            self._broken,
        )

    @property
    def _newer(self) -> str:
        return advice_if_newer(self._process.program.version)

    def _has_turn_limit(self, prompted: acp.Prompted | None) -> bool:
        asked = prompted is not None and prompted.stop_reason == "max_turn_requests"
        return asked and LaunchContext(self._door, self._options).has_turn_limit

    @property
    def _phase(self) -> str | None:
        """What was going on while there was no session to ask in."""
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
        await self._over.wait()

    def _begin_stop(self, reason: Stop, limit: float | None) -> None:
        self._unwanted = True
        if self._over.is_set() or self._wish is not None:
            return
        self._wish = (reason, limit)
        if self._number is None or self._session is None:
            self._end()
            return
        # First the cancel, then the answers: a question that is answered before would let the
        # model be asked once more.
        self._process.notify("session/cancel", {"sessionId": self._session.id})
        for task in [*self._questions.values()]:
            task.cancel()
        loop = asyncio.get_running_loop()
        grace = self._door.grace if reason != "network" else min(self._door.grace, _LAST_GRACE)
        self._patience = loop.call_later(grace, self._lose_patience)

    def hurry(self) -> None:
        self._begin_stop("cancel", None)
        loop = asyncio.get_running_loop()
        if self._patience is not None and not self._over.is_set():
            self._patience.cancel()
            wait = min(self._door.grace, _HURRY_SECONDS)
            self._patience = loop.call_later(wait, self._give_up)

    def _give_up(self) -> None:
        """Leaves the process to itself: others may be working in it."""
        self._process.drain()
        self._end()

    def _lose_patience(self) -> None:
        self._killing = asyncio.create_task(self._kill())

    async def _kill(self) -> None:
        """It does not listen. The other sessions of the process pay for it, too."""
        try:
            await self._process.stop(_LAST_GRACE)
        finally:
            self._end()

    def _count_rounds(self) -> Reason | None:
        self._ledger.read()
        most = self._options.max_turns
        over = most is not None and len(self._ledger.rounds) > most
        return ("turns", most) if over else None

    @property
    def _is_busy(self) -> bool:
        """Does a tool run, or is somebody asked? The requests that fail are of other sessions."""
        return self._decoder.tool_runs or bool(self._questions)

    def _announce(self, retry: Error) -> None:
        if not self._is_busy:
            self._push([self._stamped(retry)])

    def _stamped(self, notice: Error) -> Error:
        where = self._decoder.session_id
        return msgspec.structs.replace(notice, session_id=where, timestamp=now())

    def _signs_of_life(self) -> int:
        # Who waits for a person to decide does not stall.
        self._heard += bool(self._questions)
        return self._heard

    def _requests(self) -> list[ModelRequest]:
        self._ledger.read()
        earlier = [request for usage in self._earlier if usage for request in usage.requests]
        return [*earlier, *self._ledger.requests]

    @property
    def _ledger(self) -> AcpLedger:
        assert self._session is not None
        return self._session.ledger

    def _notice(self, text: str, code: str) -> Error:
        where = self._decoder.session_id
        return Error(text, code, recoverable=True, timestamp=now(), session_id=where)

    def _price(self, usage: Usage | None) -> Cost | str:
        return price_of(usage, self._door.prices, payer(self._options, self._process.env))


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
