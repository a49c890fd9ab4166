"""Computes costs from tokens and prices, with the calculation; None if a cost is unknown."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from geminorum.errors import InvalidOptions
from geminorum.events import Billing as Billing
from geminorum.events import Cost, CostLine, ModelCost, ModelRequest, Tokens, Usage
from geminorum.hints import advice
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import price_list
else:
    # Nothing asks for a price before the agent has started.
    price_list = lazy_module("geminorum.price_list")


class Price(msgspec.Struct, frozen=True):
    """One model's prices in US dollars per million tokens."""

    input: Decimal
    output: Decimal
    """Includes thoughts."""
    cached: Decimal
    """For input tokens that came from the cache."""


class PriceBook(Mapping[str, Price]):
    """Prices by model, with an optional fallback for other models."""

    def __init__(self, rows: Mapping[str, Price], fallback: Price | None = None) -> None:
        self._rows = dict(rows)
        self.fallback = fallback

    def price_of(self, model: str) -> Price | None:
        """Returns the model's price, else the fallback, else None."""
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

Prices: TypeAlias = PriceBook | Literal["2026-04"] | None
"""A price book, the name of a built-in one, or None for the list prices of the day."""

PRICES_THREAD = "geminorum-prices"
_NAMED_BOOKS: Mapping[str, PriceBook] = {"2026-04": PRICES_2026_04}


def price_book(prices: Prices) -> PriceBook | None:
    """Resolves the name of a price book; price books and None pass through."""
    if not isinstance(prices, str):
        return prices
    if prices not in _NAMED_BOOKS:
        names = " or ".join(map(repr, _NAMED_BOOKS))
        hint = advice("pass {names}[, {a PriceBook}, or {None} for list prices]", names=names)
        raise InvalidOptions(f"there is no price book {prices!r}", hint=hint)
    return _NAMED_BOOKS[prices]


def cost_of(
    usage: Usage | None, prices: PriceBook | None = None, billing: Billing | None = None
) -> Cost | None:
    """Returns the cost of the tokens, or None if it is unknown; `unknown_because` says why.

    Without a price book, the list prices of the day apply. None is not zero: an unknown model, or a
    run that reported no usage, must not look free.
    """
    if usage is None or unknown_because(usage, prices):
        return None
    shares = {
        name: _share(tokens, _parts(usage, name), prices)
        for name, tokens in usage.by_model.items()
        if tokens.total
    }
    total = sum((share.usd for share in shares.values()), Decimal(0))
    return Cost(total, shares, usage.exact, billing)


def unknown_because(usage: Usage | None, prices: PriceBook | None = None) -> str | None:
    """Returns why the cost is unknown; None if it is known."""
    if usage is None or not usage.by_model:
        return "the run reported no usage"
    for name, tokens in usage.by_model.items():
        if tokens.total and not _possible(tokens):
            return f"the token counts of {name!r} cannot be"
        if tokens.total and _price(_as_request(name, tokens), prices) is None:
            return f"there is no price for {name!r}"
    return None


def request_usd(request: ModelRequest, prices: PriceBook | None = None) -> Decimal | None:
    """Returns the cost of one request; None if its price is unknown."""
    lines = _lines(request, prices)
    return None if lines is None else sum((line.usd for line in lines), Decimal(0))


def calculate_cost_usd(
    model: str,
    usage: Tokens | Mapping[str, int],
    env: Mapping[str, str],
    prices: Prices = None,
) -> Decimal | None:
    """Returns the cost of all usage at one model's price; 0.00 if no API key pays for it.

    `usage` may be a mapping with the CLI's names: input_tokens, output_tokens, cached. By default,
    today's list prices apply; `prices="2026-04"` is the table of the local adapter's document.
    Returns None if the price is unknown.
    """
    book = price_book(prices)
    if billing(env) != "api_key":
        return Decimal("0.00")
    tokens = usage if isinstance(usage, Tokens) else _tokens(usage)
    return None if tokens is None else request_usd(_as_request(model, tokens), book)


