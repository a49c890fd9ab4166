"""A shell command to the commands in it, each of which a policy has a word on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

_GRAMMAR = {"if", "for", "while", "until", "case", "function", "select", "{", "!", "[["}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}


class ShellLine(NamedTuple):
    commands: tuple[str, ...]
    """Also those inside `$(…)`, backticks and `bash -c '…'`."""
    redirects: bool
    """Does any of it read from a file or write to one?"""


class _TooClever(Exception):
    """More of the shell's grammar than is understood here."""


def shell_line(text: str) -> ShellLine | None:
    """None for what is not understood: a here-document, a loop, a quote that never ends.

    It errs on that side: whoever asks must then not take the command for harmless.
    """
    try:
        scan = _Scan(text)
        scan.run()
    except (_TooClever, RecursionError):
        return None
    return ShellLine(tuple(scan.commands), scan.redirects) if scan.commands else None


class _Scan:
    """Walks over the text once; `at` is where it stands, `start` where the command began."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.commands: list[str] = []
        self.redirects = False
        self._at = self._start = 0
        self._in_double = False
        self._steps: dict[str, Callable[[], None]] = {
            "\\": lambda: self._move(2),
            "'": self._single,
            '"': self._double,
            "`": self._backticks,
            "$": self._dollar,
            "#": self._comment,
            **dict.fromkeys("<>", self._arrow),
            **dict.fromkeys(";|\n", self._end),
            "&": self._ampersand,
            **dict.fromkeys("()", self._refuse),
        }

    def run(self) -> None:
        while self._at < len(self.text):
            mark = self.text[self._at]
            active = mark in '\\"`$' if self._in_double else mark in self._steps
            if active:
                self._steps[mark]()
            else:
                self._move(1)
        if self._in_double:
            raise _TooClever
        self._end()

    def _move(self, steps: int) -> None:
        self._at += steps

    def _refuse(self) -> None:
        raise _TooClever

    def _end(self) -> None:
        command = self.text[self._start : self._at].strip()
        self._move(1)
        self._start = self._at
        if command:
            self._add(command)

    def _add(self, command: str) -> None:
        if command.split()[0] in _GRAMMAR:
            raise _TooClever
        self.commands.append(command)
        for inner in _wrapped(command):
            self._nested(inner)

    def _nested(self, text: str) -> None:
        scan = _Scan(text)
        scan.run()
        self.commands += scan.commands
        self.redirects |= scan.redirects

    def _single(self) -> None:
        self._at = self._first("'", self._at + 1) + 1

    def _double(self) -> None:
        self._in_double = not self._in_double
        self._move(1)

    def _backticks(self) -> None:
        end = self._first("`", self._at + 1)
        self._nested(self.text[self._at + 1 : end])
        self._at = end + 1

    def _dollar(self) -> None:
        if self.text[self._at + 1 : self._at + 2] == "(":
            self._parenthesis(self._at + 2)
        else:
            self._move(1)

    def _parenthesis(self, start: int) -> None:
        """The commands up to the closing one. Arithmetic, and quotes with a `)`, are too clever."""
        depth, at = 1, start
        while depth:
            at = self._first("()", at)
            depth += 1 if self.text[at] == "(" else -1
            at += 1
        self._nested(self.text[start : at - 1])
        self._at = at

    def _arrow(self) -> None:
        if self.text.startswith("<<", self._at):
            raise _TooClever
        self.redirects = True
        if self.text[self._at + 1 : self._at + 2] == "(":
            self._parenthesis(self._at + 2)
        else:
            self._move(1)

    def _ampersand(self) -> None:
        # `2>&1` and `&>` write; they do not begin another command.
        beside = self.text[self._at - 1 : self._at] + self.text[self._at + 1 : self._at + 2]
        if self._at and ">" in beside:
            self._move(1)
        else:
            self._end()

    def _comment(self) -> None:
        before = self.text[self._at - 1 : self._at]
        if before and not before.isspace():
            self._move(1)
        else:
            raise _TooClever

    def _first(self, marks: str, start: int) -> int:
        found = re.compile(f"[{re.escape(marks)}]").search(self.text, start)
        if found is None:
            raise _TooClever
        return found.start()


def _wrapped(command: str) -> list[str]:
    """What a shell is told to run by `-c`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise _TooClever from error
    name = words[0].rpartition("/")[2] if words else ""
    if name not in _SHELLS or len(words) < 3 or not re.fullmatch(r"-\w*c", words[1]):
        return []
    return [words[2]]
