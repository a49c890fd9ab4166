"""A session that a CLI has begun and in which nobody has said anything: not to be left behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from geminorum import typed
from geminorum.regular_file import read_bytes
from geminorum.sessions.places import was_used
from geminorum.transports.resuming import files_of

_NOTE = "unused_session.json"


class UnusedSession(msgspec.Struct, frozen=True):
    home: str
    cwd: str
    session_id: str

    def note_in(self, folder: Path) -> None:
        """For whoever removes the folder after a kill -9 of us."""
        (folder / _NOTE).write_bytes(msgspec.json.encode(self))

    def remove(self) -> None:
        """Removes its files, unless somebody has said something after all."""
        for file in files_of(Path(self.home), Path(self.cwd), self.session_id):
            if not was_used(file):
                with suppress(OSError):
                    file.unlink()

    @staticmethod
    def forget(folder: Path) -> None:
        """It is used from now on."""
        (folder / _NOTE).unlink(missing_ok=True)

    @staticmethod
    def remove_noted_in(folder: Path) -> None:
        with suppress(OSError, msgspec.MsgspecError):
            typed.decode(read_bytes(folder / _NOTE), UnusedSession).remove()