def billing(env: Mapping[str, str]) -> Billing:
    """Returns who pays, by the CLI's environment: the process's own plus the settings'."""
    if env.get("GEMINI_API_KEY"):
        return "api_key"
    # The flag can also say "false"; the project cannot.
    wants_vertex = env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("true", "1")
    return "vertex" if wants_vertex or env.get("GOOGLE_CLOUD_PROJECT") else "google_account"


@cache
def warm_up() -> None:
    """Reads the price list beside the first run, which need not wait for it."""
    with suppress(RuntimeError):  # The system has no thread to give.
        threading.Thread(target=_load, name=PRICES_THREAD, daemon=True).start()


def _load() -> None:
    # A caller that needs it loads it again, and gets the error.
    with suppress(OSError, ImportError):
        price_list.load()


def _tokens(stats: Mapping[str, int]) -> Tokens | None:
    # Other names than these would otherwise count as nothing, and nothing is free.
    if "input_tokens" not in stats or "output_tokens" not in stats:
        return None
    read, written = stats["input_tokens"], stats["output_tokens"]
    total = stats.get("total_tokens", read + written)
    # The CLI leaves thoughts out of its output; what the parts lack to the total is thoughts.
    thoughts = max(0, total - read - written)
    return Tokens(read, written, stats.get("cached", 0), thoughts, total=total)


def _parts(usage: Usage, model: str) -> list[ModelRequest]:
    """The model's requests, and what it used beyond those that are told one by one."""
    told = [request for request in usage.requests if request.model == model]
    whole = usage.by_model[model]
    rest = {
        name: getattr(whole, name) - sum(getattr(request, name) for request in told)
        for name in Tokens.__struct_fields__
    }
    return [*told, ModelRequest(**rest, model=model)] if any(rest.values()) else told


def _share(tokens: Tokens, requests: list[ModelRequest], prices: PriceBook | None) -> ModelCost:
    """Each request at its own price: the dearer step counts for the whole of a long one."""
    counts: Counter[tuple[Any, Decimal]] = Counter()
    for request in requests:
        for line in _lines(request, prices) or ():
            counts[line.kind, line.per_million] += line.tokens
    lines = tuple(CostLine(kind, count, price) for (kind, price), count in counts.items())
    return ModelCost(sum((line.usd for line in lines), Decimal(0)), tokens, lines)


def _lines(request: ModelRequest, prices: PriceBook | None) -> list[CostLine] | None:
    price = _price(request, prices)
    if price is None or not _possible(request):
        return None
    # Built-in tools' tokens are billed as input, thoughts as output, cached ones at their own rate.
    fresh = request.input + request.tool - request.cached
    lines = [
        CostLine("input", fresh, price.input),
        CostLine("cached", request.cached, price.cached),
        CostLine("output", request.output, price.output),
        CostLine("thoughts", request.thoughts, price.output),
    ]
    return [line for line in lines if line.tokens]


def _possible(tokens: Tokens) -> bool:
    written = tokens.output + tokens.thoughts
    return min(tokens.cached, written, tokens.total) >= 0 and (
        tokens.cached <= tokens.input + tokens.tool
    )


def _as_request(model: str, tokens: Tokens) -> ModelRequest:
    counts = {name: getattr(tokens, name) for name in Tokens.__struct_fields__}
    return ModelRequest(**counts, model=model)


def _price(request: ModelRequest, prices: PriceBook | None) -> Price | None:
    return prices.price_of(request.model) if prices is not None else _listed(request)


def _listed(request: ModelRequest) -> Price | None:
    """The list's price on the day of the request, at the step that its length reaches."""
    read = request.input + request.tool
    when = datetime.fromtimestamp(request.timestamp / 1000, UTC) if request.timestamp else None
    if (model := price_list.find_model(request.model)) is None:
        return None
    try:
        row = model.get_prices(when or datetime.now(UTC))
    except (LookupError, ValueError):
        return None  # It is in the list without a price.
    paid, written = _step(row.input_mtok, read), _step(row.output_mtok, read)
    if paid is None or written is None:
        return None
    cached = _step(row.cache_read_mtok, read)
    return Price(paid, written, paid if cached is None else cached)


def _step(price: Any, read: int) -> Decimal | None:
    reached = [step.price for step in getattr(price, "tiers", ()) if read > step.start]
    found: Decimal | None = reached[-1] if reached else getattr(price, "base", price)
    return found
