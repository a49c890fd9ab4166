"""Everything that the page does with runs: start, find, follow, stop, end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from geminorum import Options, Run, Transport, run
from geminorum.apps.web.runs.board import RunBoard
from geminorum.apps.web.runs.book import RunBook
from geminorum.apps.web.runs.change_signal import ChangeSignal
from geminorum.apps.web.runs.database import Database
from geminorum.apps.web.runs.info import RunInfo, RunLimits, new_id, now_ms
from geminorum.apps.web.runs.live_run import LiveRun
from geminorum.apps.web.runs.writer import BookWriter
from geminorum.apps.web.settings import WebSettings
from geminorum.errors import GeminorumError, InvalidOptions
from geminorum.events import UserMessage
from geminorum.inbox import Inbox

AnyPath: TypeAlias = str | os.PathLike[str]
MAX_LIVE_RUNS = 250
_LOOK_SECONDS = 2.0
"""How often a page says that it is alive, and looks at what others on its database do."""
_END_SECONDS = 30.0
"""For all runs together, when the page ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run that somebody asks for."""

    prompt: str
    options: Options
    via: str = "cli"


class Runs:
    """Keeps the runs of one page; `running()` is its life."""

    def __init__(self, settings: WebSettings, database: Database, inbox: Inbox) -> None:
        self._settings, self._inbox, self._database = settings, inbox, database
        owner = f"{socket.gethostname()}:{os.getpid()}:{new_id()}"
        self.book = RunBook(database, owner)
        self.changes = ChangeSignal()
        self.board = RunBoard(self.changes)
        self._writer = BookWriter(self.book, self._on_written)
        self._live: dict[str, LiveRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await asyncio.to_thread(self.book.open)
        working = [asyncio.create_task(one) for one in (self._writer.work(), self._look_around())]
        try:
            yield
        finally:
            # The page ends, and nobody has stopped its runs: what they ask can still be answered.
            with self._inbox.leaving_questions():
                await self.end_all()
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            with suppress(GeminorumError):
                await asyncio.to_thread(self.book.close)

    async def start(self, request: RunRequest) -> RunInfo:
        """Starts a run; it goes on until its end, or until the page ends."""
        self._refuse_reach(request.options.include_directories, request.options.approval)
        live = run(request.prompt, request.options, via=self._transport(request))
        return await self.start_prepared(live, _info_of(request))

    async def start_prepared(self, live: Run, info: RunInfo) -> RunInfo:
        """Starts a run that somebody else has put together."""
        if self.changes.is_over or len(self._live) >= MAX_LIVE_RUNS:
            raise GeminorumError(
                f"{len(self._live)} runs go on already", hint="stop one, or wait for its end"
            )
        self._refuse_reach([info.folder], info.approval)
        prompt = UserMessage(info.prompt, timestamp=info.started)
        await asyncio.to_thread(self.book.enter, info, [prompt])
        self.board.put(info)
        started = self._live[info.id] = LiveRun(info, live, self._writer, self.board.put)
        task = started.start()
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._forget(info.id, task))
        return info

    async def find(self, id: str) -> RunInfo | None:
        return self.board.get(id) or await asyncio.to_thread(self.book.run, id)

    async def list(self, before: int | None = None, limit: int = 50) -> Sequence[RunInfo]:
        """The newest first."""
        kept = await asyncio.to_thread(self.book.runs, before, limit)
        return [self.board.get(info.id) or info for info in kept]

    async def stop(self, id: str) -> bool:
        """Ends a run; returns whether it is one of this page that goes on."""
        live = self._live.get(id)
        if live is not None:
            await live.stop()
        return live is not None

    async def remove(self, id: str) -> bool:
        """Forgets a run that is over, with its events."""
        is_removed = await asyncio.to_thread(self.book.remove, id)
        if is_removed:
            self.board.remove(id)
        return is_removed

    async def end_all(self) -> None:
        """Ends every run with everything that it has started, and all waiting for changes."""
        self.changes.end()
        tasks = [*self._tasks]
        stops = [asyncio.create_task(live.stop()) for live in self._live.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_END_SECONDS)
            for task in late:
                task.cancel()
        await asyncio.gather(*stops, *tasks, return_exceptions=True)
        await self._writer.flush()

    @property
    def problem(self) -> GeminorumError | None:
        """Why nothing can be recorded at the moment."""
        return self._writer.problem

    def _transport(self, request: RunRequest) -> Transport:
        known = self._settings.transports
        if request.via not in known:
            raise InvalidOptions(f"there is no transport {request.via!r}", hint=", ".join(known))
        return self.asking(known[request.via], request.options)

    def asking(self, transport: Transport, options: Options) -> Transport:
        """The transport with questions that go to the inbox, unless it has none."""
        deciding = getattr(transport, "deciding", None)
        if deciding is None or options.approval == "yolo":
            return transport
        return cast("Transport", deciding(self._inbox))

    def _refuse_reach(self, folders: Iterable[AnyPath], approval: str | None) -> None:
        """Refuses an agent that could write what it is asked for, and read the keys of others."""
        if approval != "yolo" and any(self._database.lies_in(Path(one)) for one in folders):
            text = f"the agent may write to the page's database {self._database.shown!r}"
            raise InvalidOptions(text, hint="start `geminorum web` with a --db outside its folders")

    def _on_written(self, infos: Sequence[RunInfo]) -> None:
        self.changes.announce()

    def _forget(self, id: str, task: asyncio.Task[None]) -> None:
        self._live.pop(id, None)
        self._tasks.discard(task)

    async def _look_around(self) -> None:
        """Says that this page is alive, and finds what others have written."""
        seen = await asyncio.to_thread(self.book.last)
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            # The writer reports a database that is away.
            with suppress(GeminorumError):
                await asyncio.to_thread(self.book.hear)
                for seq, info in await asyncio.to_thread(self.book.changed_elsewhere, seen):
                    seen = max(seen, seq)
                    self.board.put(info)


def _info_of(request: RunRequest) -> RunInfo:
    options = request.options
    return RunInfo(
        id=new_id(),
        prompt=request.prompt,
        folder=str(Path(options.cwd or "").absolute()),
        via=request.via,
        model=options.model,
        approval=options.approval,
        started=now_ms(),
        resumes=options.resume,
        limits=RunLimits.of(options),
    )
