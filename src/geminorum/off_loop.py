"""Blocking work off the event loop: in a few threads of our own, and never abandoned half way."""

from __future__ import annotations

import _thread
import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_MAX_THREADS = 3
"""More would only take the interpreter from each other, and from the event loop, at each file that
they touch: with 8, a hundred starts at once keep the loop waiting four times as long."""


class _Threads:
    """Threads that live only while there is work.

    Not the event loop's own: what a caller runs there may block for long.
    """

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """In a fork too, which inherits no threads."""
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._begin(partial(_settle, future, work))
        return future

    def _begin(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._running == _MAX_THREADS:
                self._waiting.append(job)
                return
            self._running += 1
        try:
            # Not `threading.Thread`, whose start waits until the thread runs: on a busy machine,
            # the event loop would stand still for milliseconds.
            _thread.start_new_thread(self._work, (job,))
        except RuntimeError:  # The system has none to give, or Python shuts down.
            self._work(job)
        except BaseException:  # Ctrl-C, for one: the thread was not started.
            with self._lock:
                self._running -= 1
            raise

    def _work(self, job: Callable[[], None]) -> None:
        while True:
            job()
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                job = self._waiting.popleft()


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


_THREADS = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_THREADS.start_over)


async def off_loop(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Runs the work in a thread and returns its result.

    A caller who is cancelled meanwhile waits for its end all the same; then `undo` gets what it
    made.
    """
    future = asyncio.wrap_future(_THREADS.submit(work))
    cancelled = await _ended(future)
    if cancelled is None:
        return future.result()
    if undo is not None and future.exception() is None:
        await _ended(asyncio.wrap_future(_THREADS.submit(partial(undo, future.result()))))
    raise cancelled


async def _ended(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Waits for it, however often the caller is cancelled, as by a scope of anyio's; the last of
    these cancellations."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with suppress(BaseException):
            future.result()  # Nobody else asks; asyncio would complain.
    return cancelled


def soon(work: Callable[[], None]) -> None:
    """Has the work done by a thread, whenever that is. For what cannot fail."""
    _THREADS.submit(work)
