"""What a chat remembers, and the words that begin with a slash."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text as Line

import geminorum
from geminorum import Event, Result
from geminorum.apps.command.private_files import write_private
from geminorum.apps.command.render import facts
from geminorum.apps.command.render.markdown import Indented

if TYPE_CHECKING:
    from rich.console import Console

    from geminorum.apps.command.run.undo import Copies, Kept

WORDS = {
    "/cost": "what this chat has cost so far",
    "/files": "the files that were written, by turn",
    "/undo": "put back what the last turn's writes changed",
    "/save": "keep the conversation; /save FILE: .md, .html, .jsonl or .json",
    "/resume": "continue a past session of this folder, or of the store",
    "/help": "this list",
    "/quit": "leave; so does Ctrl-D, or Ctrl-C twice",
}
_FORMATS = {".md": "markdown", ".html": "html", ".jsonl": "jsonl", ".json": "claude"}


class Talk:
    """The turns of a chat: what was said, what it cost, what it changed."""

    def __init__(self, copies: Copies, console: Console) -> None:
        self._copies, self._console = copies, console
        self.events: list[Event] = []
        self.results: list[Result] = []
        self._changes: list[list[Kept]] = []
        self._undone: list[str] = []
        self._put_back: set[Path] = set()
        self.session: str | None = None
        """The id of the session of the turns; None until a turn has reported it."""

    def end_turn(self, result: Result) -> None:
        """Take in how a turn ended."""
        self.results.append(result)
        self.session = result.session_id or self.session
        self._changes.append(self._copies.end_turn())

    def move_to(self, session: str, said: Iterable[Event]) -> None:
        """Go on in another session. What was spent and written stays: it is this chat's."""
        self.session, self.events[:] = session, said
        # The agent of another session did not make the changes that were undone.
        self._undone.clear()

    def prompt(self, text: str) -> str:
        """The text for the agent, which has to know which of its writes are undone."""
        if not self._undone:
            return text
        names, self._undone = ", ".join(self._undone), []
        return f"(I have undone your last changes to: {names})\n\n{text}"

    def say(self, text: str, label: str = "") -> None:
        """A line; where a terminal breaks it, it goes on below its text and not below its label."""
        line = Line(facts.printable(text))
        if self._console.is_terminal:
            self._console.print(Indented(line, " " * len(label), first=label))
        else:
            # A pipe has no edge to break lines at.
            self._console.print(f"{label}{line}", soft_wrap=True)

    def command(self, line: str) -> None:
        """Do what a word with a slash asks for."""
        word, _, rest = line.partition(" ")
        acts: dict[str, Callable[[str], None]] = {
            "/cost": self._cost,
            "/files": self._files,
            "/undo": self._undo,
            "/save": self._save,
            "/help": self._help,
        }
        if word in acts:
            acts[word](rest.strip())
        else:
            self._unknown(word)

    def _help(self, _: str) -> None:
        for word, text in WORDS.items():
            self.say(text, f"  {word:<8} ")
        self.say("Alt-Enter begins a new line. Ctrl-C stops a turn. //text sends /text.", "  ")

    def _unknown(self, word: str) -> None:
        near = difflib.get_close_matches(word, WORDS, n=1)
        advice = f"did you mean {near[0]}?" if near else "/help lists them."
        self.say(f"there is no {word}; {advice} To send it as text, write /{word}")

    def _cost(self, _: str) -> None:
        known = [result.cost for result in self.results if result.cost]
        for number, result in enumerate(self.results, 1):
            self.say(" · ".join(facts.facts_of(result)), f"  turn {number}: ")
        if not self.results:
            return self.say("nothing yet: no turn has ended")
        if len(known) < len(self.results):
            return self.say("not known: a turn reported no cost", "  total: ")
        total = sum((cost.usd for cost in known), Decimal())
        about = "" if all(cost.exact for cost in known) else "about "
        return self.say(f"{about}{facts.dollars(total)}", "  total: ")

    def _files(self, _: str) -> None:
        rows = list(self._file_rows())
        for row in rows:
            self.say(row, "  ")
        if not rows:
            self.say("no file was written")

    def _file_rows(self) -> Any:
        for number, (result, kept) in enumerate(zip(self.results, self._changes, strict=True), 1):
            copied = {one.path for one in kept}
            for one in kept:
                mark = "  (undone)" if one.copy in self._put_back else ""
                yield f"turn {number}  {facts.short(one.path)}{mark}"
            for path in facts.written(result.files):
                if Path(path).resolve() not in copied:
                    yield f"turn {number}  {path}  (no copy of what it was: /undo cannot help)"

    def _undo(self, _: str) -> None:
        outcomes = self._copies.undo()
        if not outcomes:
            return self.say("nothing to undo: no turn has written a file that I have a copy of")
        for one in outcomes:
            self.say(f"{facts.short(one.path)}: {one.text}", f"  {'✓' if one.done else '✗'} ")
        self._put_back |= {one.kept.copy for one in outcomes if one.done}
        self._undone += [facts.short(one.path) for one in outcomes if one.done]
        return self.say("(not undone: what shell commands and MCP servers did)", "  ")

    def _save(self, name: str) -> None:
        path = Path(name or f"chat-{datetime.now():%Y%m%d-%H%M%S}.md").expanduser()
        format = _FORMATS.get(path.suffix)
        if format is None:
            return self.say(f"/save FILE, with one of {', '.join(_FORMATS)} at its end")
        try:
            text = geminorum.sessions.export(self.events, format)  # type: ignore[arg-type]
            write_private(path, text, "x")
        except FileExistsError:
            return self.say(f"{path} already exists; name another file")
        except OSError as error:
            return self.say(f"cannot write {path}: {error.strerror}")
        return self.say(f"saved to {path}")
