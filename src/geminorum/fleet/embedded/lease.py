"""The users' side of an embedded PostgreSQL: who uses it holds a lock, and who comes first starts
the guardian.

Two locks, both the system's, so that they are free when their process is gone, however it ended:

- `users` is shared by all users, and the guardian waits until it has it alone. Then it ends the
  server; users who come meanwhile wait for this lock.
- `guardian` is the guardian's. A user who gets it starts a guardian and passes it on, so there is
  never a moment in which a second one could be started.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from geminorum.errors import SetupError
from geminorum.fleet.embedded import guardian_program as guardian
from geminorum.fleet.embedded.account import server_account
from geminorum.fleet.embedded.folders import (
    is_open_to_server,
    is_root,
    make_folder,
    require_closed_server,
    require_own,
    resolved,
)
from geminorum.fleet.embedded.programs import find_programs, require_platform
from geminorum.system import regular_file
from geminorum.system.shortage import explain_shortage

if sys.platform != "win32":
    import fcntl

_START_SECONDS, _PAUSE_SECONDS = 180.0, 0.02
"""How long a user waits: for a server that ends, for one that starts, and its recovery."""
_GUARDIAN = "guardian"


@contextmanager
def embedded_postgres(folder: Path | None = None) -> Iterator[str]:
    """The URL of a PostgreSQL that runs at least as long as this block.

    Any number of threads and processes of one user share the server of a folder: the first starts
    it, and it ends when the last has left, also by kill -9. A fork shares the place of its parent.
    A server that is killed is started again; connections are to be made again then.

    The first start makes the database in `folder`, which has to be this user's alone, empty or not
    there. None: `fleet` in the user's data folder, `~/.local/share/geminorum/fleet` on Linux. The
    server listens on a socket in the folder only, and asks for a password, which is in the URL.

    PostgreSQL refuses to run as root, so root's server runs as `nobody`, shut off from other
    processes of that account. It has to reach its folder: None is `/var/lib/geminorum/fleet` for
    root, and a folder in a home that is closed to others is refused.
    """
    require_platform()
    place = resolved(folder)
    with ExitStack() as stack:
        with _explain_refusals(place):
            stack.enter_context(_lease(place))
            _ensure_running(place)
            url = _url(place)
        yield url


def is_running(folder: Path | None = None) -> bool:
    """Whether the server of this folder can be used now. Starts nothing, makes nothing."""
    require_platform()
    place = resolved(folder)
    if not os.path.lexists(place):
        return False
    require_own(place)
    return _is_answering(place)


@contextmanager
def _explain_refusals(place: Path) -> Iterator[None]:
    """What the system refuses in the block is for people to set right."""
    try:
        with explain_shortage():
            yield
    except OSError as error:
        hint = "name another folder; one on a disk of this machine, which has locks"
        raise SetupError(f"no database in {str(place)!r}: {error}", hint=hint) from error


def _is_answering(place: Path) -> bool:
    where = guardian.socket_folder_in(str(place))
    return where is not None and guardian.is_answering(str(Path(where, guardian.SOCKET)))


def _url(place: Path) -> str:
    where = guardian.socket_folder_in(str(place))
    if where is None:
        raise SetupError(f"the server in {str(place)!r} has just lost its socket", hint="try again")
    password = regular_file.read_text(place / guardian.SERVER / guardian.PASSWORD)
    login = f"{guardian.USER}:{quote(password, safe='')}"
    # The port too: otherwise PGPORT would be taken.
    host = quote(os.fsencode(where), safe="")
    return f"postgresql://{login}@/{guardian.DATABASE}?host={host}&port={guardian.PORT}"


# Locks


@contextmanager
def _lease(place: Path) -> Iterator[None]:
    """A share of the users' lock."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        make_folder(place)
        with _open(place / guardian.USERS) as lock:
            if _try_lock(lock, place / guardian.USERS, fcntl.LOCK_SH):
                # Closed in the end and not unlocked: a fork of ours may still use it.
                yield
                return
        _pause(deadline, f"the server in {str(place)!r} has been ending")


_starting: set[int] = set()
"""Descriptors of locks that are, or may become, a guardian's."""


@contextmanager
def _guardian_lock(place: Path) -> Iterator[int | None]:
    """The descriptor of the guardian's lock; None where another has it."""
    with _open(place / _GUARDIAN) as lock:
        _starting.add(lock)
        try:
            yield lock if _try_lock(lock, place / _GUARDIAN, fcntl.LOCK_EX) else None
        finally:
            _starting.discard(lock)


def _forget_locks() -> None:
    """In a fork, which would hold them for as long as it lives."""
    for lock in _starting:
        with suppress(OSError):
            os.close(lock)
    _starting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@contextmanager
def _open(path: Path) -> Iterator[int]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int, path: Path, how: int) -> bool:
    """False where another has it, or removed the file."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        text = f"{what} for {_START_SECONDS:.0f} seconds"
        raise SetupError(text, hint=f"look into {guardian.LOG} in that folder")
    time.sleep(_PAUSE_SECONDS)


# The guardian


def _ensure_running(place: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with _guardian_lock(place) as lock:
            if lock is not None:
                _start_guardian(place, lock, deadline)
                continue
        if _is_answering(place):
            return
        _pause(deadline, f"the server in {str(place)!r} has been starting")


def _start_guardian(place: Path, lock: int, deadline: float) -> None:
    """Returns when the server can be used, or says why it cannot."""
    require_closed_server(place)
    words = _guardian_words(place, lock)
    reader, writer = os.pipe()
    try:
        try:
            _launch(words, lock, writer)
        finally:
            os.close(writer)
        said = _read_report(reader, deadline)
    finally:
        os.close(reader)
    if said != guardian.READY:
        _raise_for(place, said.decode(errors="replace"))


def _guardian_words(place: Path, lock: int) -> list[str]:
    account = server_account(place)
    programs = find_programs(place, account)
    ids = (account.uid, account.gid) if account else (-1, -1)
    return [str(word) for word in (lock, place, programs, *ids, *_short_places())]


def _short_places() -> list[str]:
    """Where a socket may lie whose path would be too long in the folder."""
    places = [Path(tempfile.gettempdir()).resolve(), Path("/tmp")]  # nosec B108
    return [str(each) for each in places if not is_root() or is_open_to_server(each)]


def _launch(words: list[str], lock: int, writer: int) -> None:
    # Not the caller's environment: it may hold keys, and the guardian outlives the caller.
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    # A list and no shell.
    subprocess.run(  # nosec B603
        [sys.executable, "-I", "-S", guardian.__file__, *words],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.DEVNULL,
        pass_fds=[lock],
        env=kept,
        cwd="/",
        check=False,
    )


def _read_report(reader: int, deadline: float) -> bytes:
    """Until the guardian closes its end."""
    said = b""
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(reader, 4096)
        if not part:
            return said
        said += part
    return b"it has been starting for too long"


def _raise_for(place: Path, said: str) -> None:
    hint = f"the log is {place / guardian.LOG}"
    if os.strerror(errno.ENOSPC) in said:
        hint = "make room on the disk, or name another folder"
    raise SetupError(f"no database in {str(place)!r}: {said or 'its guardian died'}", hint=hint)
