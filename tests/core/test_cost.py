"""Money: exact arithmetic where the price is known, None where it is not."""

import subprocess
import sys
from decimal import Decimal

import pytest

from geminorum.cost import (
    PRICES_2026_04,
    Price,
    PriceBook,
    billing,
    calculate_cost_usd,
    cost_of,
    request_usd,
    unknown_because,
)
from geminorum.events import ModelRequest, Tokens, Usage, total_of


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


def test_a_cost_explains_its_arithmetic_line_by_line():
    share = Tokens(input=1000, cached=400, output=10, thoughts=100, total=1110)
    assert cost_of(usage(gemini_2_5_flash=share)).explain().splitlines() == [
        "gemini-2.5-flash",
        "          600 input    * $0.3/M = $0.00018",
        "          400 cached   * $0.03/M = $0.000012",
        "           10 output   * $2.5/M = $0.000025",
        "          100 thoughts * $2.5/M = $0.00025",
        "total: $0.000467 (estimate)",
    ]


def test_a_long_request_is_dearer_and_the_short_ones_beside_it_are_not():
    """B-16: above 200,000 tokens read, 2.5-pro asks 2.50 instead of 1.25 for each of them."""
    requests = tuple(
        ModelRequest(input=read, output=1000, total=read + 1000, model="gemini-2.5-pro")
        for read in (150_000, 150_000, 200_001)
    )
    whole = total_of(requests)
    each = Usage(by_model={"gemini-2.5-pro": whole}, requests=requests)
    # 300,000 · 1.25 + 2,000 · 10 + 200,001 · 2.50 + 1,000 · 15 dollars per million
    assert cost_of(each).usd == Decimal("0.375") + Decimal("0.02") + Decimal("0.5150025")
    # As one lump it would all stand on the dearer step.
    assert cost_of(Usage(by_model={"gemini-2.5-pro": whole})).usd > cost_of(each).usd


def test_what_the_requests_leave_over_is_paid_too():
    """The CLI's own small questions stand in the sums only."""
    share = Tokens(input=300, total=300)
    one = ModelRequest(input=100, total=100, model="gemini-2.5-flash")
    bill = cost_of(Usage(by_model={"gemini-2.5-flash": share}, requests=(one,)))
    assert bill.usd == Decimal("0.00009")


def test_the_list_s_own_arithmetic_agrees_with_ours():
    import genai_prices

    for model in ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"):
        for read in (1, 199_999, 200_000, 200_001, 900_000):
            request = ModelRequest(
                input=read, cached=read // 3, output=7, thoughts=9, total=read + 16, model=model
            )
            theirs = genai_prices.calc_price(
                genai_prices.Usage(
                    input_tokens=read, cache_read_tokens=read // 3, output_tokens=16
                ),
                model,
                provider_id="google",
            )
            assert request_usd(request) == theirs.total_price


def test_why_there_is_no_cost_is_said():
    """B-16: `unknown_because` gives the reason for every cost of None."""
    assert unknown_because(None) == "the run reported no usage"
    stranger = Usage(by_model={"my-model": Tokens(input=5, total=5)})
    assert unknown_because(stranger) == "there is no price for 'my-model'"
    odd = Usage(by_model={"gemini-2.5-flash": Tokens(input=5, cached=6, total=5)})
    assert unknown_because(odd) == "the token counts of 'gemini-2.5-flash' cannot be"
    assert unknown_because(usage(gemini_2_5_flash=Tokens(input=5, total=5))) is None


API_KEY = {"GEMINI_API_KEY": "secret"}
ACCOUNT: dict[str, str] = {}
STATS = {"input_tokens": 1_000_000, "output_tokens": 100_000, "cached": 200_000}


def priced(model: str) -> Decimal | None:
    """800,000 fresh and 200,000 cached tokens read, 100,000 written, paid with an API key."""
    return calculate_cost_usd(model, STATS, API_KEY, "2026-04")


def test_the_document_prices_2_5_pro():
    """S1-58: the same tokens at 0.8 · 1.25 + 0.2 · 0.31 + 0.1 · 10.00 = 2.062."""
    assert priced("gemini-2.5-pro") == Decimal("2.062")


def test_the_document_prices_2_5_flash():
    """S1-59: 0.8 · 0.15 + 0.2 · 0.0375 + 0.1 · 0.60 = 0.1875 for a million input tokens (200,000 of
    them cached) and 100,000 output tokens."""
    assert priced("gemini-2.5-flash") == Decimal("0.1875")


