"""What a file held, as digests of its blocks: enough to tell how much of it is unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple, TypeAlias

BLOCK_BYTES = 64 * 1024
_DIGEST_BYTES = 16

Data: TypeAlias = bytes | bytearray | memoryview


class Fingerprint(NamedTuple):
    """The digest of each block; the last block may be short."""

    blocks: tuple[bytes, ...] = ()
    size: int = 0

    @property
    def digest(self) -> bytes:
        """One for the whole content."""
        return digest_of(b"".join(self.blocks) + self.size.to_bytes(8, "big"))


def digest_of(data: Data) -> bytes:
    return sha256(data).digest()[:_DIGEST_BYTES]


def fingerprint_of(data: Data) -> Fingerprint:
    return Fingerprint(tuple(map(digest_of, _blocks(data))), len(data))


def continued(old: Fingerprint, tail: Data, keep: int, data: Data) -> Fingerprint:
    """The fingerprint of the first `keep` bytes and then `data`, without reading what is kept.

    `tail` is what lies between the last whole block of these bytes and their end.
    """
    whole, view = keep // BLOCK_BYTES, memoryview(data)
    # Only the block in which both meet is put together: the data may be hundreds of megabytes.
    rest = BLOCK_BYTES - len(tail) if tail else 0
    first: list[Data] = [bytes(tail) + bytes(view[:rest])] if tail else []
    fresh = map(digest_of, [*first, *_blocks(view[rest:])])
    return Fingerprint((*old.blocks[:whole], *fresh), keep + len(data))


def common_start(old: Fingerprint, new: Fingerprint, data: Data) -> int:
    """How many bytes at the start of `data`, which `new` is of, are those that `old` is of."""
    pairs = zip(old.blocks, new.blocks, strict=False)
    same = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
    if same is None:
        same = min(len(old.blocks), len(new.blocks))
    start, end = same * BLOCK_BYTES, old.size
    if start >= end or same != len(old.blocks) - 1 or end > len(data):
        return min(start, end, len(data))
    # A log grows in the middle of its last block: what was there may still be.
    is_kept = digest_of(memoryview(data)[start:end]) == old.blocks[same]
    return end if is_kept else start


def _blocks(data: Data) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + BLOCK_BYTES] for at in range(0, len(view), BLOCK_BYTES))
