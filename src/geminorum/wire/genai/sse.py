"""Bytes of a server-sent event stream to the data of its events."""

from __future__ import annotations

_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_DONE = b"[DONE]"
"""The end marker of OpenAI's API, which some gateways add; Google sends none."""


class EventStream:
    """Cuts a stream into events, at `\\n` only: JSON may hold every other kind of line end."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that is complete now."""
        # Only the new bytes can hold the end of a line: a long line is looked through once.
        if b"\n" not in chunk:
            self._rest += chunk
            return []
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = bytearray(rest)
        return [data for line in lines if (data := self._add_line(line.rstrip(b"\r")))]

    def close(self) -> list[bytes]:
        """What had no blank line behind it when the stream ended."""
        last, self._rest = bytes(self._rest), bytearray()
        if last:
            self._add_line(last)
        data = self._add_line(b"")
        return [data] if data else []

    def _add_line(self, line: bytes | bytearray) -> bytes | None:
        """Takes a line in; a blank one ends the event."""
        if not line:
            data, self._data = b"\n".join(self._data), []
            return None if data == _DONE else data or None
        if line.startswith(b"data:"):
            self._data.append(bytes(line[5:]).removeprefix(b" "))
        elif not line.startswith(_OTHER_FIELDS):
            # Google writes an error in mid-stream as bare JSON over several lines.
            self._data.append(bytes(line))
        return None
