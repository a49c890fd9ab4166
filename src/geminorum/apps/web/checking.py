"""Checks of the doctor as rows of a page, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request

from geminorum import doctor
from geminorum.apps.web.rendering import draw
from geminorum.doctor import Check

Say = Callable[[Check], object]


async def check_rows(
    request: Request, checks: AsyncIterator[Check], *, can_fix: bool = False
) -> AsyncIterator[str]:
    """A row for each check, then the verdict on all."""
    made: list[Check] = []
    async for check in checks:
        made.append(check)
        is_fixable = can_fix and doctor.remedy_for(check) is not None
        yield draw(request, "doctor/_check.html", check=check, is_fixable=is_fixable)
    yield draw(request, "doctor/_verdict.html", kind=_worst(made), verdict=verdict_on(made))


def one_by_one(checks: Iterator[Check]) -> AsyncIterator[Check]:
    """Each is made in a thread."""
    return iterate_in_threadpool(checks)


async def as_told(work: Callable[[Say], object]) -> AsyncIterator[Check]:
    """The checks that work in a thread tells of, as it does."""
    loop, told = asyncio.get_running_loop(), asyncio.Queue[Check | None]()

    def say(check: Check) -> None:
        loop.call_soon_threadsafe(told.put_nowait, check)

    task = asyncio.create_task(asyncio.to_thread(work, say))
    task.add_done_callback(lambda _: told.put_nowait(None))
    while (check := await told.get()) is not None:
        yield check
    await task


def verdict_on(checks: Iterable[Check]) -> str:
    levels = [check.level for check in checks]
    failed, warned = levels.count("fail"), levels.count("warn")
    if failed:
        return f"{failed} problem{'s' * (failed != 1)} to fix before a run can work"
    if warned:
        return f"A run should work; {warned} warning{'s' * (warned != 1)}"
    return "All is well"


def _worst(checks: Iterable[Check]) -> str:
    levels = {check.level for check in checks}
    return "bad" if "fail" in levels else "warn" if "warn" in levels else "good"
