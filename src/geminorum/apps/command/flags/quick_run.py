"""Reads `geminorum run …` as it is mostly typed, without Typer.

Typer takes a third of a second to load and to look at all the flags, which is a tenth of a whole
run. So what can only mean one thing is read here, from the same table of flags. Everything else is
Typer's: help, completion, every mistake, and every way of typing that has rules of its own
(`-qf FILE`, `--`, a value that begins with a dash, a flag that is given twice).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from geminorum.apps.command.flags.table import (
    CLI_PATH,
    INBOX,
    OPTIONS_FILE,
    OPTIONS_FLAGS,
    PATIENCE,
    REMIND,
    RUN_FLAGS,
    STALL_TIMEOUT,
    START_TIMEOUT,
    Approval,
    Effort,
    Flag,
    Via,
)

_FLAGS: dict[str, Flag] = {
    **RUN_FLAGS,
    **OPTIONS_FLAGS,
    "options_file": OPTIONS_FILE,
    "cli": CLI_PATH,
    "start_timeout": START_TIMEOUT,
    "stall_timeout": STALL_TIMEOUT,
    "inbox": INBOX,
    "patience": PATIENCE,
    "remind": REMIND,
}
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(["prompt", *_FLAGS]),
    "via": Via.CLI,
    "json": False,
    "quiet": False,
    "offline": False,
    "inbox": False,
}
_COMPLETING = "_GEMINORUM_COMPLETE"


class Unclear(ValueError):
    """Typer has to look at it."""


def run_values(words: Sequence[str]) -> dict[str, Any] | None:
    """The values that Typer would pass to the command; None where only Typer knows."""
    if _COMPLETING in os.environ:
        return None
    try:
        return {**_DEFAULTS, **_given(iter(words))}
    except ValueError:
        return None


def _given(words: Iterator[str]) -> dict[str, Any]:
    spellings = _spellings()
    given: dict[str, Any] = {}
    for word in words:
        if word == "-" or not word.startswith("-"):
            name, value = "prompt", word
        else:
            name, value = _flag_and_value(word, words, spellings)
        if isinstance(value, list):
            value = [*given.pop(name, ()), *value]
        if name in given:
            raise Unclear(word)
        given[name] = value
    return given


class _Spelling(NamedTuple):
    """One way to type a flag."""

    name: str
    kind: Any
    switches_to: bool | None
    """None: a value follows."""


def _spellings() -> dict[str, _Spelling]:
    """All of them, by what is typed."""
    found: dict[str, _Spelling] = {}
    for name, flag in _FLAGS.items():
        is_switch = flag.kind in (bool, bool | None)
        for names in flag.names:
            on, _, off = names.partition("/")
            found[on] = _Spelling(name, flag.kind, True if is_switch else None)
            if off:
                found[off] = _Spelling(name, flag.kind, False)
    return found


def _flag_and_value(
    word: str, following: Iterator[str], spellings: dict[str, _Spelling]
) -> tuple[str, Any]:
    typed, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
    if (flag := spellings.get(typed)) is None:
        raise Unclear(word)
    if flag.switches_to is not None:
        if equals:
            raise Unclear(word)
        return flag.name, flag.switches_to
    text = text if equals else next(following, "")
    if not text or text.startswith("-"):
        raise Unclear(word)
    return flag.name, _READERS[flag.kind](text)


def _whole_number(text: str) -> int:
    # Python itself also takes "1_000" and " 1 ".
    if not (text.isascii() and text.isdigit()):
        raise Unclear(text)
    return int(text)


def _number(text: str) -> float:
    if not (text.isascii() and text.replace(".", "", 1).isdigit()):
        raise Unclear(text)
    return float(text)


# A value that an enumeration has not got is a ValueError, which is unclear enough.
_READERS: dict[Any, Callable[[str], Any]] = {
    str | None: str,
    int | None: _whole_number,
    float | None: _number,
    Path | None: Path,
    Via: Via,
    Effort | None: Effort,
    Approval | None: Approval,
    list[str] | None: lambda text: [text],
    list[Path] | None: lambda text: [Path(text)],
}
