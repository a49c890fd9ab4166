"""The command `geminorum`: arguments in, an exit code out."""

from __future__ import annotations

# The part of `signal` that is compiled into Python: to load the rest takes a while.
import _signal  # type: ignore[import-not-found]
import gc
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; never raises for what a user can do wrong. The codes are in `exits`."""
    if argv is None:
        # The program itself: what is typed while it loads, or on its way out, is no traceback.
        _end_at_once_on_ctrl_c()
        _collect_garbage_seldom()
    from geminorum.apps.command.dispatch import call, call_and_leave

    return call_and_leave() if argv is None else call(argv)


def _end_at_once_on_ctrl_c() -> None:
    """There is nothing to tidy up yet; who wants to be asked says so later."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _collect_garbage_seldom() -> None:
    """To load modules makes a lot of objects, and none of them is garbage."""
    gc.set_threshold(50_000, *gc.get_threshold()[1:])
