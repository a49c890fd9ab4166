"""Inputs that grow by repetition: does the time of a decoder grow faster than they do?"""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import asdict, dataclass

from fuzz.mutations import BYTES
from fuzz.target import Target

_BASE_BYTES = 24_000
_QUICK_SECONDS = 0.03
"""What takes less at four times the base is not looked at closer."""
_MAX_RATIO = 9.0
"""Of the times for four times the input: 4 is linear, 16 is quadratic."""
_TOO_LONG_SECONDS = 3.0
"""No larger input is tried after this."""
_ID = re.compile(rb'("\w*(?:[iI]d|name|Name)"\s*:\s*"[^"]{0,40})"')
_UNITS = (
    *(b"_", b"] (", b"[in ", b"(", b")", b"*", b"\\\\", b'\\"', b" ", b"\\n", b"- ", b"[", b"{"),
    *(b"#", b"'", b":", b",", b"[]", b"[],", b'{"a":', b'"a@@":1,', b"a.", b"**", b"a\n", b" #"),
)


class SuperLinear(AssertionError):
    """Four times the input takes much more than four times as long."""


@dataclass(frozen=True)
class Growth:
    """An input of any size: two of its parts are repeated, `@@` in them is the number."""

    before: bytes
    first: bytes
    second: bytes
    after: bytes

    def input(self, size: int) -> bytes:
        count = max(1, size // (len(self.first) + len(self.second)))
        parts = (_repeated(self.first, count), _repeated(self.second, count))
        return b"".join((self.before, *parts, self.after))

    def encoded(self) -> bytes:
        return json.dumps({k: v.decode("latin-1") for k, v in asdict(self).items()}).encode()


def decoded_growth(data: bytes) -> Growth:
    return Growth(**{name: text.encode("latin-1") for name, text in json.loads(data).items()})


def random_growth(target: Target, chance: random.Random) -> Growth:
    """A part of a seed, or something with a meaning, repeated in its place."""
    seed = chance.choice(target.seeds)
    lines = seed.splitlines(keepends=True)
    at = chance.choice([chance.randrange(len(seed)), *_string_starts(seed)[:200]])
    unit = seed[at : at + chance.randint(1, 30)]
    number = chance.randrange(len(lines))
    line = _numbered(lines[number])
    meaning = (*_UNITS, *BYTES[:-3], *target.words, *target.repeated)
    match chance.choice(("slice", "unit", "units", "lines", "records")):
        case "slice":
            return Growth(seed[:at], unit, b"", seed[at:])
        case "unit":
            return Growth(seed[:at], chance.choice(meaning), b"", seed[at:])
        case "units":
            return Growth(seed[:at], chance.choice(meaning), chance.choice(meaning), seed[at:])
        case "lines":
            other = _numbered(chance.choice(lines))
            return Growth(b"".join(lines[:number]), line, other, b"".join(lines[number + 1 :]))
        case _:
            records = (*target.repeated, line, b"")
            first = chance.choice((*target.repeated, line))
            return Growth(b"".join(lines[:number]), first, chance.choice(records), b"")


def require_linear(target: Target, growth: Growth) -> None:
    """Raises SuperLinear where the ratio is too great at two scales, each the best of three."""
    if _seconds(target, growth.input(4 * _BASE_BYTES)) < _QUICK_SECONDS:
        return
    size = _BASE_BYTES
    ratio, longest = _ratio(target, growth, size)
    if ratio > _MAX_RATIO and longest < _TOO_LONG_SECONDS:
        size *= 2
        ratio, longest = _ratio(target, growth, size)
    # Where the first look was slow by accident, the ratio says nothing.
    if ratio > _MAX_RATIO and longest > _QUICK_SECONDS:
        raise SuperLinear(f"{4 * size:,} bytes take {longest:.2f} s, {ratio:.0f} times {size:,}")


def _ratio(target: Target, growth: Growth, size: int) -> tuple[float, float]:
    short, long = (
        min(_seconds(target, growth.input(times * size)) for _ in range(3)) for times in (1, 4)
    )
    return long / max(short, 1e-6), long


def _seconds(target: Target, data: bytes) -> float:
    start = time.process_time()
    target.attempt(data)
    return time.process_time() - start


def _repeated(unit: bytes, count: int) -> bytes:
    if b"@@" not in unit:
        return unit * count
    return b"".join(unit.replace(b"@@", b"%d" % number) for number in range(count))


def _string_starts(seed: bytes) -> list[int]:
    return [found.end() for found in re.finditer(rb'[:\[,]\s*"', seed)]


def _numbered(line: bytes) -> bytes:
    """The line with other ids at each repetition."""
    return _ID.sub(rb'\1@@"', line)
