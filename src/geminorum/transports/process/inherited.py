"""What the programs that this process starts have of it: its rights, its limits, its umask."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

if sys.platform != "win32":
    import resource


Limits = list[tuple[int, tuple[int, int]]]


def inherited() -> tuple[object, ...]:
    """All of it, as it is now; equal for two programs that may do the same."""
    if sys.platform != "linux":
        # There, only the call that changes it for all threads would tell the umask.
        return (os.getuid(), os.geteuid(), os.getgid()) if sys.platform != "win32" else ()
    return identity(), umask(), limits()


def identity() -> tuple[object, ...]:
    """The process and its user, on Linux."""
    return os.getpid(), os.getresuid(), os.getresgid(), *os.getgroups()


def umask() -> int:
    """On Linux, without changing it for the other threads, as the call for it would."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    line = next((line for line in status.splitlines() if line.startswith("Umask:")), "Umask: 22")
    return int(line.split()[1], 8)


def limits() -> Limits:
    """Of memory, files, processes and more."""
    return [(kind, resource.getrlimit(kind)) for kind in _kinds_of_limits()]


@cache
def _kinds_of_limits() -> list[int]:
    kinds = (getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
    return sorted({*kinds})
