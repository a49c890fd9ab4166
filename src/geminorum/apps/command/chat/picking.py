"""A past session, chosen from a list."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum.apps.command.render.tables import flat
from geminorum.apps.command.sessions.views import titled

if TYPE_CHECKING:
    from rich.console import Console

    from geminorum.apps.command.chat.lines import Lines
    from geminorum.sessions import SessionInfo

_MOST = 20


async def pick_session(
    lines: Lines, console: Console, cwd: Path, home: Any, *, enter: str, here: str | None = None
) -> SessionInfo | None:
    """The session that somebody chose, another than `here`; None for Enter, whose meaning the
    question tells. EOFError: nothing was chosen."""
    listed = geminorum.sessions.list(cwd, home=home)
    saved = [info for info in listed if info.id and not info.empty]
    found = [info for info in saved if info.id != here][:_MOST]
    if not found:
        other = "other " if saved else ""
        console.print(f"there are no {other}saved sessions of {cwd}", soft_wrap=True)
        raise EOFError
    for number, info in enumerate(found, 1):
        console.print(row(number, info), no_wrap=True, overflow="ellipsis")
    while True:
        typed = (await lines.answer(f"number (Enter: {enter}): ")).strip()
        if not typed:
            return None
        if typed.isdecimal() and 1 <= int(typed) <= len(found):
            return found[int(typed) - 1]
        console.print(f"a number from 1 to {len(found)}, or nothing")


def row(number: int, info: SessionInfo) -> str:
    """A session on one line."""
    when = datetime.fromtimestamp(info.updated / 1000)
    return f"{number:>3}  {when:%Y-%m-%d %H:%M}  {flat(titled(info))}"
