"""Locks that agents hold with us: free once we and every agent that we started are gone.

A process that takes up the work of a killed one waits for its lock, and then knows that no agent
is left at work. Keepers hold the locks, so this is true on Linux only; elsewhere a lock is free as
soon as its process is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_held: list[int] = []


@contextmanager
def share_with_agents(lock: int) -> Iterator[None]:
    """Passes the descriptor of a lock to every agent that this process starts in the block."""
    _held.append(lock)
    try:
        yield
    finally:
        _held.remove(lock)


def held() -> tuple[int, ...]:
    return tuple(_held)
