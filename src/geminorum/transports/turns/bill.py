"""What a turn's tokens cost, or why that cannot be known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from geminorum import cost
from geminorum.cost import PriceBook
from geminorum.events import Billing, Cost, Done, ModelRequest, Usage
from geminorum.system.reserve import RESERVE
from geminorum.wire.usage import added


def price_of(usage: Usage | None, prices: PriceBook | None, payer: Billing | None) -> Cost | str:
    try:
        with RESERVE.spend():  # The price list may have to be loaded yet.
            known = cost.cost_of(usage, prices, payer)
            return known or cost.unknown_because(usage, prices) or ""
    except (OSError, ImportError) as error:
        return f"the price list cannot be read: {error}"


def usd_of(requests: Sequence[ModelRequest], prices: PriceBook | None) -> Decimal | None:
    """What these requests cost; None if there are none, or one has no known price."""
    try:
        with RESERVE.spend():
            known = [cost.request_usd(request, prices) for request in requests]
    except (OSError, ImportError):
        return None
    priced = [usd for usd in known if usd is not None]
    return sum(priced, Decimal(0)) if known and len(priced) == len(known) else None


def with_earlier(
    done: Done, earlier: Sequence[Usage | None], price: Callable[[Usage | None], Cost | str]
) -> Done:
    """The end of a turn that was asked more than once, with what all of it used."""
    if not earlier:
        return done
    usage = added([*earlier, done.usage])
    known = price(usage)
    return msgspec.structs.replace(
        done,
        usage=usage,
        cost=known if isinstance(known, Cost) else None,
        cost_note=known if isinstance(known, str) else None,
    )
