"""Accepts keywords in the document's spelling (`workingDir`) and refuses unknown ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from geminorum.adapter_parts import snake_case
from geminorum.errors import InvalidOptions


def merged(
    named: Mapping[str, Any], spelled: Mapping[str, Any], others: Iterable[str] = ()
) -> dict[str, Any]:
    """The arguments under their own names.

    `named` holds the parameters, None for those left out; `spelled` all further keywords. Raises
    InvalidOptions for a keyword that is neither a parameter nor one of `others`.
    """
    known = (*named, *others)
    given = {name: value for name, value in named.items() if value is not None}
    for keyword, value in spelled.items():
        name = snake_case(keyword)
        if name not in known:
            raise InvalidOptions(f"unknown keyword {keyword!r}", hint=_nearest(name, known))
        if name in given:
            raise InvalidOptions(f"both {name} and {keyword} are given", hint="write one of them")
        given[name] = value
    return given


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"write one of: {', '.join(known)}"
