"""One run of a trial: how it is read, and what came of it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from geminorum import Done, Options, Run, run
from geminorum.errors import GeminorumError
from geminorum.transports import Transport


@dataclass
class Telling:
    """What came of a run."""

    number: int
    status: str = "not begun"
    text: str = ""
    dones: int = 0
    ends_with_done: bool = False
    ending: str = "not begun"
    """`end` of the stream, `left` early, `cancelled`, or `raised`."""
    error: str = ""
    """The traceback of what was raised and is none of ours."""
    raised: str = ""
    told_at_fault: int = 0
    """What the stand-in had written for certain when the fault happened."""
    session: str | None = None
    errors: list[str] = field(default_factory=list)


class Reader:
    """Reads one run to its end, in a task or a scope that others can cancel."""

    def __init__(self, number: int, options: Options, via: Transport) -> None:
        self.telling = Telling(number)
        self.events = 0
        self.is_begun = asyncio.Event()
        self.wants_to_leave = False
        self.before_each: Callable[[], Awaitable[None]] | None = None
        """What the consumer does with an event."""
        self._run = run(f"Story {number}", options, via=via)
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._kept())
        return self._task

    def cancel(self, how: str) -> None:
        if how == "anyio":
            self._scope.cancel()
        elif self._task is not None:
            self._task.cancel()

    async def _kept(self) -> None:
        """Whatever is raised is written down."""
        telling = self.telling
        try:
            with self._scope:
                await self._read(self._run)
            if self._scope.cancelled_caught:
                telling.ending = "cancelled"
        except asyncio.CancelledError:
            telling.ending = "cancelled"
        except GeminorumError as error:
            telling.ending, telling.raised = "raised", repr(error)
        except BaseException as error:
            telling.ending, telling.raised = "raised", repr(error)
            telling.error = traceback.format_exc()
        finally:
            self._note_result()

    async def _read(self, live: Run) -> None:
        telling = self.telling
        async with live:
            telling.ending = "left"
            self.is_begun.set()
            async for event in live:
                self.events += 1
                telling.dones += isinstance(event, Done)
                telling.ends_with_done = isinstance(event, Done)
                if self.before_each is not None:
                    await self.before_each()
                if self.wants_to_leave:
                    return
            telling.ending = "end"

    def _note_result(self) -> None:
        result, telling = self._run.result, self.telling
        if self.is_begun.is_set():
            telling.status, telling.text = result.status, result.text
            telling.session = result.session_id
            telling.errors = [f"{error.code}: {error.message}" for error in result.errors]
