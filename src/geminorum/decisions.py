"""Passes permission requests to `decide` and returns its answer; a failure is a denial."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from geminorum.errors import InvalidOptions
from geminorum.events import Permission, PermissionDecision, PermissionRequest
from geminorum.hints import python_only
from geminorum.runtime.interrupts import OnInterrupt, error_message, ignore_interrupt, is_interrupt

T = TypeVar("T")


class Allow(msgspec.Struct, frozen=True):
    """Allow this call."""


class AllowAlways(msgspec.Struct, frozen=True):
    """Allow, and do not ask again about this tool."""


class Deny(msgspec.Struct, frozen=True):
    """Deny this call."""

    reason: str = ""
    """The reason for the agent, if the transport can pass it on."""


Decision: TypeAlias = Allow | AllowAlways | Deny
Decide: TypeAlias = Callable[[PermissionRequest], Decision | Awaitable[Decision]]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a conversation asks from, for those who answer elsewhere."""

    cwd: str | None = None
    transport: str | None = None
    """ "cli", "acp" or "api"."""
    redact: Callable[[str], str] = str
    """Blacks out the secrets that the run knows."""


Ask: TypeAlias = Callable[[PermissionRequest, OnInterrupt], Awaitable[Decision]]


class Approvals(ABC):
    """A `decide` that passes requests on to people elsewhere, who may answer much later.

    It keeps the time itself, and is asked about several calls at once.
    """

    @abstractmethod
    async def __call__(self, request: PermissionRequest) -> Decision:
        """Asks for nobody in particular."""

    @abstractmethod
    def open(self, place: Place) -> Ask:
        """Returns what asks for one conversation.

        Instead of answering, it may pass a WaitingForAnswer to the `OnInterrupt` that it gets: the
        run ends then, and the question remains.
        """

    @abstractmethod
    def refuse_within(self, folders: Sequence[Path]) -> None:
        """Raises InvalidOptions if an agent that writes in these folders could answer itself."""


_WORDS: dict[type[Decision], Permission] = {
    Allow: "allow",
    AllowAlways: "allow_always",
    Deny: "deny",
}
_ANSWERS = "Allow(), AllowAlways() or Deny('why')"
CANCELLED = Deny("cancelled before it was decided")
"""The answer to a request that is open when its run is stopped."""


class Decisions:
    """Passes requests to `decide` one at a time: a person cannot answer two at once.

    Every failure is a denial: no answer within `timeout` seconds (None: wait forever), any
    exception, a value that is not a decision. True and False are accepted. A plain function runs in
    its own thread; if it outlives the timeout, it cannot be stopped and its answer is dropped.
    """

    def __init__(
        self, decide: Decide | None, timeout: float | None = 300.0, place: Place | None = None
    ) -> None:
        """`decide=None`: everything is denied without asking. `place` is for `Approvals`."""
        if decide is not None and not callable(decide):
            hint = python_only(
                f"decide=may_i, a function of one PermissionRequest that returns {_ANSWERS}"
            )
            raise InvalidOptions(f"decide={decide!r} cannot be called", hint=hint)
        limit: Any = timeout
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (is_number and limit > 0):
            text = f"the time for a decision must be greater than 0, not {timeout!r}"
            raise InvalidOptions(text, hint=python_only("a number of seconds; None waits forever"))
        self._decide = decide
        self._timeout = timeout
        self._ask_elsewhere: Ask | None = None
        if isinstance(decide, Approvals):
            self._ask_elsewhere, self._timeout = decide.open(place or Place()), None
        self._always: set[str] = set()
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def ask(
        self, request: PermissionRequest, on_interrupt: OnInterrupt = ignore_interrupt
    ) -> Decision:
        """Returns the answer of `decide`, or Allow if it said AllowAlways to this tool before.

        `on_interrupt` receives what `decide` raised for the whole program, such as Ctrl-C.
        """
        if self._decide is None:
            return Deny("there is nobody to ask")
        if request.name in self._always:
            return Allow()
        if self._ask_elsewhere is not None:
            answering = self._ask_elsewhere(request, on_interrupt)
            return self._remember(request, await self._answer(answering, on_interrupt))
        async with self._turn():
            # Asked once more: the question that we waited for may have been about this tool.
            if request.name in self._always:
                return Allow()
            answering = invoke(self._decide, request)
            return self._remember(request, await self._answer(answering, on_interrupt))

    def _remember(self, request: PermissionRequest, decision: Decision) -> Decision:
        if isinstance(decision, AllowAlways):
            self._always.add(request.name)
        return decision

    async def _answer(self, answering: Awaitable[object], on_interrupt: OnInterrupt) -> Decision:
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                decision = _understood(await answering)
        except asyncio.CancelledError:
            if is_ours():
                raise
            decision = Deny("decide was cancelled")
        except BaseException as error:
            decision = Deny(f"decide raised {error_message(error)}")
            if is_interrupt(error):
                on_interrupt(error)
        # `expired` and not the exception: a function may raise a TimeoutError of its own, or
        # swallow the cancellation and answer too late.
        return Deny(f"nobody answered in {self._timeout:g} s") if limit.expired() else decision

    def _turn(self) -> asyncio.Lock:
        # A lock serves one loop, and this object may outlive many: one for each asyncio.run().
        loop = asyncio.get_running_loop()
        if loop not in self._locks:
            for gone in [known for known in self._locks if known.is_closed()]:
                self._locks.pop(gone, None)
            self._locks[loop] = asyncio.Lock()
        return self._locks[loop]


