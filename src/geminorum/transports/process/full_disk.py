"""A disk without room: which folder it is, and what was lost."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geminorum.errors import SetupError
from geminorum.events import Error
from geminorum.system.shortage import NO_ROOM

NOT_SAVED = "NOT_SAVED"
_FULL_BELOW_BYTES = 64 * 1024
# What the headless CLI says before it goes on without a session file.
_RECORDING_DISABLED = re.compile(r"^Chat recording disabled: No space left", re.M)


@contextmanager
def blaming(folder: Path) -> Iterator[None]:
    """Where what is written in the block finds no room, says in which folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise SetupError(
            f"no room for the files of a run in {str(folder)!r}: {os.strerror(error.errno)}",
            hint="make room there, or name another temporary folder: export TMPDIR=…",
        ) from error


def is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BELOW_BYTES
    except OSError:
        return False


def was_not_recorded(stderr: str) -> bool:
    """Did the CLI say that it goes on without saving the session?"""
    return _RECORDING_DISABLED.search(stderr) is not None


def not_saved(home: Path) -> Error:
    """The warning that a session cannot be resumed, though its run is a success."""
    text = f"the CLI has not saved this session: the disk of {str(home / '.gemini')!r} is full"
    hint = "make room there; what is said meanwhile cannot be resumed"
    return Error(text, NOT_SAVED, recoverable=True, hint=hint)
