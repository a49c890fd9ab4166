"""Parses chunks of bytes or text into one result per line of JSON, valid or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, TypeAlias

import msgspec

from geminorum.adapter_parts import LONGEST_LINE, Lines, mended, whole

_CHUNK = 64 * 1024

Chunks: TypeAlias = AsyncIterable[bytes | str] | Iterable[bytes | str]


class Parsed(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The result for one line: `data` if it is JSON, otherwise the error and the line."""

    ok: bool
    data: Any = None
    error: str | None = None
    raw: str | None = None


async def parse_ndjson(
    stream: Chunks, *, longest_line: int = LONGEST_LINE
) -> AsyncIterator[Parsed]:
    """Yields a result as soon as its line is complete; a bad line is reported and skipped."""
    lines = Lines(longest_line)
    async for chunk in _chunks(stream):
        for parsed in _results(lines, lines.feed(chunk)):
            yield parsed
    for parsed in _results(lines, [lines.rest()]):
        yield parsed


def _results(lines: Lines, complete: list[bytes]) -> list[Parsed]:
    results = [_parsed(line) for line in complete if line.strip()]
    if lines.overlong:
        results.append(Parsed(False, error=f"not read as JSON: {lines.overlong} overlong line(s)"))
        lines.overlong = 0
    return results


def _parsed(line: bytes) -> Parsed:
    try:
        data, _ = mended(line)
    except (ValueError, RecursionError) as error:
        raw = line.decode("utf-8", "replace")
        return Parsed(False, error=f"not valid JSON: {error}", raw=raw)
    return Parsed(True, data)


async def _chunks(stream: Chunks) -> AsyncIterator[bytes]:
    if isinstance(stream, asyncio.StreamReader):
        # Iterating it would read lines, and fail at the first one over its limit of 64 KiB.
        while read := await stream.read(_CHUNK):
            yield read
    elif isinstance(stream, AsyncIterable):
        async for chunk in stream:
            yield _encoded(chunk)
    else:
        # Iterating bytes would give numbers.
        for chunk in [stream] if isinstance(stream, bytes | str) else stream:
            yield _encoded(chunk)


def _encoded(chunk: bytes | str) -> bytes:
    # Half a surrogate pair has no encoding.
    return whole(chunk).encode() if isinstance(chunk, str) else chunk