def test_the_document_prices_2_5_flash_lite():
    """S1-60: the same tokens at 0.8 · 0.10 + 0.2 · 0.025 + 0.1 · 0.40 = 0.125."""
    assert priced("gemini-2.5-flash-lite") == Decimal("0.125")


def test_the_document_prices_2_0_flash():
    """S1-61: the same tokens at 0.8 · 0.10 + 0.2 · 0.025 + 0.1 · 0.40 = 0.125."""
    assert priced("gemini-2.0-flash") == Decimal("0.125")


def test_the_document_prices_1_5_pro():
    """S1-62: the same tokens at 0.8 · 1.25 + 0.2 · 0.31 + 0.1 · 5.00 = 1.562."""
    assert priced("gemini-1.5-pro") == Decimal("1.562")


def test_the_document_prices_1_5_flash():
    """S1-63: the same tokens at 0.8 · 0.075 + 0.2 · 0.019 + 0.1 · 0.30 = 0.0938."""
    assert priced("gemini-1.5-flash") == Decimal("0.0938")


def test_the_document_prices_1_5_flash_8b():
    """S1-64: the same tokens at 0.8 · 0.0375 + 0.2 · 0.01 + 0.1 · 0.15 = 0.047."""
    assert priced("gemini-1.5-flash-8b") == Decimal("0.047")


@pytest.mark.parametrize("model", ["auto-gemini-3", "gemini-9-ultra", ""])
def test_the_document_prices_what_it_does_not_know_by_its_last_row(model):
    """S1-65: unknown models cost as much as 2.5-flash: 0.8 · 0.15 + 0.2 · 0.0375 + 0.1 · 0.60 =
    0.1875."""
    assert priced(model) == Decimal("0.1875")


def test_the_document_has_seven_models_and_a_last_row():
    """S1-58 … S1-65: the table has exactly the document's models, and its fallback row."""
    assert len(PRICES_2026_04) == 7
    assert PRICES_2026_04.fallback == Price(Decimal("0.15"), Decimal("0.60"), Decimal("0.0375"))


def test_one_token_is_priced_to_the_last_digit():
    """S1-56: model, usage and environment go in; exact dollars come out, never a float."""
    usd = calculate_cost_usd(
        "gemini-1.5-flash-8b", {"input_tokens": 1, "output_tokens": 0}, API_KEY, "2026-04"
    )
    assert isinstance(usd, Decimal)
    assert str(usd) == "3.75E-8"


@pytest.mark.parametrize(
    ("env", "payer", "usd"),
    [
        (ACCOUNT, "google_account", "0.00"),
        ({"GEMINI_API_KEY": ""}, "google_account", "0.00"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "false"}, "google_account", "0.00"),
        ({"GOOGLE_CLOUD_PROJECT": "mine"}, "vertex", "0.00"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "vertex", "0.00"),
        (API_KEY, "api_key", "2.062"),
        ({**API_KEY, "GOOGLE_CLOUD_PROJECT": "mine"}, "api_key", "2.062"),
    ],
)
def test_who_is_billed_decides_what_it_costs(env, payer, usd):
    """S1-57, B-17: only an API key pays per token, and it comes before a Vertex project."""
    assert billing(env) == payer
    assert str(calculate_cost_usd("gemini-2.5-pro", STATS, env, "2026-04")) == usd


@pytest.mark.parametrize("prices", [None, PriceBook({})])
def test_what_is_not_billed_needs_no_price(prices):
    """S1-57: a Google account pays nothing, whatever the model."""
    assert calculate_cost_usd("my-model", STATS, ACCOUNT, prices) == 0


@pytest.mark.parametrize("kind", [Tokens, Usage])
def test_our_own_usage_is_priced_like_the_cli_s(kind):
    """S1-56: both say the same, so both cost the same."""
    ours = kind(input=1_000_000, output=100_000, cached=200_000, total=1_100_000)
    theirs = priced("gemini-2.5-pro")
    assert calculate_cost_usd("gemini-2.5-pro", ours, API_KEY, "2026-04") == theirs


def test_thoughts_are_billed_as_output_and_tools_as_input():
    """B-16: 0.8 · 0.15 + 0.2 · 0.0375 + 0.1 · 0.60, the output being thoughts alone."""
    ours = Tokens(input=900_000, tool=100_000, cached=200_000, thoughts=100_000, total=1_100_000)
    assert calculate_cost_usd("gemini-2.5-flash", ours, API_KEY, "2026-04") == Decimal("0.1875")


