"""Ends what is left of our runs when we die, where there are no keepers: on macOS.

A process of its own reads the marks of the runs from a pipe. The end of the pipe is our end,
however it came; then it looks for whoever carries one of the marks, and kills it. Unlike a keeper
it holds no locks, and does not see a process that gave up both its parent and its environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO


class Watcher:
    """Our end of the pipe. The watcher is started with the first run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: IO[bytes] | None = None

    def watch(self, run_id: str) -> None:
        self._say(f"+{run_id}\n")

    def forget(self, run_id: str) -> None:
        self._say(f"-{run_id}\n")

    def start_over(self) -> None:
        """In a fork: with a copy of the pipe, it would hide the end of our parent."""
        self._lock = threading.Lock()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _say(self, line: str) -> None:
        # Nobody watches where it cannot be started or was killed; runs end as ever.
        with self._lock, suppress(OSError):
            if self._pipe is None:
                self._pipe = _start()
            self._pipe.write(line.encode())


def _start() -> IO[bytes]:
    # Its own place to look for modules: no folder that somebody else may have been led to.
    places = [place for place in sys.path if Path(place).is_absolute()]
    # A list and no shell, and nothing of the caller in it.
    process = subprocess.Popen(  # nosec B603
        [sys.executable, "-m", __name__],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"PYTHONPATH": os.pathsep.join(places)},
        cwd="/",
    )
    process.returncode = 0  # It outlives us on purpose; nobody waits for it.
    assert process.stdin is not None
    return process.stdin


def main(lines: Iterable[str]) -> None:
    from geminorum.transports.process.marked_tree import kill_everything

    runs = set()
    for line in lines:
        word, run_id = line[0], line[1:].strip()
        runs.add(run_id) if word == "+" else runs.discard(run_id)
    for run_id in runs:
        kill_everything(None, run_id)


WATCHER = Watcher()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCHER.start_over)
if __name__ == "__main__":
    main(sys.stdin)
