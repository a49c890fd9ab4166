"""One run at a time in a session, over all processes of this user."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

from geminorum.errors import ConfigError, SessionBusy
from geminorum.hints import advice

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


# A link would let a command of an agent choose the file that we make; a pipe would block.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_ROUNDS = 100


class SessionLock:
    """Holds a session while the block lasts; raises SessionBusy where another run holds it.

    The system lets go of it when the process ends, however it ends.
    """

    def __init__(self, home: Path, session_id: str) -> None:
        self._session_id = session_id
        # Beside what it guards, so that all who share the sessions share the locks. By a hash: an
        # id that comes from a file may be anything, a path for one.
        name = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        self._path = home / ".gemini" / "tmp" / ".geminorum-locks" / f"{name[:32]}.lock"
        self._file = -1

    def __enter__(self) -> SessionLock:
        for _ in range(_ROUNDS):
            if (file := self._try_lock()) >= 0:
                self._file = file
                return self
        raise _not_lockable(f"something removes {str(self._path)!r} again and again")

    def fileno(self) -> int:
        """The descriptor of the lock; a process with a copy of it holds the session, too."""
        return self._file

    def __exit__(self, *_: object) -> None:
        # Removed while it is held; who waits for this file finds that it has no name any more.
        # Not another's: a command of the agent may have removed ours.
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._file), self._path.lstat()):
                self._path.unlink()
        os.close(self._file)
        self._file = -1
        with suppress(OSError):
            self._path.parent.rmdir()  # Not while another lock lies there.

    def _try_lock(self) -> int:
        """The open file, locked; -1 where it was removed meanwhile."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, _FLAGS, 0o600)
        except FileNotFoundError:
            return -1  # The folder went in between.
        except OSError as error:
            raise _not_lockable(str(error)) from error
        try:
            _lock(file)
            if self._path.exists() and os.path.samestat(os.fstat(file), self._path.stat()):
                return file
        except BlockingIOError:
            os.close(file)
            raise SessionBusy(f"another run is at work in session {self._session_id!r}") from None
        except FileNotFoundError:
            pass  # Removed between two looks.
        os.close(file)
        return -1


def _not_lockable(why: str) -> ConfigError:
    hint = advice("pass {Options.home=…} with a folder that can be written to")
    return ConfigError(f"cannot lock the session: {why}", hint=hint)


def _lock(file: int) -> None:
    if sys.platform == "win32":
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError from error
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
