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
        self.overlong = 0
        """How many lines were dropped for their length."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their line ends."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._held:
            self._hold(lines[0])
            lines[0] = b"".join(self._pieces)
            longest, self._held = self._held, 0
            self._pieces.clear()
        else:
            longest = 0
        if rest:
            self._hold(rest)
        has_returns = b"\r" in chunk or (longest and lines[0].endswith(b"\r"))
        # Before these are taken off: a line that came in pieces is as long as all of them.
        if max(longest, len(chunk)) > self._limit:
            lines = self._short(lines, longest)
        return [line.removesuffix(b"\r") for line in lines] if has_returns else lines

    def rest(self) -> bytes:
        """What came after the last line end: a torn or an unterminated last line."""
        last = self.feed(b"\n")
        return last[0] if last else b""

    def _hold(self, piece: bytes) -> None:
        # Beyond the limit only the length is kept: the line will be dropped at its end.
        self._held += len(piece)
        if self._held <= self._limit:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _short(self, lines: list[bytes], first: int) -> list[bytes]:
        lengths = [max(first, len(lines[0])), *map(len, lines[1:])] if lines else []
        kept = [line for line, size in zip(lines, lengths, strict=True) if size <= self._limit]
        self.overlong += len(lines) - len(kept)
        return kept
