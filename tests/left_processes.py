"""Finds the processes that a test started, however far they moved from it."""

import os
import sys
from pathlib import Path

import psutil

from geminorum.transports.process.keeper import KEEPERS

TEST_MARK = "GEMINORUM_TEST_SESSION"
SHARED: set[int] = set()
"""The numbers of those that several tests use, see shared_acp.py: they may outlive each of them."""


def marked_processes(mark: str) -> list[psutil.Process]:
    """Living processes other than this one that have `mark` in their environment."""
    found, wanted = [], mark.encode()
    for pid in psutil.pids():
        try:
            if pid != os.getpid() and wanted in _environment(pid):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def keepers() -> list[psutil.Process]:
    """Those of this process that are at work; they have no environment, so no mark."""
    server = KEEPERS.pid
    try:
        told = Path(f"/proc/{server}/task/{server}/children") if server else None
        return [psutil.Process(int(pid)) for pid in (told.read_text().split() if told else ())]
    except (psutil.Error, OSError):
        return []  # It has ended, or the system does not tell.


def _environment(pid: int) -> bytes:
    """Straight from the kernel where that is possible: this is asked after every single test."""
    if sys.platform == "linux":
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - quicker
            return file.read()
    return "\0".join(psutil.Process(pid).environ().values()).encode()
