"""Session files whose tool calls have one response each, in place or as a copy."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geminorum.system.regular_file import open_regular
from geminorum.wire.sessions.repair import repaired

if sys.platform != "win32":
    import fcntl


_PREFIX = ".repaired-"
"""No session's name begins so: a half-written file is not taken for one."""
_A_DAY_IN_SECONDS = 24 * 3600
_ROUNDS = 100


def repair_file(path: Path) -> None:
    """Replaces the file in one step; one that needs no repair is not touched."""
    _sweep(path.parent)
    lines = _repaired_lines(path)
    if lines is None:
        return
    with _write_beside(path, lines) as temporary:
        temporary.replace(path)


@contextmanager
def repaired_copy(path: Path) -> Iterator[Path]:
    """A repaired copy for one block, or the file itself where it needs no repair."""
    _sweep(path.parent)
    lines = _repaired_lines(path) if path.suffix == ".jsonl" else None
    if lines is None:
        yield path
        return
    with _write_beside(path, lines) as temporary:
        yield temporary


def _repaired_lines(path: Path) -> list[bytes] | None:
    with open_regular(path) as file:
        lines = file.readlines()
    # Most sessions call no tools; looking for the word takes a hundredth of decoding them.
    if not any(b'"functionResponse"' in line or b'"toolCalls"' in line for line in lines):
        return None
    return repaired(lines)


@contextmanager
def _write_beside(path: Path, lines: list[bytes]) -> Iterator[Path]:
    """A file with the lines and the times of `path`, gone after the block unless it was moved."""
    handle, temporary = _lock_file(path)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(handle)  # A crash must not leave an empty session in place of a whole one.
        shutil.copystat(path, temporary)  # By the time of its file a session is the latest.
        if sys.platform == "win32":
            os.close(handle)  # An open file cannot be moved there.
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(handle)


def _lock_file(path: Path) -> tuple[int, Path]:
    """A new file. It is locked while its writer lives, so that another can tell a leftover."""
    for _ in range(_ROUNDS):
        handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=path.suffix, dir=path.parent)
        if _is_free(handle) and Path(name).exists():
            return handle, Path(name)
        os.close(handle)  # Swept before it was locked.
    raise FileNotFoundError(f"every file made in {str(path.parent)!r} disappears at once")


def _sweep(folder: Path) -> None:
    """Removes what a repair left behind that was killed."""
    for leftover in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_left(leftover)


def _remove_if_left(path: Path) -> None:
    found = path.lstat()
    is_mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    if not stat.S_ISREG(found.st_mode) or not is_mine:
        return
    if sys.platform == "win32":
        if time.time() - found.st_ctime > _A_DAY_IN_SECONDS:
            path.unlink()
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _is_free(handle):
            path.unlink()
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    """Locks the file, unless another holds it."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # A file system without locks.
    return True
