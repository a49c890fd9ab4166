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
        return lines_of(self.block(chunk))

    def block(self, chunk: bytes) -> bytes:
        """The same lines in one piece, line ends included; empty where there is none."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._hold(chunk)
            return b""
        start = self._end_of_skipped(chunk)
        block = b"".join((*self._pieces, chunk[start:end]))
        self._pieces.clear()
        self._held = 0
        self._hold(chunk[end:])
        return block if len(block) <= self._limit else self._shortened(block)

    def rest(self) -> bytes:
        """What came after the last line end: a torn last line, or one that nobody ended."""
        last = self.block(b"\n")
        return last.removesuffix(b"\n").removesuffix(b"\r")

    def _shortened(self, block: bytes) -> bytes:
        lines = block.split(b"\n")
        kept = [line for line in lines if len(line) <= self._limit]
        self.overlong += len(lines) - len(kept)
        return b"\n".join(kept)

    def _end_of_skipped(self, chunk: bytes) -> int:
        if not self._skipping:
            return 0
        self._skipping = False
        self.overlong += 1
        return chunk.find(b"\n") + 1

    def _hold(self, piece: bytes) -> None:
        if not piece or self._skipping:
            return
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > self._limit:
            self._pieces.clear()
            self._skipping = True


def lines_of(block: bytes) -> list[bytes]:
    """The lines of a block of whole lines."""
    lines = block.split(b"\n")
    lines.pop()
    if b"\r" in block:
        return [line.removesuffix(b"\r") for line in lines]
    return lines
