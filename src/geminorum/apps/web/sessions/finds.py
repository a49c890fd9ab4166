"""The words around a find, so that a list of results can be read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import geminorum
from geminorum import Text, UserMessage
from geminorum.errors import GeminorumError
from geminorum.sessions import SessionInfo

_AROUND = 60
_MAX_BYTES = 4 * 1024 * 1024
"""Larger files are not read a second time for a line of their text."""


class Find(NamedTuple):
    """Where a session says what was searched for."""

    who: str
    before: str
    match: str
    after: str


def finds_in(found: Iterable[SessionInfo], text: str) -> dict[str, Find]:
    """The first find in each session, by its id. Reads the sessions."""
    finds = ((info.id, _first_find(info, text)) for info in found if info.size <= _MAX_BYTES)
    return {name: find for name, find in finds if find is not None}


def _first_find(info: SessionInfo, text: str) -> Find | None:
    wanted = re.compile(re.escape(text), re.IGNORECASE)
    try:
        for event in geminorum.sessions.load(info).events():
            if isinstance(event, Text | UserMessage) and (match := wanted.search(event.text)):
                who = "you" if isinstance(event, UserMessage) else "Gemini"
                return find_around(who, match)
    except GeminorumError:
        pass  # The list has said already what is wrong with it.
    return None


def find_around(who: str, match: re.Match[str]) -> Find:
    """The find with some words on both sides, on one line."""
    whole, start, end = match.string, match.start(), match.end()
    before = whole[max(0, start - _AROUND) : start]
    after = whole[end : end + _AROUND]
    return Find(
        who,
        ("…" if start > _AROUND else "") + _flat(before),
        _flat(match[0]),
        _flat(after) + ("…" if end + _AROUND < len(whole) else ""),
    )


def _flat(text: str) -> str:
    return re.sub(r"\s", " ", text)
