"""A private folder that lasts as long as its owner: removed with its block, at exit, and by the
next one that is made after a kill -9."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from geminorum.errors import SetupError
from geminorum.runtime.lazy import psutil
from geminorum.system.removal import remove_tree
from geminorum.system.reserve import RESERVE
from geminorum.system.shortage import require_descriptor

if sys.platform != "win32":
    import fcntl


_A_SECOND, _A_DAY_IN_SECONDS = 1.0, 24 * 3600
_ROUNDS = 100


OnSweep: TypeAlias = Callable[[Path], None]


def _do_nothing_else(folder: Path) -> None:
    pass


class OwnedFolder:
    """A folder that nobody else can read, with a lock on it for as long as somebody needs it.

    The lock is the system's: it is free when the last process that holds it has ended, however
    that ended. So a folder without a lock is one that nobody needs, and making one with the same
    prefix removes those first, but no more than once a second.
    """

    def __init__(
        self,
        prefix: str,
        place: Path | None = None,
        *,
        swept: Iterable[Path] | None = None,
        on_sweep: OnSweep = _do_nothing_else,
    ) -> None:
        """`place` is the folder to make it in; None: the temporary folder. `swept` are the places
        where others may lie, and `on_sweep` is called with each before it is removed."""
        places = swept if swept is not None else [place or temporary_folder()]
        _sweep_now_and_then(prefix, places, on_sweep)
        for _ in range(_ROUNDS):
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=place))
            with _remove_on_failure(self.path):
                self._lock = _lock(self.path)
            if self._lock >= 0:
                break
        else:
            text = f"every folder made in {str(self.path.parent)!r} disappears at once"
            raise SetupError(text, hint="name another temporary folder: export TMPDIR=…")
        # Runs at interpreter exit too.
        self.remove = weakref.finalize(self, _remove, self.path, self._lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def fileno(self) -> int:
        """What holds the lock."""
        return self._lock


def temporary_folder() -> Path:
    """The system's, or the one that TMPDIR names."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:  # What Python says whatever kept it from writing there.
        require_descriptor()
        raise SetupError(
            "no file can be written in any temporary folder",
            hint="make room in one, close files, or name another folder: export TMPDIR=…",
        ) from error


@contextmanager
def _remove_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        raise


_last_sweeps: dict[tuple[str, Path], float] = {}


def _sweep_now_and_then(prefix: str, places: Iterable[Path], on_sweep: OnSweep) -> None:
    """Not for each of a hundred folders made at once: each would look at all the others."""
    now = time.monotonic()
    due = [place for place in places if _last_sweeps.get((prefix, place), 0) <= now - _A_SECOND]
    _last_sweeps.update({(prefix, place): now for place in due})
    sweep(prefix, due, on_sweep)


def sweep(prefix: str, places: Iterable[Path], on_sweep: OnSweep = _do_nothing_else) -> None:
    """Removes the folders in these places that are not in use."""
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in [entry for entry in entries if entry.name.startswith(prefix)]:
                _remove_if_unneeded(Path(entry.path), prefix, on_sweep)


def _remove_if_unneeded(folder: Path, prefix: str, on_sweep: OnSweep) -> None:
    with suppress(OSError):
        if not _is_mine(folder):
            return
        if sys.platform == "win32":
            if _is_old_and_its_owner_gone(folder, prefix):
                remove_tree(folder)
            return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if _try_to_lock(lock):
                on_sweep(folder)
                remove_tree(folder)
        finally:
            os.close(lock)


def _is_mine(folder: Path) -> bool:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    # As we make them: a folder that others may write in can have been moved here by them.
    is_ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return is_ours and (sys.platform == "win32" or stat.S_IMODE(found.st_mode) == 0o700)


def _is_old_and_its_owner_gone(folder: Path, prefix: str) -> bool:
    owner = folder.name.removeprefix(prefix).partition("-")[0]
    gone = owner.isdecimal() and not psutil.pid_exists(int(owner))
    return gone and time.time() - folder.lstat().st_mtime > _A_DAY_IN_SECONDS


def _lock(folder: Path) -> int:
    """The descriptor that holds the lock; -1 if another process removed the folder meanwhile."""
    if sys.platform == "win32":
        return 0
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)  # A sweep looks at it, or somebody wants us to wait.
        with suppress(OSError):
            folder.rmdir()
        return -1
    except OSError:
        pass  # A file system without locks: nobody else can lock it either.
    if folder.exists():
        return lock
    os.close(lock)
    return -1


def _try_to_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # A fork inherits this call, but not the folder.
    # Links are removed, never followed.
    with RESERVE.spend():
        remove_tree(folder)
    if sys.platform != "win32":
        os.close(lock)
