"""Who waits for a file to grow, or for a process to end, is woken; polls where nothing can wake."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress

_IN_MODIFY = 0x2
_SAFETY_NET = 0.5
"""Seconds between looks although the system tells: some file systems forget to."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class News:
    """Wakes on inotify and on `end`, which becomes readable when the process ends and is closed
    here; where the system has none of them to give, looks again after a pause that grows while
    nothing happens."""

    def __init__(self, file: int, end: int | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._pause = _FIRST_PAUSE
        self._growth = self._listen(_inotify(file), self._grew)
        self._end = self._listen(end, self._ended)

    async def wait(self) -> None:
        """Returns when there may be something new; the caller looks for itself."""
        told = self._growth is not None and self._end is not None
        if not told:
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SAFETY_NET if told else self._pause):
                await self._woken.wait()
                self._pause = _FIRST_PAUSE
        self._woken.clear()

    def something_came(self) -> None:
        """Resets the pause: a stream that just spoke is likely to go on."""
        self._pause = _FIRST_PAUSE

    def wake(self) -> None:
        """For news of another kind."""
        self._woken.set()

    def close(self) -> None:
        for handle in (self._growth, self._end):
            if handle is not None:
                with suppress(Exception):
                    self._loop.remove_reader(handle)
                os.close(handle)
        self._growth = self._end = None

    def _listen(self, handle: int | None, callback: Callable[[], None]) -> int | None:
        if handle is None:
            return None
        try:
            self._loop.add_reader(handle, callback)
        except (NotImplementedError, OSError):
            os.close(handle)
            return None
        return handle

    def _grew(self) -> None:
        assert self._growth is not None
        with suppress(BlockingIOError):
            os.read(self._growth, 4096)
        self._woken.set()

    def _ended(self) -> None:
        # It stays readable, so one call is all it gets.
        assert self._end is not None
        self._loop.remove_reader(self._end)
        self._woken.set()


def _inotify(file: int) -> int | None:
    """A descriptor that becomes readable when `file` is written to."""
    if sys.platform != "linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    handle: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0:
        return None
    # By way of /proc, because the file has no name any more.
    if libc.inotify_add_watch(handle, f"/proc/self/fd/{file}".encode(), _IN_MODIFY) < 0:
        os.close(handle)
        return None
    return handle


def pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