def test_what_the_cli_s_total_has_beyond_its_parts_is_billed_as_thoughts():
    """B-15, B-16: 100,000 tokens more at 0.60 a million are 0.06 on top of 0.1875."""
    stats = {**STATS, "total_tokens": 1_200_000}
    assert calculate_cost_usd("gemini-2.5-flash", stats, API_KEY, "2026-04") == Decimal("0.2475")


@pytest.mark.parametrize(
    "stats",
    [
        {},
        {"inputTokens": 5, "outputTokens": 5},
        {"input_tokens": 5},
        {"input_tokens": 5, "output_tokens": 5, "cached": 6},
        {"input_tokens": 5, "output_tokens": 5, "cached": -1},
        {"input_tokens": 5, "output_tokens": -1},
    ],
)
@pytest.mark.parametrize("prices", [None, PRICES_2026_04])
def test_counts_that_are_missing_or_cannot_be_cost_none(stats, prices):
    """B-16: missing or impossible counts cost None, so that they do not look free."""
    assert calculate_cost_usd("gemini-2.5-flash", stats, API_KEY, prices) is None


@pytest.mark.parametrize("prices", [None, PriceBook({"mine": PRICES_2026_04["gemini-2.5-pro"]})])
def test_without_a_last_row_an_unknown_model_costs_none(prices):
    """B-16: a book without a fallback row gives None, not zero."""
    assert calculate_cost_usd("my-model", STATS, API_KEY, prices) is None


def test_without_a_book_the_list_of_today_counts():
    """B-16: 0.8 · 0.30 + 0.2 · 0.03 + 0.1 · 2.50, where the document says 0.1875."""
    assert calculate_cost_usd("gemini-2.5-flash", STATS, API_KEY) == Decimal("0.496")
    assert calculate_cost_usd("gemini-2.5-flash", STATS, API_KEY, None) == Decimal("0.496")


def test_a_book_can_be_extended_by_a_row_of_your_own():
    """B-16: a caller can add a model's price to the document's table."""
    free = Price(Decimal(0), Decimal(0), Decimal(0))
    book = PriceBook({**PRICES_2026_04, "mine": free})
    assert calculate_cost_usd("mine", STATS, API_KEY, book) == 0
    assert calculate_cost_usd("gemini-2.5-pro", STATS, API_KEY, book) == Decimal("2.062")


def test_a_run_can_be_priced_by_a_book_model_by_model():
    """B-16: each share at its own row: 0.1 · 1.25, and 1 · 0.15 for the model not listed."""
    shares = {
        "gemini-2.5-pro": Tokens(input=100_000, total=100_000),
        "gemini-3-flash": Tokens(input=1_000_000, total=1_000_000),
    }
    cost = cost_of(Usage(by_model=shares), PRICES_2026_04)
    assert cost.usd == Decimal("0.125") + Decimal("0.15")
    assert cost_of(Usage(by_model=shares), PriceBook(PRICES_2026_04)) is None


def test_a_book_s_cost_shows_tokens_times_price():
    """B-16: 600 · 0.15 + 400 · 0.0375 + 110 · 0.60 dollars per million."""
    share = Tokens(input=1000, cached=400, output=10, thoughts=100, total=1110)
    told = cost_of(usage(gemini_2_5_flash=share), PRICES_2026_04).explain()
    assert told.splitlines() == [
        "gemini-2.5-flash",
        "          600 input    * $0.15/M = $0.00009",
        "          400 cached   * $0.0375/M = $0.000015",
        "           10 output   * $0.60/M = $0.000006",
        "          100 thoughts * $0.60/M = $0.00006",
        "total: $0.000171 (estimate)",
    ]


BEGIN_TOGETHER = """
import threading
from geminorum import cost

started = set()
# The list is read in a moment: a thread may be gone before all have begun.
threading.setprofile(lambda *_: started.add(threading.current_thread()))
for _ in range(5):
    cost.warm_up()
for thread in threading.enumerate():
    if thread.name == cost.PRICES_THREAD:
        thread.join()
print(sum(one.name == cost.PRICES_THREAD for one in started))
"""


def test_runs_that_begin_together_load_the_price_list_once():
    command = [sys.executable, "-c", BEGIN_TOGETHER]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr
