"""Locks that agents hold with us: free once we and every agent that we started are gone.

Whoever wants to take up the work of a process that was killed waits for its lock, and then knows
that nothing is at work any more. It takes keepers to hold them, so it is true on Linux only;
elsewhere a lock is free as soon as its process is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_held: list[int] = []


@contextmanager
def held_by_agents(lock: int) -> Iterator[None]:
    """Lets every agent that this process starts within the block hold the descriptor."""
    _held.append(lock)
    try:
        yield
    finally:
        _held.remove(lock)


def held() -> tuple[int, ...]:
    return tuple(_held)
