"""Two files, as lines, to the hunks of a unified diff; in bounded time, whoever wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Literal, TypeAlias

_BUDGET = 25_000_000
"""Pairs of lines to compare. Lines that repeat just often enough make it that slow: seconds for
these, and hours for a file of a megabyte."""
_CONTEXT_LINES = 3

Lines: TypeAlias = Sequence[str]
Step: TypeAlias = tuple[Literal["equal", "replace", "delete", "insert"], int, int, int, int]
"""As difflib has it: what happens to the lines from here to there, and which become of them."""


class Comparison:
    """Compares many files. Once the budget is spent, what differs is shown as replaced."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._left = budget

    def hunks(self, old: Lines, new: Lines) -> Iterator[str]:
        """The lines of all hunks, each with its sign."""
        for hunk in _Known(self._steps(old, new)).get_grouped_opcodes(_CONTEXT_LINES):
            first, last = hunk[0], hunk[-1]
            yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
            for what, a, b, c, d in hunk:
                yield from _signed(what, old[a:b], new[c:d])

    def _steps(self, old: Lines, new: Lines) -> list[Step]:
        """What is the same at both ends costs nothing."""
        start = _same(old, new)
        end = _same(old[start:][::-1], new[start:][::-1])
        changed = self._between(old[start : len(old) - end], new[start : len(new) - end])
        first: Step = "equal", 0, start, 0, start
        last: Step = "equal", len(old) - end, len(old), len(new) - end, len(new)
        steps = [first, *(_moved(step, start) for step in changed), last]
        return [step for step in steps if step[1] < step[2] or step[3] < step[4]]

    def _between(self, old: Lines, new: Lines) -> list[Step]:
        cost = len(old) * len(new)
        if cost > self._left:
            return [("replace", 0, len(old), 0, len(new))]
        self._left -= cost
        return SequenceMatcher(None, old, new).get_opcodes()


class _Known(SequenceMatcher[str]):
    """Groups steps that are known already."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self._steps = steps

    def get_opcodes(self) -> list[Step]:
        return self._steps


def _same(one: Lines, other: Lines) -> int:
    """How many lines at the start are the same."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _moved(step: Step, lines: int) -> Step:
    what, a, b, c, d = step
    return what, a + lines, b + lines, c + lines, d + lines


def _signed(what: str, old: Lines, new: Lines) -> list[str]:
    if what == "equal":
        return [f" {line}" for line in old]
    return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _range(start: int, stop: int) -> str:
    """As `diff` writes it: lines count from 1, and nothing is after the line before it."""
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"
