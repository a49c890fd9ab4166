"""One run that was started from the page: drives it to its end, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from geminorum import Run
from geminorum.apps.web.runs.facts import RunFacts
from geminorum.apps.web.runs.info import RunInfo, now_ms
from geminorum.apps.web.runs.writer import BookWriter
from geminorum.apps.web.words import traceback_of
from geminorum.errors import GeminorumError
from geminorum.events import Done, Error, Event, Status

_log = logging.getLogger(__name__)
_BILL_SECONDS = 1.0
"""Between two looks at what a run has consumed."""


class LiveRun:
    """Reads the events of a run into the book, and stops it when it is told to."""

    def __init__(
        self, info: RunInfo, run: Run, writer: BookWriter, on_change: Callable[[RunInfo], None]
    ) -> None:
        self._facts, self._run, self._writer = RunFacts(info), run, writer
        self._on_change = on_change
        self._is_open = False
        self._last_look = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def info(self) -> RunInfo:
        return self._facts.info

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._drive(), name=f"run {self.info.id}")
        return self._task

    async def stop(self) -> None:
        """Ends the agent and everything that it has started; its last events still arrive."""
        if not self.info.is_live or self._task is None:
            return
        self._change(status="stopping")
        if self._is_open:
            await self._run.cancel()
        else:
            # Nothing can be asked to stop yet: the start itself is given up.
            self._task.cancel()

    async def _drive(self) -> None:
        try:
            async with self._run as live:
                self._is_open = True
                while events := await live.read():
                    await self._take(events)
        except asyncio.CancelledError:
            await self._end("interrupted", None)
            raise
        except GeminorumError as error:
            await self._end("error", Error(error.message, error.code, hint=error.hint))
        except Exception as error:
            _log.error("a run failed for a reason of ours\n%s", traceback_of(error))
            await self._end("error", Error(f"{type(error).__name__}: {error}", "BUG"))

    async def _take(self, events: Sequence[Event]) -> None:
        self._facts.add(events)
        if self.info.is_live:
            self._look_at_bill()
            self._on_change(self.info)
            await self._writer.add(self.info, events)
        else:
            await self._write_end(events)

    async def _write_end(self, events: Sequence[Event]) -> None:
        """Says that the run is over once it can be read to its end."""
        try:
            await self._writer.add(self.info, events)
            await self._writer.until_written(self.info.id)
        finally:
            self._on_change(self.info)

    def _look_at_bill(self) -> None:
        """What it has consumed so far, as far as that is known."""
        now = time.monotonic()
        if now - self._last_look < _BILL_SECONDS:
            return
        self._last_look = now
        used, usd = self._run.used(), self._run.spent()
        tokens = used.total if used else None
        self._facts.change(tokens=tokens, usd=None if usd is None else float(usd))

    async def _end(self, status: Status, problem: Error | None) -> None:
        """Ends a run that could not say itself how it ended."""
        if not self.info.is_live:
            return
        now = now_ms()
        seconds = (now - self.info.started) / 1000
        end = Done(status, timestamp=now, duration=seconds, session_id=self.info.session_id)
        events: list[Event] = [msgspec.structs.replace(problem, timestamp=now)] if problem else []
        await self._take([*events, end])

    def _change(self, **changes: Any) -> None:
        self._facts.change(**changes)
        self._on_change(self.info)
