"""The session that a CLI creates at its start; removed if it was never used."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from geminorum.errors import ConfigError, SessionBusy
from geminorum.runtime import typed
from geminorum.sessions.lock import SessionLock
from geminorum.system.regular_file import read_bytes
from geminorum.transports.launch.resuming import remove_strays, unused_files

_NOTE = "unused_session.json"


class UnusedSession(msgspec.Struct, frozen=True):
    home: str
    cwd: str
    session_id: str
    is_resumed: bool = False
    """The session is older; unused is only the file that the CLI began beside it."""

    def note_in(self, folder: Path) -> None:
        """Leaves a note for the process that removes the folder after a kill -9 of us."""
        (folder / _NOTE).write_bytes(msgspec.json.encode(self))

    def remove(self) -> None:
        """Removes its files, unless they contain a message after all."""
        if self.is_resumed:
            self._remove_strays()
            return
        with suppress(OSError):
            for file in self._files():
                file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return unused_files(Path(self.home), Path(self.cwd), self.session_id)

    def _remove_strays(self) -> None:
        # Without a lock where there is nothing to do: it could get in the way of another run. A run
        # that holds the session removes them at its end.
        with suppress(SessionBusy, ConfigError, OSError):
            if self._files():
                home = Path(self.home)
                with SessionLock(home, self.session_id):
                    remove_strays(home, Path(self.cwd), self.session_id)

    @staticmethod
    def forget(folder: Path) -> None:
        """It is used from now on."""
        (folder / _NOTE).unlink(missing_ok=True)

    @staticmethod
    def remove_noted_in(folder: Path) -> None:
        # Whatever an agent has made of the note, it does not keep later runs from starting.
        with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
            typed.decode(read_bytes(folder / _NOTE), UnusedSession).remove()
