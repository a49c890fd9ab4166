"""Shows how the session of an answered question goes on, as `run` shows a run."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from geminorum import Options
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.flags.transport import transport_for
from geminorum.apps.command.render.live import view_for
from geminorum.apps.command.render.output import Showing
from geminorum.apps.command.run.turn import concluded, follow
from geminorum.inbox import Inbox, Question


def resume(
    inbox: Inbox,
    question: Question,
    options: Options,
    via: Via | None,
    program: Program,
    how: Showing,
) -> Exit:
    """Runs the session on; the exit code is that of `run`."""
    # As it was asked: a call is not the same in the words of another transport.
    chosen = via or (Via.ACP if question.transport == Via.ACP else Via.CLI)
    transport = transport_for(chosen, program=program, decide=inbox)
    return asyncio.run(_follow(inbox, question, options, transport, chosen, how))


async def _follow(
    inbox: Inbox,
    question: Question,
    options: Options,
    transport: Any,
    via: Via,
    how: Showing,
) -> Exit:
    live = inbox.resume(question, options=options, via=transport)
    look = partial(view_for, via, how, asks_elsewhere=True)
    return concluded(live, await follow(live, look, options, fresh=False))
