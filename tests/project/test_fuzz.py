"""The short form of `make fuzz`: every decoder, fixed seeds, no clock."""

import random

import pytest
from fuzz.driver import Hunt, failure_of, replayed
from fuzz.growth import decoded_growth, random_growth
from fuzz.mutations import by_chance, by_hypothesis, mutated
from fuzz.target import Target
from fuzz.targets import TARGETS
from hypothesis import Phase, given, settings

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
SHORT = settings(
    max_examples=12,
    database=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
)


@EACH
def test_every_recording_is_read(target):
    for seed in target.seeds:
        target.attempt(seed)


@EACH
def test_changed_recordings_raise_only_what_is_documented(target):
    chance = random.Random(15)
    for _ in range(80):
        target.attempt(mutated(target, by_chance(chance)))


@EACH
def test_hypothesis_finds_no_change_that_raises_anything_else(target):
    @SHORT
    @given(by_hypothesis(target))
    def search(data: bytes) -> None:
        target.attempt(data)

    search()


@EACH
def test_recordings_that_grow_raise_only_what_is_documented(target):
    chance = random.Random(15)
    for _ in range(20):
        growth = random_growth(target, chance)
        assert decoded_growth(growth.encoded()) == growth
        target.attempt(growth.input(3_000))


def fails_on_a_brace(data: bytes) -> None:
    if b"}" in data:
        raise KeyError("a brace")


def test_a_defect_is_found_once_shrunk_saved_and_found_again(tmp_path):
    target = Target("broken", fails_on_a_brace, (b'{"a": [1, 2, {"b": "c"}]}',), (ValueError,))
    hunt = Hunt(target, seconds=0)
    for data in (*target.seeds, b"{", b"{}"):
        hunt.try_input(data)
    [finding] = hunt.found.values()
    assert finding.data == b"}"
    file = finding.save(tmp_path)
    assert isinstance(replayed(target, file), KeyError)
    assert "KeyError in test_fuzz.py, fails_on_a_brace" in file.with_suffix(".txt").read_text()


def test_a_documented_error_is_no_defect_and_a_warning_is_one():
    def warns(data: bytes) -> None:
        import warnings

        warnings.warn(data.decode(), stacklevel=1)

    loud = Target("loud", warns, (b"x",), documented_warnings="expected")
    assert failure_of(Target("typed", fails_on_a_brace, (b"}",), (KeyError,)), b"}") is None
    assert isinstance(failure_of(loud, b"surprise"), UserWarning)
    assert failure_of(loud, b"expected") is None
