"""What of a question a page shows: nothing out of sight, and no yes to what is cut off."""

from __future__ import annotations

from geminorum.apps.web.words import cut
from geminorum.inbox import Question
from geminorum.views.html.prose import visible
from geminorum.views.plain_text import without_padding
from geminorum.views.transcript import as_text

_LONGEST = 40_000
"""Characters of a question that a list of them has room for."""


def is_long(question: Question) -> bool:
    """Does a list show a part of it only?"""
    further = sum(len(name) + len(as_text(value)) for name, value in question.further_input.items())
    return len(question.command or "") + len(question.diff or "") + further > _LONGEST


def exposed(text: str, is_all: bool) -> str:
    """The text with nothing that hides, and no padding that would push the rest out of sight."""
    shown = without_padding(visible(text))
    return shown if is_all else cut(shown, _LONGEST)
