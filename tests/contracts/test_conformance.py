"""The conformance page has every clause of the five contracts, and says what the tests say."""

import re
from pathlib import Path

import pytest

from conformance import NUMBER, PAGE, Case, all_tests, clauses, numbers_in, page

LAST = {"S0": 37, "S1": 72, "S2": 32, "S3": 52, "S4": 41, "B": 38}
BETWEEN = {"S1-71a", "S3-52a", "S4-40a"}
OUTSIDE = re.compile(r"fixtures_[f]older|shared/" + "fixtures")
ANY_NUMBER = re.compile(NUMBER.pattern + r"|\bD-\d+\b")
"""Numbers of clauses, and of the defects that other projects had."""
CLAUSES = {clause.number: clause for clause in clauses()}


def test_every_clause_of_the_contracts_is_listed_once():
    """All numbers without a gap, in our own words."""
    expected = {f"{part}-{n}" for part, last in LAST.items() for n in range(1, last + 1)} | BETWEEN
    assert set(CLAUSES) == expected
    assert len(clauses()) == len(expected)
    assert [one.number for one in clauses() if not one.statement.endswith(".")] == []


def test_a_clause_refers_only_to_clauses_that_exist():
    """A deviation may give another clause as its reason."""
    texts = [f"{one.statement} {one.deviation}" for one in clauses()]
    assert {number for text in texts for number in NUMBER.findall(text)} <= set(CLAUSES)


def test_every_deviation_is_explained():
    """In whole sentences, not by "As above"."""
    told = {one.number: one.deviation for one in clauses() if one.deviation}
    assert [number for number, why in told.items() if not why.endswith(".")] == []
    assert [number for number, why in told.items() if len(words_of(why)) < 5] == []


def test_the_page_is_current():
    """If this fails: .venv/bin/python tests/conformance.py"""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_uses_the_public_word():
    """`Cli`, `Acp` and `Api` are transports; the page shows names of tests, too."""
    assert re.findall(r".*\b[d]oors?\b.*", page(), re.I) == []


@pytest.mark.parametrize("number", CLAUSES)
def test_every_clause_has_a_test_in_a_plain_clone(number):
    """Without the fixtures of other projects in ../shared."""
    naming = [test for test in all_tests() if number in test.numbers and not test.is_extra]
    assert naming, f"no test names {number}"


def test_only_the_extras_read_data_outside_of_the_repository():
    """A plain clone skips no test of the contracts."""
    tests = Path(__file__).parents[1].rglob("test_*.py")
    plain = [file for file in tests if file.parent.name != "other_projects"]
    asking = [file for file in plain if OUTSIDE.search(file.read_text())]
    assert asking == []


def test_the_tests_name_no_clause_that_does_not_exist():
    """A mistyped number would leave its clause without a test."""
    named = {number for test in all_tests() for number in test.numbers}
    assert named - set(CLAUSES) == set()


def test_every_docstring_says_what_is_tested():
    """A reader does not know the numbers by heart."""
    bare = [f"{test.file}::{test.name}" for test in all_tests() if is_bare(test)]
    assert bare == []


def test_no_docstring_only_repeats_the_name_of_its_test():
    """It adds what is checked or why it matters."""
    repeating = [f"{test.file}::{test.name}" for test in all_tests() if is_repetition(test)]
    assert repeating == []


def is_bare(test: Case) -> bool:
    """Has it only numbers, or a number and a word or two?"""
    is_numbered = ANY_NUMBER.search(test.docstring) is not None
    return is_numbered and len(words_of(test.docstring)) < 3


def is_repetition(test: Case) -> bool:
    return bool(test.numbers) and words_of(test.docstring) == words_of(test.name)[1:]


def words_of(text: str) -> list[str]:
    """Its words of two letters and more, without the numbers of clauses."""
    return re.findall(r"[^\W\d_]{2,}", ANY_NUMBER.sub("", text).lower())


def test_a_range_names_all_its_clauses():
    """What stands between the first and the last counts, too."""
    assert numbers_in("S0-1 … S0-3, B-2: text") == {"S0-1", "S0-2", "S0-3", "B-2"}
