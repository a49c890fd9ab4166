"""Recordings of real programs to the seeds of each decoder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

RECORDINGS = Path(__file__).parent.parent / "tests" / "recordings"
_MAX_SEED_BYTES = 4_000
"""Longer recordings would only make every round slower."""


def stream_recordings() -> tuple[bytes, ...]:
    """What each CLI version printed with `--output-format stream-json`."""
    rows = (row for file in sorted(RECORDINGS.glob("*.jsonl")) for row in _rows(file))
    texts = [row["stdout"].encode("utf-8", "surrogateescape") for row in rows]
    return _short([*texts, *more_seeds("ndjson")])


def acp_recordings(direction: str) -> tuple[bytes, ...]:
    """The messages of a warm CLI ("in") or to it ("out"), one conversation a seed."""
    conversations = [
        [_line(row["msg"]) for row in _rows(file) if row.get("dir") == direction and "msg" in row]
        for file in sorted((RECORDINGS / "acp").glob("*.jsonl"))
    ]
    messages = {_kind(line): line for lines in conversations for line in lines}
    return _short([*(b"".join(lines) for lines in conversations), *messages.values()])


def session_recordings() -> tuple[bytes, ...]:
    """Session files of every CLI version."""
    files = sorted((RECORDINGS / "sessions").rglob("*.json*"))
    return _short([*(file.read_bytes() for file in files), *more_seeds("jsonl")])


def more_seeds(suffix: str) -> Iterator[bytes]:
    """Files of this kind in the folders that the variable FUZZ_SEEDS names, read in place."""
    for folder in filter(None, os.environ.get("FUZZ_SEEDS", "").split(os.pathsep)):
        for file in sorted(Path(folder).rglob(f"*.{suffix}")):
            if content := file.read_bytes():
                yield content


def _rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _kind(line: bytes) -> str:
    """What tells a message from others: its method, and the kind of its update."""
    message = json.loads(line)
    update = (message.get("params") or {}).get("update") or {}
    answer = sorted(message.get("result") or message.get("error") or {})
    return f"{message.get('method')} {update.get('sessionUpdate')} {update.get('kind')} {answer}"


def _short(texts: Iterable[bytes]) -> tuple[bytes, ...]:
    """Each once; long ones in pieces of whole lines."""
    return tuple(dict.fromkeys(piece for text in texts for piece in _pieces(text)))


def _pieces(text: bytes) -> Iterator[bytes]:
    piece = b""
    for line in text.splitlines(keepends=True):
        if piece and len(piece) + len(line) > _MAX_SEED_BYTES:
            yield piece
            piece = b""
        piece += line
    if piece:
        yield piece
