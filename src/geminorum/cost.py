"""Tokens times price, with the arithmetic; None when it cannot be known."""

from __future__ import annotations

import sys
import threading
from decimal import Decimal

from geminorum.events import Cost, ModelCost, Tokens, Usage


def cost_of(usage: Usage | None) -> Cost | None:
    """What the tokens cost at today's list prices, or None when that cannot be known.

    None is not zero: an unknown model, or a run that reported no usage, must not look free.
    """
    if usage is None or not usage.by_model:
        return None
    shares = {name: _share(name, tokens) for name, tokens in usage.by_model.items() if tokens.total}
    known = {name: share for name, share in shares.items() if share is not None}
    if len(known) < len(shares):
        return None
    total = sum((share.usd for share in known.values()), Decimal(0))
    return Cost(total, known, exact=usage.exact)


def warm_up() -> None:
    """Load the price list beside the run: it takes 150 ms that nobody should wait for."""
    if "genai_prices" not in sys.modules:
        threading.Thread(target=_load, name="geminorum-prices", daemon=True).start()


def _load() -> None:
    import genai_prices  # noqa: F401


def _share(model: str, tokens: Tokens) -> ModelCost | None:
    import genai_prices

    if tokens.total < 0:
        return None
    # Thoughts are billed as output, built-in tools' tokens as input, cached ones at their own rate.
    usage = genai_prices.Usage(
        input_tokens=tokens.input + tokens.tool,
        cache_read_tokens=tokens.cached,
        output_tokens=tokens.output + tokens.thoughts,
    )
    try:
        price = genai_prices.calc_price(usage, model, provider_id="google")
    except (LookupError, ValueError):
        return None  # No such model in the list, or counts that cannot be.
    note = (
        f"{tokens.input + tokens.tool:,} in ({tokens.cached:,} cached) ${price.input_price:f}"
        f" + {tokens.output + tokens.thoughts:,} out ${price.output_price:f}"
    )
    return ModelCost(price.total_price, tokens, note)
