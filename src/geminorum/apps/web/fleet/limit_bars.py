"""Limits of the fleet to bars: how much of each is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from geminorum.fleet import LimitInfo


class LimitBar(NamedTuple):
    limit: LimitInfo
    share: float
    """Of the limit, from 0 to 1."""
    level: str
    """"ok", "warn" from four fifths on, "fail" if there is nothing left."""


def bars_of(limits: Iterable[LimitInfo]) -> list[LimitBar]:
    """Budgets first, then what is used most."""
    bars = [_bar(limit) for limit in limits]
    return sorted(bars, key=lambda bar: (not is_budget(bar.limit), -bar.share, bar.limit.label))


def is_budget(limit: LimitInfo) -> bool:
    return limit.kind == "usd_per_day"


def _bar(limit: LimitInfo) -> LimitBar:
    share = min(1.0, float(limit.used / limit.amount)) if limit.amount > 0 else 1.0
    return LimitBar(limit, share, "fail" if share >= 1 else "warn" if share >= 0.8 else "ok")
