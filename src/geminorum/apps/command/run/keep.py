"""Copies of files as they were before an agent wrote to them.

The Gemini CLI runs this file as a hook before each write, by its path and without site-packages:
it may import nothing but the standard library. `python keep.py FOLDER KEY` reads the hook's JSON.

Each record is sealed with the key: the folder may lie where the agent may write, and what stands in
a record is written back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

RECORD, BYTES = "was.json", "bytes"


def keep(path: str | os.PathLike[str], folder: Path, key: str) -> None:
    """Copy the file, once: what it was before the first write is what counts."""
    # Through links, as the write will go.
    real = Path(os.path.realpath(path))
    place = folder / hashlib.sha256(os.fsencode(real)).hexdigest()[:24]
    try:
        # The call that makes the folder copies; a second write of the same file finds it there.
        place.mkdir(parents=True)
    except FileExistsError:
        return
    record = json.dumps(_copy(real, place))
    with open(place / RECORD, "w", encoding="utf-8", opener=_open_private) as file:
        file.write(f"{seal(record, key)}\n{record}")


def seal(record: str, key: str) -> str:
    return hmac.digest(key.encode(), record.encode(), "sha256").hex()


def digest(path: Path) -> str | None:
    """A digest of the file's bytes; None where there are none to read."""
    try:
        if not path.is_file():
            return None  # To open a pipe would wait for somebody to write.
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _copy(real: Path, place: Path) -> dict[str, Any]:
    record: dict[str, Any] = {"path": str(real), "made": _missing_folders(real)}
    try:
        found = real.stat()
    except OSError:
        return {**record, "existed": False}
    if not stat.S_ISREG(found.st_mode):
        return {**record, "existed": True, "problem": "not a plain file"}
    try:
        with real.open("rb") as file, open(place / BYTES, "wb", opener=_open_private) as copy:
            shutil.copyfileobj(file, copy)
    except OSError as error:
        return {**record, "existed": True, "problem": str(error)}
    mode = stat.S_IMODE(found.st_mode)
    return {**record, "existed": True, "mode": mode, "before": digest(place / BYTES)}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _missing_folders(real: Path) -> list[str]:
    """The folders that the write will have to make, the innermost first."""
    missing = []
    for folder in real.parents:
        if folder.exists():
            break
        missing.append(str(folder))
    return missing


def main() -> None:
    # Whatever goes wrong here must not stop the agent's work; /undo will say what it has not got.
    try:
        told = json.loads(sys.stdin.buffer.read())
        arguments = told.get("tool_input") or {}
        path = arguments.get("file_path") or arguments.get("path")
        if isinstance(path, str) and path:
            keep(Path(told.get("cwd") or ".", path), Path(sys.argv[1]), sys.argv[2])
    except (OSError, ValueError, AttributeError, IndexError, RecursionError):
        return


if __name__ == "__main__":
    main()
