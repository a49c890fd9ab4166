"""Work that a cancellation must not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any


async def finish(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Waits for the work to end, also while the caller is cancelled, and raises that afterwards.

    A scope of anyio's cancels every wait of its task anew, not just once; so the work is a task of
    its own. `hurry` is called at the first cancellation: the caller no longer wants to wait.
    """
    task = asyncio.create_task(_await_outcome(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            if cancelled is None:
                hurry()
            cancelled = error
        if task.done() and getcoroutinestate(work) == CORO_CREATED:
            # A cancellation of all tasks in the loop may hit this one before its first step.
            task = asyncio.create_task(_await_outcome(work))
    if (failure := task.result()) is not None:
        raise failure
    if cancelled is not None:
        raise cancelled


async def _await_outcome(work: Coroutine[Any, Any, None]) -> BaseException | None:
    # A task would raise Ctrl-C and `sys.exit()` in the loop; they are for the caller to see.
    try:
        await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error
    return None
