"""Who holds a lease, as a name that tells other processes of the same machine whether it lives.

A name is `host:pid:start:machine:mark`. `machine` is a digest of what only processes that see each
other's numbers have in common: the boot of the kernel, and the namespaces of processes and of time.
So a container, another machine or the same one after a restart is another `machine`, about whose
processes nothing is known here. Off Linux it is empty, and nothing is ever known.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import uuid
from pathlib import Path

from geminorum.sessions.store.protocol import SessionStore

_NAME = re.compile(r"[^:]*:(\d{1,10}):(\d{1,20}):([0-9a-f]{32}):[0-9a-f]{12}")
_MAX_SHOWN = 100
_PROC = Path("/proc")
_NOT_IN_A_WORD = re.compile(r"[^A-Za-z0-9._-]")


def new_holder() -> str:
    """A name for one conversation of this process."""
    host = _NOT_IN_A_WORD.sub("-", platform.node())[:_MAX_SHOWN] or "somewhere"
    pid = os.getpid()
    return f"{host}:{pid}:{_start_of(pid) or 0}:{_machine()}:{uuid.uuid4().hex[:12]}"


def shown_holder(holder: str) -> str:
    """Its host and process, for people; a store may hold anything."""
    return ":".join(holder.split(":", 2)[:2])[:_MAX_SHOWN]


def is_dead(holder: str) -> bool:
    """Has the process of that name ended, for certain? False where nothing is known about it."""
    found = _NAME.fullmatch(holder)
    if found is None or found[3] != _machine():
        return False
    pid, start = int(found[1]), int(found[2])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # Another user's: it is there, and its start can be read all the same.
    now = _start_of(pid)
    # Its number may be another's by now. What cannot be read may be alive.
    return start > 0 and now is not None and now != start


def take_lease(store: SessionStore, session: str, holder: str, seconds: float) -> str:
    """Who holds the session now; never a process of this machine that was killed."""
    known = store.acquire(session, holder, seconds)
    if known == holder or not is_dead(known):
        return known
    # Its own lease is ended, and no other: of several who find it dead, one gets the session.
    store.release(session, known)
    return store.acquire(session, holder, seconds)


def _start_of(pid: int) -> int | None:
    """When it started, in ticks since the boot; 0 for one that has ended and was not awaited."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
        # The name of the program stands before, in brackets, and may hold anything.
        state, *fields = stat.rpartition(b")")[2].split()
        return 0 if state in b"ZX" else int(fields[_START])
    except (OSError, ValueError, IndexError):
        return None


_START = 18
"""The place of the start time after the state."""


def _machine() -> str:
    """Read anew each time: a process may be moved into other namespaces, or be restored."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        spaces = [(_PROC / "self/ns" / name).readlink() for name in ("pid", "time")]
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}{spaces}".encode()).hexdigest()[:32]
