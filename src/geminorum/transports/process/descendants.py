"""The processes that a program has started itself, and whether they still run."""

from __future__ import annotations

from geminorum.runtime.lazy import psutil


class Descendants:
    """Those of one moment: for a CLI that waits for its prompt, its MCP servers."""

    def __init__(self, pid: int) -> None:
        try:
            self._processes = psutil.Process(pid).children(recursive=True)
        except psutil.Error:
            self._processes = []

    def first_out_of_order(self) -> int | None:
        """The first that has ended or was stopped since."""
        return next((one.pid for one in self._processes if not _is_in_order(one)), None)


def _is_in_order(process: psutil.Process) -> bool:
    try:
        # Compares the time of its start, too: another may have its number by now.
        return process.is_running() and process.status() not in (
            psutil.STATUS_ZOMBIE,
            psutil.STATUS_STOPPED,
        )
    except psutil.Error:
        return False
