"""A pattern as JSON Schema means it, in ECMAScript's dialect, to the same pattern in Python's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

_Translation: TypeAlias = Callable[[re.Match[str]], str]

_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACES = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e"
    r"\u2030-\u205e\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
_ONLY_IN_PYTHON = {r"\A", r"\Z", r"\a", r"\N", r"\U"}
_CHARACTERS = (
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<point>\\u\{[0-9a-fA-F]{1,6}\})"
    r"|(?P<control>\\c[A-Za-z])"
)
_OUTSIDE = re.compile(
    rf"{_CHARACTERS}|(?P<named>\\k<\w+>)|(?P<back>\\[1-9]\d*)|(?P<escape>\\.)"
    r"|(?P<set>\[\^?(?:\\.|[^\]\\])*\])"
    r"|(?P<group>\(\?(?:[:=!]|<[=!])?)"
    r"|(?P<count>(?:[*+?]|\{\d+(?:,\d*)?\})\??\+?|\{,\d+\})"
    r"|(?P<sign>[.$])",
    re.S,
)
_INSIDE = re.compile(rf"{_CHARACTERS}|(?P<escape>\\.)|(?P<range>--)|(?P<sign>[\[&~|])", re.S)


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern; ValueError for what the dialects do not share and cannot be translated."""
    try:
        return re.compile(_translated(_OUTSIDE, _WORDS, pattern), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _translated(tokens: re.Pattern[str], words: Mapping[str, _Translation], text: str) -> str:
    return tokens.sub(lambda token: words[token.lastgroup or ""](token), text)


def _refuse(token: re.Match[str]) -> str:
    where = token.string[token.start() : token.end() + 9]
    raise ValueError(
        f"{where!r} means different things in different regex engines; write it another way"
    )


def _escape(token: re.Match[str]) -> str:
    text, next_sign = token[0], token.string[token.end() : token.end() + 1]
    if text in _ONLY_IN_PYTHON or (text == r"\0" and next_sign.isdigit()):
        return _refuse(token)
    return {r"\s": f"[{_SPACES}]", r"\S": f"[{_NO_SPACES}]"}.get(text, text)


def _escape_in_set(token: re.Match[str]) -> str:
    return {r"\s": _SPACES, r"\S": _NO_SPACES}.get(token[0]) or _escape(token)


def _set(token: re.Match[str]) -> str:
    match token[0]:
        case "[]":
            return "(?!)"
        case "[^]":
            return "(?s:.)"
        case text:
            start = 2 if text[1] == "^" else 1
            return text[:start] + _translated(_INSIDE, _WORDS_IN_SET, text[start:])


def _group(token: re.Match[str]) -> str:
    if token[0] != "(?":
        return token[0]
    is_name = re.compile(r"<\w+>").match(token.string, token.end())
    return "(?P" if is_name else _refuse(token)


def _count(token: re.Match[str]) -> str:
    # Python has counts that give nothing back, and `{,3}`.
    text = token[0]
    is_strange = text.startswith("{,") or (len(text) > 1 and text.endswith("+"))
    return _refuse(token) if is_strange else text


def _point(token: re.Match[str]) -> str:
    return f"\\U{int(token[0][3:-1], 16):08x}"


def _pair(token: re.Match[str]) -> str:
    high, low = int(token[0][2:6], 16), int(token[0][8:], 16)
    return f"\\U{0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF):08x}"


def _control(token: re.Match[str]) -> str:
    return f"\\x{ord(token[0][2]) & 31:02x}"


def _back(token: re.Match[str]) -> str:
    # A group that took no part is empty to ECMAScript; to Python nothing would match.
    number = token[0][1:]
    return f"(?({number})\\{number})"


def _named(token: re.Match[str]) -> str:
    name = token[0][3:-1]
    return f"(?({name})(?P={name}))"


def _sign(token: re.Match[str]) -> str:
    # Python's `$` fits before a last line end, too, and its `.` knows one line end of four.
    return {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]"}[token[0]]


def _literal(token: re.Match[str]) -> str:
    # Python warns that these may once mean something else.
    return f"\\{token[0]}"


_WORDS_OF_BOTH: dict[str, _Translation] = {"pair": _pair, "point": _point, "control": _control}
_WORDS: dict[str, _Translation] = {
    **_WORDS_OF_BOTH,
    "named": _named,
    "back": _back,
    "escape": _escape,
    "set": _set,
    "group": _group,
    "count": _count,
    "sign": _sign,
}
_WORDS_IN_SET: dict[str, _Translation] = {
    **_WORDS_OF_BOTH,
    "escape": _escape_in_set,
    "range": _refuse,
    "sign": _literal,
}
