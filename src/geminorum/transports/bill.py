"""What a turn's tokens cost, or why that cannot be known."""

from __future__ import annotations

from collections.abc import Mapping

from geminorum import cost
from geminorum.auth import payer
from geminorum.cost import PriceBook
from geminorum.events import Cost, Usage
from geminorum.options import Options


def price_of(
    usage: Usage | None, prices: PriceBook | None, options: Options, env: Mapping[str, str]
) -> Cost | str:
    known = cost.cost_of(usage, prices, payer(options, env))
    return known or cost.unknown_because(usage, prices) or ""
