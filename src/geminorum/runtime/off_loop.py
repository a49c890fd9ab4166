"""Blocking work off the event loop: in a few threads of our own, and never abandoned half way."""

from __future__ import annotations

import _thread
import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

_MAX_THREADS = 2
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

    def begin(self, job: Callable[[], None]) -> None:
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


class _Job(Generic[T]):
    """Work for a thread, and its outcome for the loop that waits for it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self._loop = work, asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = False
        self._made: list[T] = []
        self.error: BaseException | None = None

    def do(self) -> None:
        """In a thread."""
        try:
            self._made.append(self._work())
        except BaseException as error:
            self.error = error
        del self._work  # What it holds may be needed no more, before this thread has ended.
        with suppress(RuntimeError):  # Nobody waits in a loop that is closed.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._is_over = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> asyncio.CancelledError | None:
        """Until it is over, however often the caller is cancelled, as by a scope of anyio's; the
        last of these cancellations."""
        # Not a future of `concurrent.futures`, with `asyncio.wait`: for a hundred runs that start
        # at once, these would take the loop longer than all else that it does for them.
        cancelled: asyncio.CancelledError | None = None
        while not self._is_over:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self._made[0]


_THREADS = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_THREADS.start_over)


async def run_off_loop(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Runs the work in a thread and returns its result.

    A caller who is cancelled meanwhile waits for its end all the same; then `undo` gets what it
    made.
    """
    job = _Job(work)
    _THREADS.begin(job.do)
    cancelled = await job.wait()
    try:
        if cancelled is None:
            return job.result()
        if undo is not None and job.error is None:
            undoing = _Job(partial(undo, job.result()))
            _THREADS.begin(undoing.do)
            await undoing.wait()
        raise cancelled
    finally:
        del job  # Its error would hold this frame, and this frame the error.


def soon(work: Callable[[], None]) -> None:
    """Lets a thread do the work at some time; a failure is not reported."""
    _THREADS.begin(partial(_quietly, work))


def _quietly(work: Callable[[], None]) -> None:
    with suppress(Exception):  # It would take its thread along, and there are two.
        work()
