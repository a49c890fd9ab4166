"""Calls of a store, one after another in a thread of their own, each awaited for a bounded time."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar
from weakref import WeakMethod

from geminorum.errors import StoreError

T = TypeVar("T")
_LOOK_SECONDS = 0.25
"""Between two looks whether somebody is in a hurry."""
_Job: TypeAlias = "tuple[Callable[[], Any], Future[Any]]"


class StoreThread:
    """Not one of `off_loop`, which are few and never abandoned: a store may not answer for hours.

    `on_tick` is called every `tick_seconds`, between the calls that were asked for. The thread ends
    with `finish`, or when the object of that method is gone: nobody can ask for more then.
    """

    def __init__(self, on_tick: Callable[[], None], tick_seconds: float) -> None:
        self._on_tick, self._tick_seconds = WeakMethod(on_tick), tick_seconds
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._last: Future[Any] | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Has the work done after all that was asked before."""
        done: Future[T] = Future()
        self._jobs.put((work, done))
        self._last = done
        if self._thread is None:
            # A store that hangs must not keep the program from ending.
            self._thread = threading.Thread(target=self._run, name="geminorum-store", daemon=True)
            self._thread.start()
        return done

    async def call(self, work: Callable[[], T], seconds: float) -> T:
        """The result of the work. Raises StoreError if it takes longer; it goes on all the same."""
        await self._await_free(seconds)
        return await wait_for(self.start(work), seconds)

    def finish(self, work: Callable[[], None]) -> Future[None]:
        """Has the last work done, after which the thread ends."""
        done = self.start(work)
        self._jobs.put(None)
        return done

    async def _await_free(self, seconds: float) -> None:
        """Nothing is put behind a call that does not come back."""
        if self._last is not None and not self._last.done():
            with suppress(Exception):  # Whoever asked for it heard of it.
                await wait_for(self._last, seconds)
            if not self._last.done():
                raise _silent(seconds)

    def _run(self) -> None:
        next_tick = time.monotonic() + self._tick_seconds
        while True:
            with suppress(queue.Empty):
                job = self._jobs.get(timeout=max(0.0, next_tick - time.monotonic()))
                if job is None:
                    return
                _do(*job)
                del job  # It knows its owner, who could not be gone as long as we remember it.
            # Also where jobs come so often that there is never a pause.
            if time.monotonic() >= next_tick:
                if not self._tick() and self._jobs.empty():
                    return
                next_tick = time.monotonic() + self._tick_seconds

    def _tick(self) -> bool:
        """False if there is nobody left to call."""
        if (on_tick := self._on_tick()) is None:
            return False
        with suppress(BaseException):  # Whatever it is, calls that were asked for still come.
            on_tick()
        return True


async def wait_for(done: Future[T], seconds: float) -> T:
    """Its result. A caller who is cancelled leaves it alone, so that it can be awaited again."""
    try:
        # Not `asyncio.wait_for`, which may forget on Python 3.11 that it was cancelled.
        async with asyncio.timeout(seconds):
            return await asyncio.shield(asyncio.wrap_future(done))
    except TimeoutError as error:
        if done.done():
            return done.result()  # It ended just now, or has raised this itself.
        raise _silent(seconds) from error


class Patience:
    """How long to wait for one call; less once somebody is in a hurry."""

    def __init__(self, seconds: float, hurried_seconds: float) -> None:
        self._seconds, self._hurried_seconds = seconds, hurried_seconds
        self._until: float | None = None
        self._is_hurried = False

    def end_soon(self) -> None:
        self._is_hurried = True

    async def wait_for(self, done: Future[T]) -> T:
        now = asyncio.get_running_loop().time
        self._until = self._until or now() + self._seconds
        while True:
            if self._is_hurried:
                self._is_hurried, self._until = (
                    False,
                    min(self._until, now() + self._hurried_seconds),
                )
            try:
                return await wait_for(done, max(0.0, min(_LOOK_SECONDS, self._until - now())))
            except StoreError:
                if now() >= self._until:
                    raise _silent(self._seconds) from None


def _do(work: Callable[[], Any], done: Future[Any]) -> None:
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    except BaseException as error:
        # No Ctrl-C comes to this thread: a store has called `sys.exit`, and that ends no run.
        done.set_exception(StoreError(f"the store failed: {type(error).__name__}: {error}"))


def _silent(seconds: float) -> StoreError:
    return StoreError(f"the store has not answered for {seconds:g} s")
