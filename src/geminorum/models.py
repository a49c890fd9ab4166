"""The Gemini models known to geminorum: names, prices, context windows, aliases.

The API and the CLI accept other names too: this is a list to choose from, not a restriction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from geminorum import price_list
from geminorum.cost import Price
from geminorum.wire.model_names import ALIASES

_CONVERSES = re.compile(r"gemini-\d")
_OTHER_TRADES = re.compile(r"image|tts|live|embedding|vision|audio")

CLI_ALIASES: Mapping[str, str] = {"auto": ALIASES["flash"], **ALIASES}
"""How CLI 0.61.0 resolves its aliases with an API key. It resolves `auto` per prompt: this is its
choice for simple ones. Other CLI versions may differ; the result names the model that answered.
`Api` resolves the same aliases to the same models, except `auto`."""


class Step(msgspec.Struct, frozen=True):
    """A higher price for requests longer than `above` tokens."""

    above: int
    price: Price


class Model(msgspec.Struct, frozen=True):
    id: str
    price: Price | None
    """Today's list price. None: unknown."""
    steps: tuple[Step, ...] = ()
    window: int | None = None
    """Context window in tokens. None: unknown."""
    retired: bool = False
    """Google has switched it off or announced when it will."""


def known() -> list[Model]:
    """Returns Gemini models that answer in text, newest first."""
    named = [model for model in price_list.google_models() if _is_chat(model.id)]
    return sorted(map(_model, named), key=lambda model: _age(model.id))


def meaning_of(name: str) -> str:
    """Resolves a model alias, the same on every transport; other names are returned unchanged."""
    return CLI_ALIASES.get(name, name)


def _is_chat(name: str) -> bool:
    return bool(_CONVERSES.match(name)) and not _OTHER_TRADES.search(name)


def _model(row: Any) -> Model:
    prices = row.get_prices(datetime.now(UTC))
    base = _price(prices, lambda price: getattr(price, "base", price))
    starts = {step.start for step in getattr(prices.input_mtok, "tiers", ())}
    steps = [Step(start, price) for start in sorted(starts) if (price := _above(prices, start))]
    return Model(row.id, base, tuple(steps), row.context_window, bool(row.deprecated))


def _above(prices: Any, start: int) -> Price | None:
    def dearer(price: Any) -> Decimal | None:
        found = [step.price for step in getattr(price, "tiers", ()) if step.start <= start]
        usd: Decimal | None = found[-1] if found else getattr(price, "base", price)
        return usd

    return _price(prices, dearer)


def _price(prices: Any, part: Any) -> Price | None:
    paid, written, cached = (
        part(getattr(prices, name)) for name in ("input_mtok", "output_mtok", "cache_read_mtok")
    )
    if paid is None or written is None:
        return None
    return Price(input=paid, output=written, cached=paid if cached is None else cached)


def _age(name: str) -> tuple[float, str]:
    found = re.search(r"\d+(?:\.\d+)?", name)
    return -float(found[0]) if found else 0.0, name
