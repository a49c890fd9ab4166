"""One run at a time in a session, over all processes of this user."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from geminorum.errors import SessionBusy


class SessionLock:
    """Holds a session while the block lasts; raises SessionBusy where another run holds it.

    The system lets go of it when the process ends, however it ends.
    """

    def __init__(self, home: Path, session_id: str) -> None:
        self._session_id = session_id
        key = hashlib.sha256(f"{home.resolve()}\n{session_id}".encode()).hexdigest()
        self._path = _folder() / f"{key[:32]}.lock"
        self._file = -1

    def __enter__(self) -> SessionLock:
        while self._file < 0:
            self._file = self._locked()
        return self

    def __exit__(self, *_: object) -> None:
        # Removed while it is held; who waits for this file finds that it has no name any more.
        self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1

    def _locked(self) -> int:
        """The open file, locked; -1 where it was removed meanwhile."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
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


def _folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    folder = Path(tempfile.gettempdir()) / f"geminorum-locks-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError from error
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
