"""Tokens times price, with the arithmetic; None when it cannot be known."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from geminorum.events import Cost, ModelCost, Tokens, Usage

Billing: TypeAlias = Literal["api_key", "vertex", "google_account"]


class Price(msgspec.Struct, frozen=True):
    """What one model charges, in US dollars per million tokens."""

    input: Decimal
    output: Decimal
    """Thoughts included."""
    cached: Decimal
    """For the part of the input that came from the cache."""


class PriceBook(Mapping[str, Price]):
    """Prices by model, and perhaps one for every model that is not listed."""

    def __init__(self, rows: Mapping[str, Price], fallback: Price | None = None) -> None:
        self._rows = dict(rows)
        self.fallback = fallback

    def price_of(self, model: str) -> Price | None:
        """The model's row, else the fallback, else None."""
        return self._rows.get(model, self.fallback)

    def __getitem__(self, model: str) -> Price:
        return self._rows[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _row(input: str, output: str, cached: str) -> Price:
    return Price(Decimal(input), Decimal(output), Decimal(cached))


# A table of its day, kept so that its figures can be reproduced. Parts of it are out of date;
# `prices=None` asks the maintained list instead.
PRICES_2026_04 = PriceBook(
    {
        "gemini-2.5-pro": _row("1.25", "10.00", "0.31"),
        "gemini-2.5-flash": _row("0.15", "0.60", "0.0375"),
        "gemini-2.5-flash-lite": _row("0.10", "0.40", "0.025"),
        "gemini-2.0-flash": _row("0.10", "0.40", "0.025"),
        "gemini-1.5-pro": _row("1.25", "5.00", "0.31"),
        "gemini-1.5-flash": _row("0.075", "0.30", "0.019"),
        "gemini-1.5-flash-8b": _row("0.0375", "0.15", "0.01"),
    },
    fallback=_row("0.15", "0.60", "0.0375"),
)


def cost_of(usage: Usage | None, prices: PriceBook | None = None) -> Cost | None:
    """What the tokens cost, or None when that cannot be known.

    Without a price book, today's list prices count. None is not zero: an unknown model, or a run
    that reported no usage, must not look free.
    """
    if usage is None or not usage.by_model:
        return None
    used = {name: tokens for name, tokens in usage.by_model.items() if tokens.total}
    shares = {name: _share(name, tokens, prices) for name, tokens in used.items()}
    known = {name: share for name, share in shares.items() if share is not None}
    if len(known) < len(shares):
        return None
    total = sum((share.usd for share in known.values()), Decimal(0))
    return Cost(total, known, exact=usage.exact)


def calculate_cost_usd(
    model: str,
    usage: Tokens | Mapping[str, int],
    env: Mapping[str, str],
    prices: PriceBook | None = PRICES_2026_04,
) -> Decimal | None:
    """What the whole usage costs at one model's price, 0.00 where no API key pays for it.

    `usage` may be a mapping with the CLI's names: input_tokens, output_tokens, cached. With
    `prices=None`, today's list prices count. None means that the price cannot be known.
    """
    if billing(env) != "api_key":
        return Decimal("0.00")
    tokens = usage if isinstance(usage, Tokens) else _tokens(usage)
    share = None if tokens is None else _share(model, tokens, prices)
    return None if share is None else share.usd


def billing(env: Mapping[str, str]) -> Billing:
    """Who pays, by the environment the CLI runs in: the process's own with the settings' on top."""
    if env.get("GEMINI_API_KEY"):
        return "api_key"
    # The flag can also say "false"; the project cannot.
    wants_vertex = env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("true", "1")
    return "vertex" if wants_vertex or env.get("GOOGLE_CLOUD_PROJECT") else "google_account"


def warm_up() -> None:
    """Load the price list beside the run: it takes 150 ms that nobody should wait for."""
    if "genai_prices" not in sys.modules:
        threading.Thread(target=_load, name="geminorum-prices", daemon=True).start()


def _load() -> None:
    import genai_prices  # noqa: F401


def _tokens(stats: Mapping[str, int]) -> Tokens | None:
    # Other names than these would otherwise count as nothing, and nothing is free.
    if "input_tokens" not in stats or "output_tokens" not in stats:
        return None
    read, written = stats["input_tokens"], stats["output_tokens"]
    total = stats.get("total_tokens", read + written)
    # The CLI leaves thoughts out of its output; what the parts lack to the total is thoughts.
    thoughts = max(0, total - read - written)
    return Tokens(read, written, stats.get("cached", 0), thoughts, total=total)


def _share(model: str, tokens: Tokens, prices: PriceBook | None) -> ModelCost | None:
    # Thoughts are billed as output, built-in tools' tokens as input, cached ones at their own rate.
    read, written = tokens.input + tokens.tool, tokens.output + tokens.thoughts
    if min(tokens.cached, written, tokens.total) < 0 or tokens.cached > read:
        return None  # Counts that cannot be.
    if prices is None:
        bill = _list_bill(model, read, tokens.cached, written)
    else:
        bill = _book_bill(prices.price_of(model), read, tokens.cached, written)
    return None if bill is None else ModelCost(bill[0], tokens, bill[1])


def _list_bill(model: str, read: int, cached: int, written: int) -> tuple[Decimal, str] | None:
    import genai_prices

    usage = genai_prices.Usage(input_tokens=read, cache_read_tokens=cached, output_tokens=written)
    try:
        price = genai_prices.calc_price(usage, model, provider_id="google")
    except (LookupError, ValueError):
        return None  # No such model in the list, or counts it refuses.
    # The list has steps (dearer above 200,000 tokens), so there may be no single price to show.
    note = (
        f"{read:,} in ({cached:,} cached) ${price.input_price:f}"
        f" + {written:,} out ${price.output_price:f}"
    )
    return price.total_price, note


def _book_bill(
    price: Price | None, read: int, cached: int, written: int
) -> tuple[Decimal, str] | None:
    if price is None:
        return None
    products = [
        _product("in", read - cached, price.input),
        _product("cached", cached, price.cached),
        _product("out", written, price.output),
    ]
    return sum((usd for usd, _ in products), Decimal(0)), " + ".join(note for _, note in products)


def _product(name: str, tokens: int, per_million: Decimal) -> tuple[Decimal, str]:
    usd = tokens * per_million / 1_000_000
    return usd, f"{tokens:,} {name} * ${per_million}/M (${usd:f})"
