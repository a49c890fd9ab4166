"""What the tests of the inbox share: askers, and processes that ask and are killed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import geminorum
from geminorum import PermissionRequest
from geminorum.decisions import Decisions, Place
from geminorum.inbox import Inbox, Question

WAIT_SECONDS = 60.0
SOURCE = Path(geminorum.__file__).parents[1]
SHELL = PermissionRequest(
    "run_shell_command", "call-1", {"command": "rm -r build"}, session_id="s-1"
)
WRITE = PermissionRequest(
    "write_file", "call-2", {"file_path": "a.txt", "content": "new\n"}, session_id="s-1"
)
_ASKER = """
import asyncio, sys
from geminorum import PermissionRequest
from geminorum.decisions import Decisions, Place
from geminorum.inbox import Inbox
store, cwd = sys.argv[1:]
request = PermissionRequest("run_shell_command", "c", {"command": "rm -r build"}, session_id="s-1")
decisions = Decisions(Inbox(store), place=Place(cwd=cwd, transport="cli"))
print(asyncio.run(decisions.ask(request)), flush=True)
"""


def conversation(inbox: Inbox, cwd: str = "/srv/project", **place) -> Decisions:
    """One that asks the inbox, as a transport's does."""
    return Decisions(inbox, place=Place(**{"cwd": cwd, "transport": "cli", **place}))


@asynccontextmanager
async def asking(decisions: Decisions, *requests: PermissionRequest) -> AsyncIterator[list]:
    """The requests are asked while the block lasts."""
    tasks = [asyncio.create_task(decisions.ask(request)) for request in requests]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def asked(inbox: Inbox, count: int = 1) -> list[Question]:
    """The questions, once so many can be answered."""
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found := await inbox.questions()) < count:
            await asyncio.sleep(0.01)
    return found


async def the_question(inbox: Inbox, state: str) -> Question:
    """The only question, once it is in that state."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            found = await inbox.questions(include_closed=True)
            if [one.state for one in found] == [state]:
                return found[0]
            await asyncio.sleep(0.01)


async def leave_questions(
    store, *requests: PermissionRequest, deadline: float | None = 3600.0, **place
) -> list[BaseException]:
    """Asks, and ends the run for want of patience; what ended it. The questions are left."""
    ended, is_over = [], asyncio.Event()

    def end_run(error: BaseException) -> None:
        ended.append(error)
        is_over.set()

    decisions = conversation(Inbox(store, patience=0.05, deadline=deadline), **place)
    tasks = [asyncio.create_task(decisions.ask(one, end_run)) for one in requests]
    await asyncio.wait_for(is_over.wait(), WAIT_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return ended


def start_asker(store: str, cwd: str = "/srv/project") -> subprocess.Popen[bytes]:
    """A process of its own that asks about a command, and prints the answer."""
    words = [sys.executable, "-c", _ASKER, store, cwd]
    return subprocess.Popen(words, stdout=subprocess.PIPE, env={"PYTHONPATH": str(SOURCE)})
