"""A job of Windows: whatever starts in it ends with it, and it ends with us.

Windows closes our handles when we die, also by `taskkill /F`, and ends the job with the last one.
A process that was started before its parent was put into the job is not in it.
"""

from __future__ import annotations

import ctypes
import sys

_KILL_ON_JOB_CLOSE = 0x2000
_EXTENDED_LIMIT_INFORMATION = 9


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("largest_working_set", ctypes.c_size_t),
        ("active_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority_class", ctypes.c_uint32),
        ("scheduling_class", ctypes.c_uint32),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION: the flags are all that we set."""

    _fields_ = (
        ("basic", _BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class Job:
    """A job that its last handle ends. Where Windows gives none, nothing happens."""

    def __init__(self) -> None:
        self._handle = 0
        if sys.platform == "win32":
            self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            self._kernel.CreateJobObjectW.restype = ctypes.c_void_p
            self._handle = self._kernel.CreateJobObjectW(None, None) or 0
            limits = ExtendedLimits()
            limits.basic.flags = _KILL_ON_JOB_CLOSE
            self._kernel.SetInformationJobObject(
                ctypes.c_void_p(self._handle),
                _EXTENDED_LIMIT_INFORMATION,
                ctypes.byref(limits),
                ctypes.sizeof(limits),
            )

    def add(self, process: int) -> None:
        """Takes in a process, by its handle, and all that it starts from now on."""
        if sys.platform == "win32" and self._handle:
            handles = ctypes.c_void_p(self._handle), ctypes.c_void_p(process)
            self._kernel.AssignProcessToJobObject(*handles)

    def close(self) -> None:
        """Ends what is left in it."""
        if sys.platform == "win32" and self._handle:
            self._kernel.CloseHandle(ctypes.c_void_p(self._handle))
        self._handle = 0
