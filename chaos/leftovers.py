"""What is left in a process that has run agents."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from geminorum.cost import PRICES_THREAD
from geminorum.transports.process.keeper import KEEPERS

_EXECUTOR = "asyncio_"


def descriptors() -> list[str]:
    """What each open descriptor leads to."""
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # One of them was opened for this list.
            found.append(str(entry.readlink()).partition(":")[0])
    return sorted(found)


def threads() -> list[str]:
    """Those of the event loop's own pool stay for the next call."""
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if not name.startswith(_EXECUTOR))


def await_prices() -> None:
    """The list of prices is loaded once for each process, beside its first run."""
    for thread in threading.enumerate():
        if thread.name == PRICES_THREAD:
            thread.join(60)


def tasks() -> list[str]:
    current = asyncio.current_task()
    return [repr(task) for task in asyncio.all_tasks() if task is not current]


def processes(*, agents_only: bool = False) -> list[str]:
    """Below us; the server of the keepers stays for the next run, and Node may be asked for its
    version by a thread that cannot be cancelled."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            is_kept = process.pid == KEEPERS.pid or process.status() == psutil.STATUS_ZOMBIE
            # A process without a command line is about to become a zombie.
            is_agent = bool(line) and "keeper_program" not in line and "--version" not in line
            if not is_kept and (is_agent or not agents_only):
                found.append(f"{process.pid} {line}")
    return found


def folders(temporary: Path) -> list[str]:
    return sorted(path.name for path in temporary.glob("*geminorum*"))
