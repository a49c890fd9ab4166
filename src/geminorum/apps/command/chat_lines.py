"""Where a chat's lines come from: a person with line editing and history, or a pipe."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from geminorum.apps.command.show import is_interactive

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


class Lines(Protocol):
    """Asks for a line. EOFError: there are no more. KeyboardInterrupt: Ctrl-C."""

    interactive: bool

    def calm_between_turns(self) -> AbstractContextManager[None]:
        """In this block Ctrl-C counts at a prompt and in a turn, and in the moment between it does
        nothing: who wanted to stop a turn that has just ended has not had enough of the chat."""

    async def prompt(self) -> str: ...
    async def answer(self, question: str) -> str: ...


def lines_of(words: Sequence[str]) -> Lines:
    """The lines of whoever is there; `words` are completed with the Tab key."""
    return Typed(words) if is_interactive() else Piped()


class Piped:
    """Lines from a pipe, or from a terminal that can do no more than lines."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty()

    def calm_between_turns(self) -> AbstractContextManager[None]:
        return _on_ctrl_c(lambda: None) if self.interactive else nullcontext()

    async def prompt(self) -> str:
        return self._line("> " if self.interactive else "")

    async def answer(self, question: str) -> str:
        return self._line(question)

    def _line(self, mark: str) -> str:
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


class Typed:
    """A person at a terminal."""

    def __init__(self, words: Sequence[str]) -> None:
        self.interactive = True
        self._words = words
        self._session: PromptSession[str] | None = None

    def calm_between_turns(self) -> AbstractContextManager[None]:
        loop = asyncio.get_running_loop()
        return _on_ctrl_c(lambda: loop.call_soon_threadsafe(self._pressed))

    def _pressed(self) -> None:
        """A signal at a prompt, where Ctrl-C is a key, is as good as the key."""
        app = self._session.app if self._session else None
        if app and app.future and not app.future.done():
            app.exit(exception=KeyboardInterrupt())

    async def prompt(self) -> str:
        if self._session is None:
            self._session = _session(self._words)
        # Not prompt_toolkit's own handling of Ctrl-C by signal: in its mode that is a key.
        try:
            return await self._session.prompt_async([("bold ansicyan", "> ")], handle_sigint=False)
        except KeyboardInterrupt:
            if self._session.default_buffer.text:
                return ""  # As in a shell: the line is dropped, and the chat goes on.
            raise

    async def answer(self, question: str) -> str:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app_session
        from prompt_toolkit.input.typeahead import clear_typeahead

        # What was typed before the question was there is no answer to it.
        clear_typeahead(get_app_session().input)
        asked: PromptSession[str] = PromptSession()
        return await asked.prompt_async([("bold", question)], handle_sigint=False)


@contextmanager
def _on_ctrl_c(do: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda *_: do())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _session(words: Sequence[str]) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import WordCompleter

    return PromptSession(
        history=_history(),
        completer=WordCompleter(list(words), sentence=True),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        key_bindings=_keys(),
        enable_open_in_editor=True,
    )


def _keys() -> Any:
    """Alt-Enter begins a new line; Enter sends."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    return keys


def _history() -> Any:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path = history_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    with suppress(OSError):
        path.chmod(0o600)
    return FileHistory(str(path))


def history_path() -> Path:
    """Where what was typed is kept, for the next chat's arrow keys."""
    from platformdirs import user_state_path

    return user_state_path("geminorum", appauthor=False) / "chat-history"
