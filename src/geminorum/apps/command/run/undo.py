"""Puts back what the writes of a turn changed, byte for byte.

Copies are taken before each write: by a hook of the CLI on `Cli`, by the question on transports
that ask. Not undone: what shell commands and MCP servers changed, and files that somebody else has
changed since the turn ended.
"""

from __future__ import annotations

import hmac
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from geminorum.apps.command.run import keep
from geminorum.apps.command.run.keep import digest
from geminorum.system.owned_folder import OwnedFolder


class Kept(msgspec.Struct, frozen=True):
    """One file, as it was before a turn."""

    path: Path
    existed: bool
    copy: Path
    mode: int | None = None
    made: tuple[str, ...] = ()
    """Folders that were made for it."""
    problem: str | None = None
    before: str | None = None
    """What it held, as a digest."""
    after: str | None = None
    """What the turn left, as a digest; None where it left nothing."""

    @property
    def bytes(self) -> bytes | None:
        """What it held; None where it was not there."""
        return self.copy.read_bytes() if self.existed and not self.problem else None


class UndoOutcome(msgspec.Struct, frozen=True):
    """What became of one file."""

    kept: Kept
    done: bool
    text: str

    @property
    def path(self) -> Path:
        return self.kept.path


class Copies:
    """The files of a conversation, turn by turn. Removed when the block ends."""

    def __init__(self) -> None:
        self._owned = OwnedFolder("geminorum-kept-undo-")
        self._folder = self._owned.path
        self._key = secrets.token_urlsafe(24)
        self._turns: list[list[Kept]] = []
        # Only grows: the folder of a turn that was undone still stands.
        self._ended = 0

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.remove()

    @property
    def _pending(self) -> Path:
        return self._folder / "pending"

    def settings(self) -> dict[str, Any]:
        """Settings with which the CLI copies each file before it writes it."""
        parts = [sys.executable, "-IS", keep.__file__, str(self._pending), self._key]
        command = subprocess.list2cmdline(parts) if sys.platform == "win32" else shlex.join(parts)
        hook = {"type": "command", "name": "geminorum-undo", "command": command, "timeout": 30_000}
        return {"hooks": {"BeforeTool": [{"matcher": "write_file|replace|edit", "hooks": [hook]}]}}

    def keep(self, path: Path) -> None:
        """Copy a file that is about to be written."""
        keep.keep(path, self._pending, self._key)

    def before(self, path: Path) -> Kept | None:
        """The file as it was before the turn that is running."""
        real = path.resolve()
        return next((kept for kept in _read(self._pending, self._key) if kept.path == real), None)

    def end_turn(self) -> list[Kept]:
        """The files that the turn may have changed; the next turn has copies of its own."""
        self._ended += 1
        if not self._pending.is_dir():
            kept: list[Kept] = []
        else:
            own = self._pending.rename(self._folder / f"turn-{self._ended}")
            kept = [
                msgspec.structs.replace(one, after=digest(one.path))
                for one in _read(own, self._key)
                if digest(one.path) != digest(one.copy) or one.existed is not one.path.exists()
            ]
        self._turns.append(kept)
        return kept

    def undo(self) -> list[UndoOutcome]:
        """Put back what the last turn changed; again, what the turn before it changed."""
        while self._turns:
            if kept := self._turns.pop():
                outcomes = [_put_back(one) for one in kept]
                _remove_empty({Path(folder) for one in kept for folder in one.made})
                return outcomes
        return []


def _read(folder: Path, key: str) -> Iterable[Kept]:
    for file in sorted(folder.glob(f"*/{keep.RECORD}")):
        seal, _, record = file.read_text(encoding="utf-8", errors="replace").partition("\n")
        # Without its end, the copy is still being taken; with another seal, it is not ours.
        if hmac.compare_digest(seal.encode(), keep.seal(record, key).encode()):
            told = msgspec.json.decode(record, type=dict[str, Any])
            yield msgspec.convert({**told, "copy": file.parent / keep.BYTES}, Kept, dec_hook=_as)


def _as(kind: type, value: Any) -> Any:
    return kind(value)


def _put_back(kept: Kept) -> UndoOutcome:
    if kept.problem:
        return UndoOutcome(kept, False, f"there is no copy: {kept.problem}")
    if digest(kept.path) != kept.after:
        return UndoOutcome(kept, False, "changed by someone else since; left alone")
    try:
        return _restore(kept) if kept.existed else _remove(kept)
    except OSError as error:
        return UndoOutcome(kept, False, str(error))


def _restore(kept: Kept) -> UndoOutcome:
    if digest(kept.copy) != kept.before:
        return UndoOutcome(kept, False, "its copy was changed; left alone")
    kept.path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(kept.copy, kept.path)
    if kept.mode is not None:
        kept.path.chmod(kept.mode)
    return UndoOutcome(kept, True, "as it was")


def _remove(kept: Kept) -> UndoOutcome:
    kept.path.unlink()
    return UndoOutcome(kept, True, "removed: it was not there before")


def _remove_empty(made: Iterable[Path]) -> None:
    """Folders that the turn made, the innermost first; one that holds something stays."""
    for folder in sorted(made, key=lambda one: len(one.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()
