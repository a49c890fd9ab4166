"""Prompts that begin like a command of the CLI, as plain text and back."""

from __future__ import annotations

import re

_GUARD = "\u200b"
"""Has no width, and the CLI does not trim it as it trims spaces."""
# The CLI runs what begins with a slash, and leaves all of these out of a history that it resumes.
_COMMAND_LIKE = re.compile(r"[\s\ufeff]*(?:[/?]|<session_context>|<hook_context>)")
_WARM_COMMAND_LIKE = re.compile(rf"{_COMMAND_LIKE.pattern}|[\s\ufeff]*\$")


def guarded(text: str) -> str:
    """The text as the headless CLI has to get it, to send and to keep it as text."""
    return _GUARD + text if _COMMAND_LIKE.match(text) else text


def guarded_for_warm(text: str) -> str:
    """The same for the warm CLI, which also runs what begins with a dollar sign."""
    return _GUARD + text if _WARM_COMMAND_LIKE.match(text) else text


def unguarded(text: str) -> str:
    """The text as its author wrote it."""
    plain = text.removeprefix(_GUARD)
    return plain if _WARM_COMMAND_LIKE.match(plain) else text
