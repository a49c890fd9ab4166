"""The text of a settings file of the CLI to its settings, JSON with comments; what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# A string, which may hold what looks like a comment; or a comment. What is never closed ends with
# the text: to look for its end from every place anew would take time beyond all bounds.
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)|//[^\n]*|/\*(?:.*?\*/|.*\Z)', re.S)


def parsed_settings(text: str) -> dict[str, Any]:
    """The settings in a file's text; a ValueError says what is wrong with it, and where."""
    # Comments become blanks of the same length, so that places in the error are places in the file.
    bare = _STRING_OR_COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else _blank(m[0]), text)
    data = _loaded(bare) if bare.strip() else {}
    if not isinstance(data, dict):
        raise ValueError(f"a JSON object is wanted, not a {type(data).__name__}")
    return data


def limits_turns(settings: Mapping[str, Any]) -> bool:
    """Do they limit the number of the model's answers?"""
    model = settings.get("model")
    most = model.get("maxSessionTurns") if isinstance(model, Mapping) else None
    return isinstance(most, int | float) and most >= 0


def merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Both, with `top` winning, dictionaries merged to any depth."""
    both = dict(base)
    for key, value in top.items():
        below = both.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = merged(below, value)
        both[key] = value
    return both


def with_all_hooks(
    both: Mapping[str, Any], theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[str, Any]:
    """Merged settings with the hooks of both sides, theirs first.

    A hook that guards the user must not go when we add ours.
    """
    their_hooks, our_hooks = _hooks(theirs), _hooks(ours)
    hooks = merged(their_hooks, our_hooks)
    for event, rules in our_hooks.items():
        before = their_hooks.get(event)
        if isinstance(before, list) and isinstance(rules, list):
            hooks[event] = [*before, *rules]
    return {**both, "hooks": hooks} if hooks else dict(both)


def _hooks(settings: Mapping[str, Any]) -> dict[str, Any]:
    hooks = settings.get("hooks")
    return hooks if isinstance(hooks, dict) else {}


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(word: str) -> None:
    """Python takes NaN and Infinity for JSON; the CLI does not."""
    raise ValueError(f"{word} is not JSON")


def _blank(comment: str) -> str:
    return "".join("\n" if letter == "\n" else " " for letter in comment)
