"""Session files whose tool calls have one response each, in place or as a copy."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geminorum.regular_file import open_regular
from geminorum.wire.session_repair import repaired


def repair_file(path: Path) -> None:
    """Replaces the file in one step; one that needs no repair is not touched."""
    lines = _repaired_lines(path)
    if lines is None:
        return
    temporary = _written_beside(path, lines)
    try:
        shutil.copystat(path, temporary)  # By the time of its file a session is the latest.
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def repaired_copy(path: Path) -> Iterator[Path]:
    """A repaired copy for one block, or the file itself where it needs no repair."""
    lines = _repaired_lines(path) if path.suffix == ".jsonl" else None
    if lines is None:
        yield path
        return
    temporary = _written_beside(path, lines)
    try:
        shutil.copystat(path, temporary)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _repaired_lines(path: Path) -> list[bytes] | None:
    with open_regular(path) as file:
        lines = file.readlines()
    # Most sessions call no tools; looking for the word takes a hundredth of decoding them.
    if not any(b'"functionResponse"' in line or b'"toolCalls"' in line for line in lines):
        return None
    return repaired(lines)


def _written_beside(path: Path, lines: list[bytes]) -> Path:
    # Under a name that is no session's, so that no one reads a half of it.
    handle, name = tempfile.mkstemp(prefix=".repaired-", suffix=path.suffix, dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())  # A crash must not leave an empty session in place of a whole one.
    return Path(name)
