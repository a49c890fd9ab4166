"""Where a chat's lines come from: a person with line editing and history, or a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from geminorum.apps.command.render.output import is_interactive


class Lines(Protocol):
    """Asks for a line. EOFError: there are no more. KeyboardInterrupt: Ctrl-C."""

    interactive: bool

    def calm_between_turns(self) -> AbstractContextManager[None]:
        """In this block Ctrl-C counts at a prompt and in a turn, and in the moment between it does
        nothing: who wanted to stop a turn that has just ended has not had enough of the chat."""

    async def prompt(self) -> str: ...
    async def answer(self, question: str) -> str: ...


def lines_of(words: Sequence[str]) -> Lines:
    """The lines that the user types; the Tab key completes `words`."""
    if not is_interactive():
        return Piped()
    from geminorum.apps.command.chat.typed_lines import Typed

    return Typed(words)


class Piped:
    """Lines from a pipe, or from a terminal that can do no more than lines."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty()

    def calm_between_turns(self) -> AbstractContextManager[None]:
        return on_ctrl_c(lambda: None) if self.interactive else nullcontext()

    async def prompt(self) -> str:
        return self._read_line("> " if self.interactive else "")

    async def answer(self, question: str) -> str:
        return self._read_line(question)

    def _read_line(self, mark: str) -> str:
        sys.stderr.write(mark)
        sys.stderr.flush()
        # The loop may wait: between turns it has nothing to do. Only Python's own handler breaks
        # off the reading of a line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            line = sys.stdin.readline()
        finally:
            signal.signal(signal.SIGINT, before)
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


@contextmanager
def on_ctrl_c(do: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda *_: do())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
