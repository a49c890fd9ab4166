"""The keyboard while an agent works: what is typed is not drawn into what is shown, and is no
answer to a question that came after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

if sys.platform != "win32":
    import termios


Settings = list[Any] | None


def echo_off() -> Settings:
    """Do not draw what is typed; how it was before, or None where nothing was changed."""
    if not _is_ours():
        return None
    before = termios.tcgetattr(sys.stdin)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    return before


def put_back(before: Settings) -> None:
    """The keyboard as `echo_off` found it."""
    if before is not None and _is_ours():
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def echo_is_off() -> Iterator[None]:
    """… for a block: a `^C` in a bar that is as wide as the window would draw it twice."""
    before = echo_off()
    try:
        yield
    finally:
        put_back(before)


def forget_typed() -> None:
    """Discards typed text that was not read: it cannot answer a question that came later."""
    if _is_ours():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _is_ours() -> bool:
    """Is there a terminal, and are we in front of it? One in the background would be stopped."""
    if sys.platform == "win32":
        return False
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
