"""Bytes in any pieces to whole lines."""

from __future__ import annotations

LONGEST_LINE = 256 * 1024 * 1024


class Lines:
    """Cuts a byte stream at `\\n` and nowhere else, in time linear in its length.

    JSON may hold U+2028 and U+0085 raw, so `splitlines` would tear it; and a line of many chunks
    is joined once, at its end, because appending to a growing buffer would copy it each time.
    """

    def __init__(self, limit: int = LONGEST_LINE) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._skipping = False
        self.overlong = 0
        """How many lines were dropped for their length."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their line ends."""
        head, newline, rest = chunk.partition(b"\n")
        if not newline:
            self._hold(chunk)
            return []
        first = self._completed(head)
        lines = rest.split(b"\n")
        self._hold(lines.pop())
        if first is not None:
            lines.insert(0, first)
        if b"\r" in chunk or (first is not None and first.endswith(b"\r")):
            lines = [line.removesuffix(b"\r") for line in lines]
        return lines

    def rest(self) -> bytes:
        """What came after the last line end: a torn last line, or one that nobody ended."""
        last = self._completed(b"")
        return b"" if last is None else last.removesuffix(b"\r")

    def _hold(self, piece: bytes) -> None:
        if not piece or self._skipping:
            return
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > self._limit:
            self._pieces.clear()
            self._skipping = True

    def _completed(self, end: bytes) -> bytes | None:
        self._hold(end)
        line = None if self._skipping else b"".join(self._pieces)
        self.overlong += self._skipping
        self._pieces.clear()
        self._held, self._skipping = 0, False
        return line
