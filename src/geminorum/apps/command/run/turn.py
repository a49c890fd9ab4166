"""Runs one turn: events go to a view, Ctrl-C to the agent, the result to an exit code."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum import Event, Options, Run, run
from geminorum.apps.command.exits import Exit, exit_for
from geminorum.apps.command.failures import command_hint, command_words, tell
from geminorum.errors import GeminorumError
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import Result
    from geminorum import cost as costs
    from geminorum.apps.command.render.live import View
else:
    costs = lazy_module("geminorum.cost")


async def watch_turn(
    prompt: str,
    options: Options,
    transport: Any,
    make_view: Callable[[], View],
    *,
    opens_at_once: bool = False,
) -> Exit:
    """Run the prompt and show it; how it ended."""
    live = run(prompt, options, via=transport)
    view = await follow(
        live, make_view, options, fresh=options.resume is None, opens_at_once=opens_at_once
    )
    return concluded(live, view)


async def follow(
    live: Run,
    make_view: Callable[[], View],
    options: Options,
    *,
    fresh: bool,
    opens_at_once: bool = False,
    also: list[Event] | None = None,
) -> View:
    """Show a turn's events until its end. Ctrl-C cancels it; once more, it is killed.

    `fresh`: nothing was said in the session before. `opens_at_once`: there is nothing to look at
    until the agent starts. `also` collects the events.
    """
    # The view around all of it: to open a transport, and to end an agent, may take a while.
    with ExitStack() as screen, cancel_on_ctrl_c(live) as has_begun:
        view = None if opens_at_once else screen.enter_context(make_view())
        async with live:
            # What only the screen needs is loaded while the agent starts, instead of before.
            view = view or screen.enter_context(make_view())
            has_begun(view)
            async with _report_spending(live, view, options, fresh):
                async for event in live:
                    view.show(event)
                    if also is not None:
                        also.append(event)
    return view


def concluded(live: Run, view: View) -> Exit:
    """The summary, the error if there is one, and the exit code."""
    return report_end(live.result, view)


def report_end(result: Result[Any], view: View) -> Exit:
    """The same of a run that was elsewhere."""
    view.finish(result)
    error = result.exception()
    if error is not None and result.status != "interrupted":
        tell(command_words(error.message), command_hint(error.hint))
    return exit_for(error)


@contextmanager
def cancel_on_ctrl_c(live: Run) -> Iterator[Callable[[View], None]]:
    """The first Ctrl-C asks the agent to end, the second does not wait. Yields a function to call
    with the view when there is an agent; before that, the first Ctrl-C ends everything."""
    loop = asyncio.get_running_loop()
    presses: list[asyncio.Task[None]] = []
    begun: list[View] = []
    stopped = False

    def on_press() -> None:
        nonlocal stopped
        if begun and not presses:
            begun[0].show_stopping()
            presses.append(loop.create_task(live.cancel()))
            return
        stopped = True
        # All of them: the one that gives the agent its grace kills it when it is cancelled.
        for task in asyncio.all_tasks(loop):
            task.cancel()

    # Not loop.add_signal_handler, which Windows has not got.
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(on_press))
    try:
        yield begun.append
    except asyncio.CancelledError:
        if not stopped:
            raise  # Not our doing: a signal ends the process.
        raise KeyboardInterrupt from None
    finally:
        # Who has on_press twice gets what was asked for; a third must not disturb the way out.
        signal.signal(signal.SIGINT, _pass_over if stopped else before)


def _pass_over(*_: object) -> None:
    """Ctrl-C, once more."""


@asynccontextmanager
async def _report_spending(
    live: Run, view: View, options: Options, fresh: bool
) -> AsyncIterator[None]:
    """Reports the consumption of the turn so far to the view, now and then."""
    if not view.counts:
        yield
        return
    task = asyncio.create_task(_watch_spending(live, view, options, fresh))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch_spending(live: Run, view: View, options: Options, fresh: bool) -> None:
    home = options.home or options.env.get("GEMINI_CLI_HOME")
    # What a session consumed before is not this turn's.
    before: tuple[int, Decimal | None] | None = (0, Decimal(0)) if fresh else None
    while True:
        began = time.monotonic()
        now = await asyncio.to_thread(_consumed, live.session_id, home)
        if now is not None:
            before = before or now
            known = now[1] is not None and before[1] is not None
            view.show_spent(now[0] - before[0], now[1] - before[1] if known else None)  # type: ignore[operator]
        # A long session takes a while to read: never more than a tenth of the time.
        await asyncio.sleep(max(1.0, 9 * (time.monotonic() - began)))


def _consumed(session_id: str | None, home: Any) -> tuple[int, Decimal | None] | None:
    """Tokens and dollars of a session so far; None where nothing is saved."""
    if session_id is None:
        return None
    try:
        info = geminorum.sessions.find(session_id=session_id, home=home)
        usage = geminorum.sessions.load(info).usage if info is not None else None
    except (GeminorumError, OSError):
        return None  # Not saved yet, or on a transport that saves nothing.
    cost = costs.cost_of(usage)
    return (usage.total, cost.usd if cost else None) if usage else None
