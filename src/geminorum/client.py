"""run(), ask() and connect(): send a prompt through a transport, get events and a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from geminorum.errors import GeminorumError, InvalidOptions, RunTimeout, Unsupported
from geminorum.events import DataT, Event, Tokens, total_of
from geminorum.hints import advice, python_only
from geminorum.options import Options
from geminorum.prompt import Content, Prompt
from geminorum.redaction import Redactor
from geminorum.runtime.cancellation import finish
from geminorum.runtime.lazy import lazy_module
from geminorum.system.shortage import explain_shortage
from geminorum.transports import (
    Conversation,
    KeepsHistory,
    PreparesTurns,
    TellsRequests,
    TellsSpending,
    Transport,
    Turn,
)
from geminorum.transports.secrets import redactor_of
from geminorum.views.result import Result, ResultFold

if TYPE_CHECKING:
    from geminorum import schema
    from geminorum.decisions import Decide
    from geminorum.transports.cli import transport as cli
    from geminorum.transports.stored import conversation as stored
else:
    schema = lazy_module("geminorum.schema")
    cli = lazy_module("geminorum.transports.cli.transport")
    stored = lazy_module("geminorum.transports.stored.conversation")

T = TypeVar("T")
Beginning: TypeAlias = Callable[["_Deadline", AsyncExitStack], Awaitable[Turn]]
"""Starts a turn before a deadline, and registers its cleanup on the stack."""


def run(
    prompt: Prompt, options: Options[DataT] | None = None, *, via: Transport | None = None
) -> Run[DataT]:
    """Runs a prompt: iterate over the Run for events, then read its `.result`.

        async with run("Fix the failing test") as live:
            async for event in live:
                ...

    Agent failures arrive as events and are not raised. Leaving the block stops the agent.
    """
    checked, transport = _checked(options), _transport_of(via)
    begin = partial(_open_turn, prompt, checked, transport)
    return Run(begin, checked, redactor_of(checked, transport))


async def ask(
    prompt: Prompt, options: Options[DataT] | None = None, *, via: Transport | None = None
) -> Result[DataT]:
    """Runs a prompt and returns its result, or raises an exception that carries it."""
    return await _run_to_end(run(prompt, options, via=via))


def connect(
    options: Options[DataT] | None = None,
    *,
    via: Transport | None = None,
    decide: Decide | None = None,
) -> Chat[DataT]:
    """Opens a conversation of many turns: `async with connect() as chat`, then `chat.ask(…)`.

    `decide` answers the permission requests of this conversation instead of the transport's own.
    """
    return Chat(_checked(options), _deciding(_transport_of(via), decide))


class Run(Generic[DataT]):
    """A running prompt, and afterwards its result."""

    def __init__(self, begin: Beginning, options: Options[DataT], redactor: Redactor) -> None:
        self._begin, self._timeout = begin, options.timeout
        self._redactor = redactor
        """Stands here, where everything passes, whichever transport it came through."""
        self._stack = AsyncExitStack()
        self._turn: Turn | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expiry: asyncio.Task[None] | None = None
        self._batch: Iterator[Event] = iter(())
        self._fold = ResultFold(partial(_typed, options))
        self._stderr = ""

    @property
    def result(self) -> Result[DataT | None]:
        """The result of the run: complete at the end, partial before that or after a failure."""
        return self._fold.result(self._stderr)

    @property
    def session_id(self) -> str | None:
        return self._fold.session_id

    def spent(self) -> Decimal | None:
        """What the model's answers have cost so far, in US dollars; None if that is not known.

        At the end, `result.cost` says it exactly.
        """
        turn: object = self._turn
        return turn.spent() if isinstance(turn, TellsSpending) else None

    def used(self) -> Tokens | None:
        """Tokens of the model's answers so far; None if that is not known.

        At the end, `result.usage` says it exactly.
        """
        turn: object = self._turn
        requests = turn.requests() if isinstance(turn, TellsRequests) else ()
        return total_of(requests) if requests else None

    async def cancel(self) -> None:
        """Stops the agent. Events that had arrived, and the `Done`, can still be read."""
        if self._turn is not None:
            await self._turn.stop("cancel")

    async def __aenter__(self) -> Run[DataT]:
        if self._turn is not None:
            raise GeminorumError(
                "this run has already begun", hint=python_only("call run() once more")
            )
        deadline = _Deadline(self._timeout)
        with self._redactor.exceptions():
            async with AsyncExitStack() as stack:
                self._turn = await self._begin(deadline, stack)
                self._stack = stack.pop_all()
        if self._timeout is not None and deadline.at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(deadline.at, self._expire, self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._turn is not None
        try:
            await finish(self._wind_up(), self._turn.hurry)
        finally:
            for handle in (self._timer, self._expiry):
                if handle is not None:
                    handle.cancel()
            with self._redactor.exceptions():
                await self._stack.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events() if self._turn is not None else self._whole()

    async def read(self) -> list[Event]:
        """Returns all events available, waiting for at least one; an empty list at the end."""
        if self._turn is None:
            raise GeminorumError(
                "the run has not begun", hint=python_only("async with run(…) as live: …")
            )
        with self._redactor.exceptions():
            events = self._redactor.events(await self._turn.read())
        self._fold.add(events)
        return events

    async def _events(self) -> AsyncIterator[Event]:
        while True:
            # The iterator lives in the object: a loop that was left can be taken up again.
            for event in self._batch:
                yield event
            events = await self.read()
            if not events:
                return
            self._batch = iter(events)

    async def _whole(self) -> AsyncIterator[Event]:
        """For `async for event in run(…)`: the block is the loop."""
        async with self:
            async for event in self._events():
                yield event

    async def _wind_up(self) -> None:
        """End what still runs, and take in what it had said."""
        assert self._turn is not None
        try:
            if self._fold.done is None:
                await self._turn.stop("cancel")
            while await self.read():
                pass
        finally:
            self._stderr = self._redactor.text(self._turn.stderr)

    def _expire(self, limit: float) -> None:
        assert self._turn is not None
        self._expiry = asyncio.ensure_future(self._turn.stop("timeout", limit))


class Chat(Generic[DataT]):
    """A conversation: one turn at a time, each with the context of those before."""

    def __init__(self, options: Options[DataT], transport: Transport) -> None:
        self._options = options
        self._transport = transport
        self._redactor = redactor_of(options, transport)
        self._stack = AsyncExitStack()
        self._conversation: Conversation | None = None
        self._last_turn: Run[DataT] | None = None
        self._session_id: str | None = None

    async def __aenter__(self) -> Chat[DataT]:
        with self._redactor.exceptions():
            opening, deadline = (
                _open(self._transport, self._options),
                _Deadline(self._options.timeout),
            )
            self._conversation = await deadline.enter(opening, self._stack)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._conversation = None
        await self._stack.aclose()

    @property
    def session_id(self) -> str | None:
        """The session id, for a later `resume`. None until the first turn has started."""
        if self._last_turn is not None:
            self._session_id = self._last_turn.session_id or self._session_id
        return self._session_id

    @property
    def history(self) -> list[Content]:
        """The conversation so far in the API's JSON format, for a later `Api(history=…)`.

        Only on `Api`. Other transports raise Unsupported: the CLI keeps its own history.
        """
        if not isinstance(self._transport, KeepsHistory):
            text = f"{type(self._transport).__name__} has no history; the CLI keeps its own"
            raise Unsupported(text, hint=python_only("see geminorum.sessions, or use via=Api()"))
        conversation = self._open()
        assert isinstance(conversation, KeepsHistory)
        return list(conversation.history)

    def turn(self, prompt: Prompt) -> Run[DataT]:
        """The next turn: `async with chat.turn(…) as live`, like `run`."""
        conversation = self._open()
        self._session_id = self.session_id
        begin = partial(_turn_of_many, prompt, conversation)
        self._last_turn = Run(begin, self._options, self._redactor)
        return self._last_turn

    async def ask(self, prompt: Prompt) -> Result[DataT]:
        """Sends the next prompt and returns its result, or raises an exception that carries it."""
        return await _run_to_end(self.turn(prompt))

    def _open(self) -> Conversation:
        if self._conversation is None:
            raise GeminorumError(
                "the chat is not open", hint=python_only("async with connect() as chat: …")
            )
        return self._conversation


class _Deadline:
    """The time limit of a run, from its opening on."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.at = None if seconds is None else asyncio.get_running_loop().time() + seconds

    async def enter(self, block: AbstractAsyncContextManager[T], stack: AsyncExitStack) -> T:
        """Enters a block of the transport's, and leaves its end on the stack."""
        try:
            with explain_shortage():
                async with asyncio.timeout_at(self.at) as timer:
                    return await stack.enter_async_context(block)
        except TimeoutError as error:
            if not timer.expired():
                raise
            phase = getattr(block, "phase", "opening the conversation")
            text = f"timed out after {self._seconds:g} s while {phase}"
            raise RunTimeout(text, hint=advice("raise {Options.timeout=…}")) from error


