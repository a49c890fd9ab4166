"""Descriptors that are kept for the way out, so that a run ends well where all others are taken."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SIZE = 8
"""To remove a folder takes two for each level of it."""


class Reserve:
    """Open while there are runs, and closed while the end of one needs descriptors."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._keepers = self._spenders = 0
        # Finalizers run anywhere, also in the middle of this.
        self._lock = threading.RLock()

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keeps the descriptors open for a block in which a run may need them."""
        self._change(keepers=1)
        try:
            yield
        finally:
            self._change(keepers=-1)

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Frees the descriptors for a block. No await inside: other tasks would take them."""
        self._change(spenders=1)
        try:
            yield
        finally:
            self._change(spenders=-1)

    def _change(self, keepers: int = 0, spenders: int = 0) -> None:
        with self._lock:
            self._keepers += keepers
            self._spenders += spenders
            if self._keepers and not self._spenders:
                self._fill()
            else:
                self._release()

    def _fill(self) -> None:
        with suppress(OSError):
            while len(self._descriptors) < _SIZE:
                self._descriptors.append(os.open(os.devnull, os.O_RDONLY))

    def _release(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


RESERVE = Reserve()
