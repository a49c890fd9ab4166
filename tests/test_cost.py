"""Money: exact arithmetic where the price is known, None where it is not."""

from decimal import Decimal

import pytest

from geminorum.cost import cost_of
from geminorum.events import Tokens, Usage


def usage(**by_model: Tokens) -> Usage:
    return Usage(
        by_model={
            name.replace("_", "-").replace("2-5", "2.5"): share for name, share in by_model.items()
        }
    )


def test_cached_tokens_cost_less_and_thoughts_cost_as_output():
    """B-16: 600 · 0.30 + 400 · 0.03 + 110 · 2.50 dollars per million."""
    share = Tokens(input=1000, cached=400, output=10, thoughts=100, total=1110)
    assert cost_of(usage(gemini_2_5_flash=share)).usd == Decimal("0.000467")


def test_each_model_has_its_own_price():
    cost = cost_of(
        usage(
            gemini_2_5_flash=Tokens(input=1_000_000, total=1_000_000),
            gemini_2_5_pro=Tokens(input=100_000, total=100_000),
        )
    )
    assert cost.usd == Decimal("0.30") + Decimal("0.125")
    assert set(cost.by_model) == {"gemini-2.5-flash", "gemini-2.5-pro"}


@pytest.mark.parametrize("unknown", [None, Usage(), Usage(input=5, total=5)])
def test_what_was_not_told_costs_none_not_nothing(unknown):
    assert cost_of(unknown) is None


def test_an_unknown_model_makes_the_whole_cost_unknown():
    shares = {"gemini-2.5-flash": Tokens(input=5, total=5), "my-model": Tokens(input=5, total=5)}
    assert cost_of(Usage(by_model=shares)) is None


def test_a_model_that_did_nothing_does_not_spoil_the_sum():
    shares = {"gemini-2.5-flash": Tokens(input=10, total=10), "my-model": Tokens()}
    assert cost_of(Usage(by_model=shares)).usd == Decimal("0.000003")


def test_a_cost_explains_its_arithmetic():
    share = Tokens(input=1000, cached=400, output=10, thoughts=100, total=1110)
    told = cost_of(usage(gemini_2_5_flash=share)).explain()
    assert "1,000 in (400 cached)" in told
    assert "110 out" in told
    assert "total: $0.000467 (estimate)" in told
