"""The caller's prompt to the bytes that the CLI reads."""

from __future__ import annotations

import re

from geminorum.errors import InvalidPrompt

LARGEST_PROMPT = 8 * 1024 * 1024
"""The CLI reads this many bytes and drops the rest without a word in its event stream."""

_REFERENCE = re.compile(r"(?<!\\)@(?=\S)")


def encoded(prompt: str, *, literal: bool) -> bytes:
    """What to write to the CLI's stdin; refuses what it would cut or ignore."""
    if not isinstance(prompt, str):
        raise InvalidPrompt(f"the prompt is a {type(prompt).__name__}", hint="pass a string")
    if not prompt.strip():
        raise InvalidPrompt("the prompt is empty", hint="pass some text to run() or ask()")
    data = (as_text(prompt) if literal else prompt).encode("utf-8", "replace")
    if len(data) > LARGEST_PROMPT:
        raise InvalidPrompt(
            f"the prompt has {len(data):,} bytes; the CLI reads {LARGEST_PROMPT:,}",
            hint="put the material into a file in cwd and ask the agent to read it",
        )
    return data


def as_text(prompt: str) -> str:
    """The prompt with `/commands` and `@files` disarmed, so that the CLI sends it as it stands.

    A newline before a slash and a backslash before an at-sign do it; both reach the model.
    """
    disarmed = _REFERENCE.sub(r"\\@", prompt)
    return "\n" + disarmed if disarmed.startswith("/") else disarmed
