"""Lines that a person types at a terminal, with editing and history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from platformdirs import user_state_path
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_session
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings

from geminorum.apps.command.chat.lines import on_ctrl_c


class Typed:
    """A person at a terminal."""

    def __init__(self, words: Sequence[str]) -> None:
        self.interactive = True
        self._words = words
        self._session: PromptSession[str] | None = None

    def calm_between_turns(self) -> AbstractContextManager[None]:
        loop = asyncio.get_running_loop()
        return on_ctrl_c(lambda: loop.call_soon_threadsafe(self._press_ctrl_c))

    def _press_ctrl_c(self) -> None:
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
        # What was typed before the question was there is no answer to it.
        clear_typeahead(get_app_session().input)
        asked: PromptSession[str] = PromptSession()
        return await asked.prompt_async([("bold", question)], handle_sigint=False)


def _session(words: Sequence[str]) -> PromptSession[str]:
    return PromptSession(
        history=_open_history(),
        completer=WordCompleter(list(words), sentence=True),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        key_bindings=_keys(),
        enable_open_in_editor=True,
    )


def _keys() -> Any:
    """Alt-Enter begins a new line; Enter sends."""
    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    return keys


def _open_history() -> Any:
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
    return user_state_path("geminorum", appauthor=False) / "chat-history"