async def _open_turn(
    prompt: Prompt,
    options: Options,
    transport: Transport,
    deadline: _Deadline,
    stack: AsyncExitStack,
) -> Turn:
    conversation = await deadline.enter(_open(transport, options), stack)
    return await _start_turn(prompt, conversation, deadline, stack)


def _open(transport: Transport, options: Options) -> AbstractAsyncContextManager[Conversation]:
    if options.store is None:
        return transport.open(options)
    return stored.open_stored(transport, options)


async def _start_turn(
    prompt: Prompt, conversation: Conversation, deadline: _Deadline, stack: AsyncExitStack
) -> Turn:
    return await deadline.enter(conversation.turn(prompt), stack)


async def _turn_of_many(
    prompt: Prompt, conversation: Conversation, deadline: _Deadline, stack: AsyncExitStack
) -> Turn:
    if isinstance(conversation, PreparesTurns):
        stack.callback(conversation.prepare_turn)  # Once this turn is over.
    return await _start_turn(prompt, conversation, deadline, stack)


async def _run_to_end(live: Run[DataT]) -> Result[DataT]:
    async with live:
        async for _ in live:
            pass
    # A run that succeeds has the answer that its options ask for.
    return cast("Result[DataT]", live.result.raise_on_failure())


def _typed(options: Options, data: Any) -> Any:
    """The answer's data in the shape that was asked for."""
    if options.output_schema is None:
        return data
    return schema.shape_of(options.output_schema).typed(data)


def _checked(options: Options[DataT] | None) -> Options[DataT]:
    if options is None:
        return Options()
    if not isinstance(options, Options):
        kind = type(options).__name__
        raise InvalidOptions(
            f"options is a {kind}", hint=python_only("Options(…), or Options.from_dict(…)")
        )
    return options


def _deciding(transport: Transport, decide: Decide | None) -> Transport:
    if decide is None:
        return transport
    if (deciding := getattr(transport, "deciding", None)) is None:
        hint = python_only("connect(decide=…) needs Cli, Acp, Api or a Pool")
        raise Unsupported(f"{type(transport).__name__} has nobody to ask", hint=hint)
    return cast("Transport", deciding(decide))


def _transport_of(via: Transport | None) -> Transport:
    if via is None:
        return cli.Cli()
    if isinstance(via, type) or not hasattr(via, "open"):
        raise InvalidOptions(
            f"via={via!r} is not a transport", hint=python_only("via=Cli(), via=Acp() or via=Api()")
        )
    return via