def decided(request: PermissionRequest, decision: Decision, at: int) -> PermissionDecision:
    """The event that answers a request."""
    reason = decision.reason if isinstance(decision, Deny) else ""
    return PermissionDecision(
        request.name,
        _WORDS[type(decision)],
        request.id,
        reason or None,
        timestamp=at,
        session_id=request.session_id,
    )


def is_ours() -> bool:
    """Was the task cancelled that runs here? Otherwise it was one that it only waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _understood(answer: object) -> Decision:
    match answer:
        case Allow() | AllowAlways() | Deny():
            return answer
        case bool():
            return Allow() if answer else Deny()
        case _:
            return Deny(f"decide returned {_kind(answer)}; it must return {_ANSWERS}")


def _kind(answer: object) -> str:
    if isinstance(answer, type):
        return f"the class {answer.__name__}"
    return "None" if answer is None else f"a value of type {type(answer).__name__}"


async def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of the caller: awaits an async one, runs any other in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    given = await run_in_thread(partial(function, *args, **kwargs))
    # A lambda, or an object with an async `__call__`, does not look async, and is.
    return await given if inspect.isawaitable(given) else given


async def run_in_thread(function: Callable[..., T], /, *args: Any) -> T:
    """Runs the function in a daemon thread with the context variables of the caller.

    Not the loop's executor: asyncio.run() would wait for its threads at the end, forever where a
    function never returns. Where nobody waits any more, a late result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    work = partial(contextvars.copy_context().run, function, *args)
    thread = threading.Thread(target=_work, args=(work, loop, future), daemon=True)
    thread.start()
    value, error = await future
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # None only where T is None


def _work(work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: Any) -> None:
    # The exception travels as a value: a future that nobody reads would complain about one, and
    # it cannot hold a StopIteration.
    outcome: tuple[T | None, BaseException | None]
    try:
        outcome = (work(), None)
    except BaseException as error:
        outcome = (None, error)
    try:
        loop.call_soon_threadsafe(_settle, future, outcome)
    except RuntimeError:  # the loop is closed
        _drop(outcome)


def _settle(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if future.done():
        _drop(outcome)
    else:
        future.set_result(outcome)


def _drop(outcome: tuple[Any, BaseException | None]) -> None:
    # A coroutine that is never awaited warns, unless it is closed.
    if inspect.iscoroutine(outcome[0]):
        outcome[0].close()
