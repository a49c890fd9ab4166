"""Write docs/contracts/conformance.md from `clauses.txt` and the docstrings of the tests.

.venv/bin/python tests/conformance.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs/contracts/conformance.md"
NUMBER = re.compile(r"\b(?:S[0-4]|B)-\d+[a-z]?\b")
SHOWN = 2
"""How many tests the page names for each clause."""
PARTS = {
    "S0": ("agent_adapter", "test_contract_agent_adapter"),
    "S1": ("local_adapter", "test_contract_local_adapter"),
    "S2": ("provider_adapter", "test_contract_provider_adapter"),
    "S3": ("agent_cli", "test_contract_agent_cli"),
    "S4": ("response_provider", "test_contract_response_provider"),
    "B": ("Where documents and CLI disagree", ""),
}
HEAD = """\
# Conformance

Each contract follows a public document. This page lists every clause of the five documents, what
geminorum does, and where that differs from the document and why. The clauses B-1 to B-38 settle
what the documents leave open, and where they contradict each other or the real CLI. The tests name
these numbers in their docstrings.

`tests/conformance.py` generates this page from `tests/clauses.txt` and the tests.
"""


@dataclass(frozen=True)
class Clause:
    number: str
    statement: str
    deviation: str = ""


@dataclass(frozen=True)
class Case:
    """A test function, or a test file for what its docstring says of the whole."""

    file: str
    name: str
    docstring: str
    is_extra: bool = False
    """Does it need data of other projects, which a plain clone does not have?"""

    @property
    def numbers(self) -> set[str]:
        return numbers_in(self.docstring)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    tests, parts = all_tests(), list[str]()
    for part, (title, file) in PARTS.items():
        rows = [
            _row(clause, _best(clause, tests, file))
            for clause in clauses()
            if clause.number.startswith(f"{part}-")
        ]
        heading = f"`{title}`" if file else title
        table = ["| clause | geminorum | deviation | tests |", "|---|---|---|---|", *rows]
        parts.append("\n".join([f"## {part}: {heading}", "", *table, ""]))
    return "\n".join([HEAD, *parts])


def clauses() -> list[Clause]:
    lines = Path(__file__).with_name("clauses.txt").read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        if line and not line.startswith("#"):
            number, _, rest = line.partition(" ")
            statement, _, deviation = rest.partition(" !! ")
            found.append(Clause(number, statement, deviation))
    return found


@cache
def all_tests() -> tuple[Case, ...]:
    """Read once: to parse every test takes seconds."""
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    for file in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        is_extra = file.parent.name == "other_projects"
        yield Case(file.stem, "", ast.get_docstring(tree) or "", is_extra)
        for node in _defined(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(node.name):
                yield Case(file.stem, node.name, ast.get_docstring(node) or "", is_extra)


def _defined(scope: ast.Module | ast.ClassDef) -> Iterator[ast.stmt]:
    """What stands in a module and in its classes: tests stand nowhere else."""
    for node in scope.body:
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _defined(node)


@cache
def numbers_in(text: str) -> set[str]:
    """The clauses that a docstring names; "S0-1 … S0-3" names three."""
    found = set(NUMBER.findall(text))
    for part, first, last in re.findall(r"\b(S[0-4]|B)-(\d+) … (?:S[0-4]|B)-(\d+)", text):
        found |= {f"{part}-{number}" for number in range(int(first), int(last) + 1)}
    return found


def _is_test(name: str) -> bool:
    return name.startswith("test_")


def _best(clause: Clause, tests: Iterable[Case], file: str) -> list[Case]:
    """Tests of the clause in a plain clone: whole files last, the contract's own before others,
    and a test of few clauses before one of many."""
    naming = [test for test in tests if clause.number in test.numbers and not test.is_extra]

    def rank(test: Case) -> tuple[bool, bool, int]:
        return not test.name, not test.file.startswith(file), len(test.numbers)

    return sorted(naming, key=rank)[:SHOWN]


def _row(clause: Clause, tests: list[Case]) -> str:
    named = "<br>".join(
        f"`{test.file}`: {test.name.removeprefix('test_').replace('_', ' ') or 'the whole file'}"
        for test in tests
    )
    cells = (clause.number, clause.statement, clause.deviation or "none", named)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    main()
