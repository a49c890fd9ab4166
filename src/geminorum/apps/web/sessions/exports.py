"""A session as a file to keep: Markdown and HTML for people, JSON lines for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import geminorum
from geminorum.errors import InvalidOptions
from geminorum.events import encode
from geminorum.sessions import SessionInfo

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
"""A document is made as a whole, in memory; lines of JSON come one after the other."""
_CHUNK_BYTES = 64 * 1024


class Export(NamedTuple):
    name: str
    """Of the file."""
    media_type: str
    chunks: Iterator[bytes]
    """Reads the session when it is asked for; blocks."""


_DOCUMENTS = {"markdown": ("md", "text/markdown"), "html": ("html", "text/html")}
FORMATS = (*_DOCUMENTS, "jsonl")


def export_of(info: SessionInfo, format: str) -> Export:
    """The file that is to be downloaded; raises InvalidOptions for what cannot be made."""
    name = f"session-{info.id[:8]}"
    if format == "jsonl":
        return Export(f"{name}.jsonl", "application/x-ndjson", _lines(info))
    if format not in _DOCUMENTS:
        raise InvalidOptions(f"there is no format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    if info.size > MAX_DOCUMENT_BYTES:
        hint = f"export it as JSON, or type: geminorum sessions export {info.id} -f {format}"
        raise InvalidOptions("the session is too long for one document", hint=hint)
    suffix, media_type = _DOCUMENTS[format]
    return Export(f"{name}.{suffix}", f"{media_type}; charset=utf-8", _document(info, format))


def _document(info: SessionInfo, format: str) -> Iterator[bytes]:
    session = geminorum.sessions.load(info)
    text = geminorum.sessions.export(session, "html" if format == "html" else "markdown")
    yield text.encode("utf-8", "replace")


def _lines(info: SessionInfo) -> Iterator[bytes]:
    chunk = bytearray()
    for event in geminorum.sessions.load(info).events():
        chunk += encode(event) + b"\n"
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)
