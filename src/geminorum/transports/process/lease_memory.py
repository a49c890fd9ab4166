"""The memory in which this process tells its keepers until when its agents may live.

To write a number there takes no call of the system, and all keepers see it at once. Linux only.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from geminorum.transports.process import keeper_program as program

_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; Python names it since 3.12.


class LeaseExpired(OSError):
    """No program was started, because the lease has passed."""


class LeaseMemory:
    """A deadline and the number of its term, for all keepers of this process.

    A lease that has passed stays so for the agents that ran under it: the next deadline begins
    another term, in which they do not live.
    """

    def __init__(self) -> None:
        # A signal handler may come between, in the same thread.
        self._lock = threading.RLock()
        self._cells: memoryview | None = None
        self._descriptor = -1

    def descriptor(self) -> int:
        """For the keepers, who can only read it; made when first needed."""
        with self._lock:
            if self._cells is None:
                self._open()
            return self._descriptor

    @property
    def deadline(self) -> int:
        """A time of `boot_time_ns`; 0 where there is no lease."""
        cells = self._cells
        return 0 if cells is None else int(cells[program.DEADLINE])

    @property
    def term(self) -> int:
        """How often a lease has passed before a new one was set."""
        cells = self._cells
        return 0 if cells is None else int(cells[program.TERM])

    @property
    def has_passed(self) -> bool:
        return 0 < self.deadline <= boot_time_ns()

    def set_deadline(self, deadline: int, wake_keepers: Callable[[], object]) -> bool:
        """False where the last deadline has passed, and so its agents end.

        Keepers look when the deadline that they know of passes; they are woken to look for one
        that they cannot expect.
        """
        with self._lock:
            self.descriptor()
            assert self._cells is not None
            before, has_passed = self.deadline, self.has_passed
            if has_passed:
                # First: whoever sees the new deadline has to see that it is not its own.
                self._cells[program.TERM] += 1
            self._cells[program.DEADLINE] = deadline
            is_expected = deadline == 0 or 0 < before <= deadline
            if has_passed or not is_expected:
                wake_keepers()
            return not has_passed

    def start_over(self) -> None:
        """In a fork: the lease is our parent's, and so are the agents."""
        self._lock = threading.RLock()
        if self._cells is not None:
            self._cells = None  # The last reference unmaps it, in this process only.
            os.close(self._descriptor)

    def _open(self) -> None:
        assert sys.platform == "linux"
        with ExitStack() as undo:
            memory = os.memfd_create("geminorum-lease", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            undo.callback(os.close, memory)
            os.ftruncate(memory, program.LEASE_BYTES)
            cells = memoryview(mmap.mmap(memory, program.LEASE_BYTES)).cast("q")
            undo.pop_all()
        _seal(memory)
        self._cells, self._descriptor = cells, memory


def _seal(memory: int) -> None:
    """Nobody but us can write it from here on, an agent of the same user neither."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
    with suppress(OSError):  # It works without, too.
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)


def boot_time_ns() -> int:
    """A clock that goes on while the machine sleeps: those of other machines do."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


LEASE_MEMORY = LeaseMemory()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LEASE_MEMORY.start_over)
