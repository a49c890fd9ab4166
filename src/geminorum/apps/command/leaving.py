"""The end of the process."""

from __future__ import annotations

import atexit
import os
import sys
import threading


def leave(code: int) -> None:
    """End the process as Python does, without tidying its memory, which the system takes back.

    To tidy it takes as long as the start of Python. The steps are those of `multiprocessing` at
    the end of its processes. Returns where they had better be Python's own.
    """
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return  # A debugger or a profiler goes on afterwards.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # Python has an exit code for it.
    os._exit(code)
