"""How much memory is left for more processes, on the machine and in our own control group."""

from __future__ import annotations

from pathlib import Path

from geminorum.runtime.lazy import psutil

_GROUPS = Path("/sys/fs/cgroup")


def free_megabytes() -> float:
    """What can be taken without making others suffer."""
    return min(psutil.virtual_memory().available / 2**20, _left_in_group())


def _left_in_group() -> float:
    """Of what a container allows; infinite where nothing limits us, or nothing tells."""
    try:
        text = Path("/proc/self/cgroup").read_text(encoding="ascii")
        own = next(line for line in text.splitlines() if line.startswith("0::"))
        folder = _GROUPS / own.removeprefix("0::").lstrip("/")
        most = int((folder / "memory.max").read_text(encoding="ascii"))  # "max": no limit
        used = int((folder / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError, StopIteration):
        return float("inf")
    return (most - used) / 2**20
