"""Waits for a file to grow or for a process to end: woken by the system, or by polling."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from geminorum.runtime.off_loop import soon

_IN_MODIFY = 0x2
_EVENT = struct.Struct("iIII")
_OVERFLOW = -1
"""In place of a watch: the kernel had no room for what was to be told."""
_EVENTS_AT_ONCE = 4096 * _EVENT.size
_MANY_FILES, _TOLD_AT_ONCE = 5, 16
_REST_PER_FILE, _LONGEST_REST = 0.0002, 0.02
"""In seconds. Where many programs write, to be woken costs as much as to read a line, and what
gathers meanwhile costs hardly more than one line."""
_SAFETY_NET_SECONDS = 0.5
"""Between looks although the system tells: some file systems forget to."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class FileWatch:
    """Wakes when the file grows and when `end` becomes readable, which it does when the process
    ends, and which is closed here. If the system offers neither, looks again after a pause that
    grows while nothing happens."""

    def __init__(self, file: int, end: int | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._pause = _FIRST_PAUSE
        self._inotify = _inotify_of(self._loop)
        self._watch = None if self._inotify is None else self._inotify.watch(file, self._woken.set)
        self._end = self._listen_for_end(end)
        self.may_have_ended = self._end is None
        """False while the system would have told of the process's end."""

    async def wait(self) -> None:
        """Returns when there may be something new; the caller looks for itself."""
        is_told = self._watch is not None and self._end is not None
        if not is_told:
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        try:
            async with asyncio.timeout(_SAFETY_NET_SECONDS if is_told else self._pause):
                await self._woken.wait()
                self._pause = _FIRST_PAUSE
        except TimeoutError:
            self.may_have_ended = True
        self._woken.clear()

    def reset_pause(self) -> None:
        """A stream that just spoke is likely to go on."""
        self._pause = _FIRST_PAUSE

    def wake(self) -> None:
        """Wakes the waiting reader for another reason than the file."""
        self._woken.set()

    def close(self) -> None:
        if self._inotify is not None and self._watch is not None:
            self._inotify.forget(self._watch)
        if self._end is not None:
            with suppress(Exception):
                self._loop.remove_reader(self._end)
            os.close(self._end)
        self._watch = self._end = None

    def _listen_for_end(self, end: int | None) -> int | None:
        if end is None:
            return None
        try:
            self._loop.add_reader(end, self._on_end)
        except (NotImplementedError, OSError):
            os.close(end)
            return None
        return end

    def _on_end(self) -> None:
        # It stays readable, so one call is all it gets.
        assert self._end is not None
        self._loop.remove_reader(self._end)
        self.may_have_ended = True
        self._woken.set()


@cache
def _libc() -> Any:
    """The system's own functions; Python has none for this."""
    import ctypes  # Takes its time to load, and one that waits for no file needs none of it.

    return ctypes.CDLL(None, use_errno=True)


class _Inotify:
    """One descriptor for all files that are watched from a loop, open while there are any.

    One for each file would cost 6 ms to close while many processes run: the kernel waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._handle = loop, -1
        self._watches: dict[int, Callable[[], None]] = {}
        self._next: asyncio.Handle | None = None
        """What it does before it listens again, where it does not."""

    def watch(self, file: int, on_change: Callable[[], None]) -> int | None:
        """The number of the watch; None if the system grants none."""
        if self._handle < 0 and not self._open():
            _INOTIFY.pop(self._loop, None)
            return None
        # By way of /proc, because the file has no name any more.
        path = f"/proc/self/fd/{file}".encode()
        number: int = _libc().inotify_add_watch(self._handle, path, _IN_MODIFY)
        if number >= 0:
            self._watches[number] = on_change
            return number
        self._close_if_unused()
        return None

    def forget(self, watch: int) -> None:
        del self._watches[watch]
        _libc().inotify_rm_watch(self._handle, watch)
        self._close_if_unused()

    def _open(self) -> bool:
        self._handle = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            return False
        try:
            self._listen()
        except (NotImplementedError, OSError):
            os.close(self._handle)
            self._handle = -1
        return self._handle >= 0

    def _close_if_unused(self) -> None:
        if self._watches:
            return
        if self._next is not None:
            self._next.cancel()
        with suppress(Exception):
            self._loop.remove_reader(self._handle)
        soon(partial(os.close, self._handle))
        self._handle = -1
        _INOTIFY.pop(self._loop, None)

    def _on_change(self) -> None:
        with suppress(BlockingIOError):
            data = os.read(self._handle, _EVENTS_AT_ONCE)
            # The name behind each event, where there is one, is that of a file in a folder; what
            # is watched here are files.
            numbers = {number for number, *_ in _EVENT.iter_unpack(data)}
            changed = [*(self._watches if _OVERFLOW in numbers else numbers)]
            if len(self._watches) < _MANY_FILES:
                self._tell(changed)
            else:
                self._loop.remove_reader(self._handle)
                self._tell_in_turns(changed)

    def _tell(self, changed: Sequence[int]) -> None:
        for number in changed:
            if (on_change := self._watches.get(number)) is not None:
                on_change()

    def _tell_in_turns(self, changed: Sequence[int]) -> None:
        """A few at a time, so that others have their turn in between; then rests, so that changes
        gather: the longer, the more files there are."""
        self._tell(changed[:_TOLD_AT_ONCE])
        if left := changed[_TOLD_AT_ONCE:]:
            self._next = self._loop.call_soon(self._tell_in_turns, left)
            return
        rest = min(len(self._watches) * _REST_PER_FILE, _LONGEST_REST)
        self._next = self._loop.call_later(rest, self._listen)

    def _listen(self) -> None:
        self._loop.add_reader(self._handle, self._on_change)


_INOTIFY: dict[asyncio.AbstractEventLoop, _Inotify] = {}
"""Of each loop that watches anything."""


def _inotify_of(loop: asyncio.AbstractEventLoop) -> _Inotify | None:
    if sys.platform != "linux":
        return None
    return _INOTIFY.setdefault(loop, _Inotify(loop))


def pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
