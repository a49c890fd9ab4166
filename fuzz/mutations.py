"""Seeds to hostile inputs, by their bytes and by their structure."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import tomli_w
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from fuzz.target import Target

T = TypeVar("T")
Mutation: TypeAlias = Callable[["Choices", bytes, Target], bytes]
Path: TypeAlias = tuple[str | int, ...]

_LONG = 70_000
"""More than any buffer that is read at a time."""
_MAX_BYTES = 100_000
FRAGMENTS: tuple[bytes, ...] = (
    *(b"0", b"-1", b"1.5", b"1e999", b"-1e308", b"1e308", b"NaN", b"01", b"-", b"true", b"null"),
    *(b"18446744073709551616", b"-9223372036854775809", b"9" * 400, b"9" * 5_000),
    *(b'""', b'"a"', b'"\\u0000"', b'"\\ud83d"', b'"\\udc00\\ud83d"', b'"\xed\xa0\x80"'),
    *(b'"\xff"', b'"\\"', b'"\n"', b'"\xe2\x80\xa8"', b'"NaN"', b'"Infinity"', b'"1e9999999999"'),
    *(b"[]", b"{}", b"[[]]", b"[null]", b'{"":0}', b'{"a":1,"a":2}', b'["a",1,{}]', b'{"text":7}'),
    *(b'"9999-12-31T23:59:59.999-23:59"', b'"0001-01-01T00:00:00+23:59"', b'"2026-02-30"'),
    b'"' + b"x" * _LONG + b'"',
)
"""JSON that is seldom what is wanted, and some that is none."""
BYTES: tuple[bytes, ...] = (
    *(b"\0", b"\n", b"\r\n", b"\r", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xc2\x85"),
    *(b"\\", b'"', b"'", b"{", b"}", b"[", b"]", b"(", b")", b",", b":", b"#", b"=", b"*", b" "),
    *(b"\xe2\x80\xa8", b"/*", b"//", b"---\n", b"\\ud800", b"__", b"\t", b"%", b"\x1b[31m"),
    *(b" " * 3_000, b"\n" * 3_000, b"a" * _LONG),
)
_DEPTHS = (1, 3, 60, 150, 200, 250, 300, 400, 445, 450, 600, 800, 850, 890, 895, 897, 899, 3_000)
_TOML_VALUES: tuple[Any, ...] = (0, -1, 1.5, 10**30, "", "\0", "*", True, [], {}, [{}], "a" * 3_000)
_MAX_DEPTH = 12
_HERE = "\ue000here\ue000"


class Choices:
    """Where numbers come from: a seeded generator for `make fuzz`, hypothesis for the tests."""

    def __init__(self, number: Callable[[int], int]) -> None:
        self.number = number
        """A number from 0 to the given one."""

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(len(options) - 1)]


def mutated(target: Target, choices: Choices) -> bytes:
    """A seed of the target after one to four changes."""
    data = choices.pick(target.seeds)
    for _ in range(choices.number(3) + 1):
        data = choices.pick(_MUTATIONS)(choices, data, target)[:_MAX_BYTES]
    return data


def by_chance(chance: random.Random) -> Choices:
    return Choices(lambda highest: int(chance.random() * (highest + 1)))


def by_hypothesis(target: Target) -> SearchStrategy[bytes]:
    """Hypothesis draws numbers only: it would look at every value of a strategy of long inputs."""

    @st.composite
    def inputs(draw: DrawFn) -> bytes:
        return mutated(target, Choices(lambda highest: draw(st.integers(0, highest))))

    return inputs()


# ---- by bytes


def _flip(choices: Choices, data: bytes, target: Target) -> bytes:
    at, bit = _place(choices, data), choices.number(7)
    return data[:at] + bytes(byte ^ (1 << bit) for byte in data[at : at + 1]) + data[at + 1 :]


def _cut(choices: Choices, data: bytes, target: Target) -> bytes:
    start, end = sorted((_place(choices, data), _place(choices, data)))
    return choices.pick((data[:start] + data[end:], data[:end]))


def _duplicate(choices: Choices, data: bytes, target: Target) -> bytes:
    start, end = sorted((_place(choices, data), _place(choices, data)))
    times = choices.pick((2, 3, 50))
    return data[:start] + data[start:end] * times + data[end:]


def _splice(choices: Choices, data: bytes, target: Target) -> bytes:
    other = choices.pick(target.seeds)
    return data[: _place(choices, data)] + other[_place(choices, other) :]


def _insert(choices: Choices, data: bytes, target: Target) -> bytes:
    at, piece = _place(choices, data), choices.pick(BYTES + target.words)
    instead = choices.pick((0, 1, len(piece)))
    return data[:at] + piece + data[at + instead :]


def _place(choices: Choices, data: bytes) -> int:
    return choices.number(len(data))


# ---- by lines


def _lines_changed(choices: Choices, data: bytes, target: Target) -> bytes:
    lines = data.split(b"\n")
    one, other = (choices.number(len(lines) - 1) for _ in range(2))
    match choices.pick(("drop", "repeat", "swap", "move", "foreign")):
        case "drop":
            del lines[one]
        case "repeat":
            lines[one:one] = [lines[one]] * choices.pick((1, 2, 30))
        case "swap":
            lines[one], lines[other] = lines[other], lines[one]
        case "move":
            lines.insert(other, lines.pop(one))
        case _:
            lines[one] = choices.pick(choices.pick(target.seeds).split(b"\n"))
    return b"\n".join(lines)


# ---- by structure


def _restructured(choices: Choices, data: bytes, target: Target) -> bytes:
    """One value of a document in the data takes another shape."""
    if target.shape == "toml":
        return _toml_restructured(choices, data)
    if (document := _parsed(data)) is not None:
        return _changed(choices, document)
    lines = data.split(b"\n")
    number = choices.number(len(lines) - 1)
    # A line of a server-sent event has a word before its JSON.
    before, brace, rest = lines[number].partition(b"{")
    document = _parsed(brace + rest)
    if document is None:
        return _insert(choices, data, target)
    lines[number] = before + _changed(choices, document)
    return b"\n".join(lines)


def _changed(choices: Choices, document: Any) -> bytes:
    paths = list(_paths(document))
    path = choices.pick(paths)
    value, key = _at(document, path), choices.pick(_keys(paths))
    fragment = choices.pick((_odd, _nested, _moved, _grown))(choices, value, document, key)
    if path and isinstance(path[-1], str) and choices.pick((True, False)):
        # The same value under another name that means something.
        path = choices.pick(((*path[:-1], key), path))
    raw = json.dumps(_replaced(document, path, _HERE), ensure_ascii=choices.pick((True, False)))
    marks = (json.dumps(_HERE), json.dumps(_HERE, ensure_ascii=False))
    whole = raw.encode("utf-8", "surrogatepass")
    for mark in marks:
        whole = whole.replace(mark.encode(), fragment)
    return whole


def _odd(choices: Choices, value: Any, document: Any, key: str) -> bytes:
    return choices.pick(FRAGMENTS)


def _nested(choices: Choices, value: Any, document: Any, key: str) -> bytes:
    """The value in lists or objects without end; perhaps nothing closes them."""
    depth, name = choices.pick(_DEPTHS), json.dumps(key).encode()
    opening, closing = choices.pick(((b"[", b"]"), (b"{" + name + b":", b"}")))
    closed = choices.pick((True, False))
    return opening * depth + _encoded(value) + (closing * depth if closed else b"")


def _moved(choices: Choices, value: Any, document: Any, key: str) -> bytes:
    """Another value of the same document."""
    return _encoded(_at(document, choices.pick(list(_paths(document)))))


def _grown(choices: Choices, value: Any, document: Any, key: str) -> bytes:
    """More of the same: a list of it, an object of it, a text that repeats itself."""
    times = choices.pick((2, 40))
    match value:
        case str():
            return _encoded((value + choices.pick(("", "\n", "__", ": "))) * times)
        case list():
            return _encoded(value * times)
        case _:
            return choices.pick((_encoded([value] * times), _encoded({key: value})))


def _toml_restructured(choices: Choices, data: bytes) -> bytes:
    try:
        document = tomllib.loads(data.decode())
        paths = list(_paths(document))
        value, path = choices.pick(_TOML_VALUES), choices.pick(paths)
        return tomli_w.dumps(_replaced(document, path, value)).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if len(path) > _MAX_DEPTH or not isinstance(value, dict | list):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _paths(inner, (*path, key))


def _keys(paths: list[Path]) -> list[str]:
    return sorted({key for path in paths for key in path if isinstance(key, str)}) or ["a"]


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    known = not isinstance(value, dict) or path[0] in value
    copy[path[0]] = _replaced(value[path[0]], path[1:], new) if known else new
    return copy


_BYTEWISE: tuple[Mutation, ...] = (_flip, _cut, _duplicate, _splice, _insert, _lines_changed)
_MUTATIONS = (*[_restructured] * 5, *_BYTEWISE)
