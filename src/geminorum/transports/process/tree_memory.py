"""The resident memory of a process and all its descendants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def tree_megabytes(root: psutil.Process) -> float:
    """Raises psutil.Error where the process itself may not be looked at, or is gone."""
    size = root.memory_info().rss
    for process in _descendants(root):
        with suppress(psutil.Error):
            size += process.memory_info().rss
    return float(size) / 2**20


def _descendants(root: psutil.Process) -> Iterator[psutil.Process]:
    try:
        pids = [*_children(root.pid)]
    except OSError:
        # Not on every system does a process know its children: all processes are asked.
        yield from root.children(recursive=True)
        return
    for pid in pids:
        with suppress(psutil.Error):
            child = psutil.Process(pid)
            yield child
            yield from _descendants(child)


def _children(pid: int) -> Iterator[int]:
    """From Linux itself, which takes a tenth of the time on a busy machine."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (thread / "children").read_text().split())
