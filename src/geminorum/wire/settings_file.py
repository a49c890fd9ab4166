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
