"""A past session, chosen from a list."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum import Event, Options
from geminorum.apps.command.render.tables import flat
from geminorum.apps.command.sessions.views import titled
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from rich.console import Console

    from geminorum.apps.command.chat.lines import Lines
    from geminorum.apps.command.sessions import stored
    from geminorum.sessions import SessionInfo
else:
    stored = lazy_module("geminorum.apps.command.sessions.stored")

_MOST = 20


async def pick_session(
    lines: Lines, console: Console, options: Options, *, enter: str, here: str | None = None
) -> SessionInfo | None:
    """The session that somebody chose, another than `here`; None for Enter, whose meaning the
    question tells. EOFError: nothing was chosen."""
    saved = await asyncio.to_thread(saved_sessions, options)
    found = [info for info in saved if info.id != here][:_MOST]
    if not found:
        other = "other " if saved else ""
        where = Path(options.cwd or ".").resolve() if options.store is None else "the store"
        console.print(f"there are no {other}saved sessions of {where}", soft_wrap=True)
        raise EOFError
    for number, info in enumerate(found, 1):
        console.print(
            row(number, info, with_folder=options.store is not None),
            no_wrap=True,
            overflow="ellipsis",
            markup=False,
        )
    while True:
        typed = (await lines.answer(f"number (Enter: {enter}): ")).strip()
        if not typed:
            return None
        if typed.isdecimal() and 1 <= int(typed) <= len(found):
            return found[int(typed) - 1]
        console.print(f"a number from 1 to {len(found)}, or nothing")


def saved_sessions(options: Options) -> list[SessionInfo]:
    """The sessions of the folder, and with a store all of the store's; the last updated first."""
    cwd = Path(options.cwd or ".").resolve()
    found = geminorum.sessions.list(cwd, home=home_of(options))
    here = {info.id: info for info in found if info.id and not info.empty}
    if options.store is None:
        return [*here.values()]
    there = stored.as_sessions(stored.stored_sessions(options.store))
    known = {info.id: info for info in there if not info.problem}
    # Of a session that is on both sides, the side that a resume goes on with.
    newer_here = {
        name: info
        for name, info in here.items()
        if name not in known or info.updated > known[name].updated
    }
    return sorted({**known, **newer_here}.values(), key=lambda info: info.updated, reverse=True)


def events_in(options: Options, info: SessionInfo) -> list[Event]:
    """What was said in a session that was picked."""
    if options.store is None or info.path.is_absolute():
        return [*geminorum.sessions.load(info).events()]
    with stored.stored_session(options.store, info.id) as session:
        return [*session.events()]


def home_of(options: Options) -> Any:
    return options.home or options.env.get("GEMINI_CLI_HOME")


def row(number: int, info: SessionInfo, *, with_folder: bool = False) -> str:
    """A session on one line."""
    when = datetime.fromtimestamp(info.updated / 1000)
    folder = f"{flat(info.cwd.name)}: " if with_folder and info.cwd else ""
    return f"{number:>3}  {when:%Y-%m-%d %H:%M}  {folder}{flat(titled(info))}"
