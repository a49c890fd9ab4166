"""A child process that is spoken to for as long as it lives: lines in, lines out.

Its stdout is a pipe and not a file: it speaks for hours, a file would grow forever, and what the
Gemini CLI loses through a pipe it loses only at its exit, when nobody waits for a line any more
(docs/decisions/0009-a-warm-process-has-a-pipe.md). Whatever comes is taken at once, so a slow
consumer of one session never holds up the others.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from geminorum.transports.process.marked_tree import marked
from geminorum.transports.process.tree import (
    STDERR_KEPT,
    Capture,
    HeadAndTail,
    ProcessTree,
    start_program,
)

_LAST_BYTES = 0.2
"""Seconds for the rest of its words after a process has ended; a grandchild may hold the pipe."""
_MANNERS = 0.3
"""Seconds for a process to exit by itself after the end of its input."""
_LARGEST_PIPE = 1024 * 1024
"""Bytes that a pipe holds at most. Something that outlived the process may go on writing."""


class PipedChild(ProcessTree):
    """A process with a pipe each way; `hear` gets its bytes, `ended` one call when it is over."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        grace: float,
        kept: Sequence[int] = (),
        hear: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        run_id = uuid.uuid4().hex
        with ExitStack() as opened:
            self._log = opened.enter_context(closing(Capture()))
            self._from, theirs_out = _pipe(opened)
            theirs_in, self._to = _pipe(opened)
            program = start_program(
                command,
                cwd=cwd,
                env=marked(env, run_id),
                stdio=(theirs_in.fileno(), theirs_out.fileno(), self._log.writer),
                run_id=run_id,
                kept=kept,
            )
            self._log.close_writer()
            theirs_in.close()
            theirs_out.close()
            opened.pop_all()
        super().__init__(program, run_id, grace)
        self._hear, self._ended = hear, ended
        self._over = False
        self._last_words: HeadAndTail | None = None
        """What it complained about, once it is gone."""
        self._silence = asyncio.Event()
        self._ends: list[_End] = []
        self._input: asyncio.WriteTransport | None = None
        self._end: int | None = None

    async def __aenter__(self) -> PipedChild:
        loop = asyncio.get_running_loop()
        try:
            _, ear = await loop.connect_read_pipe(lambda: _Ear(self), self._from)
            self._ends.append(ear)
            self._input, mouth = await loop.connect_write_pipe(_End, self._to)
            self._ends.append(mouth)
        except BaseException:
            self.kill()  # There will be no __aexit__ to end it.
            self._close()
            raise
        self._watch_for_end(loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._leave_by_itself()
        finally:
            # Whoever cancels a second time, as anyio's scopes do, has no patience, but the process
            # ends all the same.
            try:
                await self.stop()
            finally:
                self._close()

    def discard(self) -> None:
        """Ends a process that will not be used."""
        self.kill()
        for pipe in (self._to, self._from):
            pipe.close()
        self._log.close()

    def write(self, data: bytes) -> None:
        """Queues the bytes. Drops them if the process is gone; its end is reported elsewhere."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(data)

    def stderr(self, clean: Callable[[str], str] = str, start: int = 0) -> str:
        """What it complained about since `start`, a size that `log_size` once had."""
        words = self._last_words or self._log.head_and_tail(STDERR_KEPT, start)
        return words.cleaned(clean)

    def log_size(self) -> int:
        return self._log.size() if self._log.reader >= 0 else 0

    async def stop(self) -> None:
        """TERM, then KILL after the grace, for the whole tree; then its last words are heard."""
        try:
            await super().stop()
        finally:
            self.drain()

    def heard(self, data: bytes) -> None:
        self._hear(data)

    def on_end(self) -> None:
        self._silence.set()
        if not self._over:
            self._over = True
            self._ended()

    def drain(self) -> None:
        """Takes what is left in the pipe. No await, so a cancellation loses nothing."""
        pipe = self._from
        if pipe.closed or sys.platform == "win32":
            return  # On Windows a pipe cannot be asked without waiting for it.
        left = _LARGEST_PIPE
        with suppress(OSError):
            while left > 0 and not os.get_blocking(pipe.fileno()):
                data = os.read(pipe.fileno(), left)
                if not data:
                    return
                left -= len(data)
                self.heard(data)

    async def _leave_by_itself(self) -> None:
        """Without anybody to talk to, an idle CLI ends in 0.1 s and saves what it has to."""
        if self._input is not None:
            self._input.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_MANNERS):
                await self._silence.wait()

    def _watch_for_end(self, loop: asyncio.AbstractEventLoop) -> None:
        """The end of stdout is the end, unless something else keeps the pipe open."""
        self._end = self._program.end_fd()
        if self._end is not None:
            with suppress(NotImplementedError, OSError):
                loop.add_reader(self._end, self._process_ended)

    def _process_ended(self) -> None:
        assert self._end is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._end)
        loop.call_later(_LAST_BYTES, self.on_end)

    def _close(self) -> None:
        if self._end is not None:
            with suppress(Exception):
                asyncio.get_running_loop().remove_reader(self._end)
            os.close(self._end)
            self._end = None
        self.on_end()  # A caller that still waits for an answer would wait forever.
        for end in self._ends:
            end.hang_up()
        for pipe in (self._to, self._from):
            pipe.close()
        self._last_words = self._log.head_and_tail(STDERR_KEPT)
        self._log.close()


def _pipe(opened: ExitStack) -> tuple[FileIO, FileIO]:
    reader, writer = os.pipe()
    return (
        opened.enter_context(FileIO(reader, "r")),
        opened.enter_context(FileIO(writer, "w")),
    )


class _End(asyncio.Protocol):
    """Our end of a pipe."""

    def __init__(self) -> None:
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def hang_up(self) -> None:
        """At once: what a process has not read by now is of no use to it."""
        transport = self._transport
        if transport is None or (transport.is_closing() and not _has_unsent(transport)):
            # asyncio would call `connection_lost` once more, on a transport that is gone.
            return
        leave = getattr(transport, "abort", transport.close)
        leave()


class _Ear(_End):
    def __init__(self, child: PipedChild) -> None:
        super().__init__()
        self._child = child

    def data_received(self, data: bytes) -> None:
        self._child.heard(data)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._child.on_end()


def _has_unsent(transport: Any) -> bool:
    """Does it stay open, though it is closing, to write what it still has?"""
    unsent = getattr(transport, "get_write_buffer_size", lambda: 0)
    return bool(unsent())
