"""Hints of the library in the words of the page: its fields, and what to type in a terminal."""

from __future__ import annotations

from geminorum.apps.command.flags.vocabulary import in_flags
from geminorum.hints import render

_FIELDS = {
    "Options.cwd": "“Folder”",
    "Options.model": "“Model”",
    "Options.approval": "“What it may do”",
    "Options.effort": "“Thinking”",
    "Options.resume": "“Session to go on with”",
    "Options.max_budget_usd": "“Budget”",
    "Options.max_turns": "“Model responses at most”",
    "Options.timeout": "“Time limit”",
    "Options.system_prompt": "“Instructions”",
}
_WORDS = {
    "install": "geminorum setup",
    "set_key": "start `geminorum web` with GEMINI_API_KEY=… in its environment",
    "unset": "leave it empty for",
    "sessions.list": "the page Sessions",
    "via.cli": "“Transport” CLI",
    "Cli.executable": "`geminorum web --cli PATH`",
    "Acp.executable": "`geminorum web --cli PATH`",
}


def command_fix(fix: str) -> str:
    """What to type in a terminal, for what cannot be done on the page."""
    return render(fix, in_flags) or fix


def page_hint(hint: str | None) -> str:
    """What to do next, for somebody who sits at the page; empty if only Python could do it."""
    return render(hint, _spoken) or ""


def _spoken(name: str, value: str) -> str | None:
    return _FIELDS.get(name) or _WORDS.get(name)
