"""Groups requests into rows, a total and a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from geminorum.cost import PriceBook, request_usd
from geminorum.events import ModelRequest, Tokens, total_of
from geminorum.usage.span import Span, local_time

_CHOSEN_BY_AUTO = re.compile(r"gemini-[\d.]+-(?:flash|pro)(?!-lite)")
_COUNTS = ("requests", *Tokens.__struct_fields__)


class Problem(msgspec.Struct, frozen=True):
    """A file that was not counted, or only in part."""

    path: Path
    reason: str


class Row(msgspec.Struct, frozen=True):
    key: str
    requests: int
    tokens: Tokens
    cost: Decimal | None
    """US dollars, for everything that has a price; None if nothing has."""
    unpriced: dict[str, Tokens] = {}
    """Tokens without a price, by model; not in `cost`."""
    exact: bool = True
    """Everything has a price."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in the order of their first request, and their total."""

    by: str
    since: datetime | None = None
    until: datetime | None = None
    timezone: str
    rows: tuple[Row, ...]
    total: Row
    problems: tuple[Problem, ...] = ()
    routed: tuple[str, ...] = ()
    """Models that `auto` may have chosen. With `auto`, the CLI may ask another model which one to
    use; it saves neither that request nor whether it made one."""
    exact: bool
    """Every file was read, everything has a price, and no request can be missing."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data; dollar amounts are strings, to avoid rounding."""
        data: dict[str, Any] = msgspec.json.decode(self.to_json())
        return data

    def to_json(self) -> str:
        return msgspec.json.encode(self, enc_hook=str).decode()

    def table(self) -> str:
        """Returns a text table: aligned columns, the total, then what is missing from it."""
        head = [self.by, *_COUNTS, "cost"]
        lines = _aligned([head, *map(_cells, self.rows), _cells(self.total)])
        rule = "-" * max(map(len, lines))
        return "\n".join([*lines[:1], rule, *lines[1:-1], rule, *lines[-1:], *self._missing()])

    def _missing(self) -> list[str]:
        prices = [
            f"no price for {model}: {tokens.total:,} tokens"
            for model, tokens in self.total.unpriced.items()
        ]
        unread = [f"not counted: {one.path}: {one.reason}" for one in self.problems]
        return [*prices, *unread, *self.unsaved()]

    def unsaved(self) -> list[str]:
        """Describes the requests that may be missing because the CLI does not save them."""
        names = ", ".join(self.routed)
        text = f"not counted: the CLI's routing requests, if `auto` chose {names}"
        return [text] if names else []


Priced: TypeAlias = tuple[ModelRequest, Decimal | None]
"""A request, and its cost in US dollars; None if it has no price."""


def tallied(
    by: str,
    groups: Mapping[str, Sequence[Priced]],
    span: Span,
    zone: tzinfo | None,
    problems: Sequence[Problem],
) -> Report:
    every = [pair for pairs in groups.values() for pair in pairs]
    total = _row("total", every)
    routed = sorted({one.model for one, _ in every if _is_routed(one)})
    return Report(
        by=by,
        since=None if span.since is None else local_time(span.since, zone),
        until=None if span.until is None else local_time(span.until, zone),
        timezone="local" if zone is None else str(zone),
        rows=tuple(_row(key, pairs) for key, pairs in groups.items()),
        total=total,
        problems=tuple(problems),
        routed=tuple(routed),
        exact=total.exact and not problems and not routed,
    )


def _is_routed(request: ModelRequest) -> bool:
    """May `auto` have chosen the model? In each version of the CLI it takes a flash or a pro."""
    return bool(_CHOSEN_BY_AUTO.match(request.model))


def priced(request: ModelRequest, prices: PriceBook | None) -> Priced:
    usd = request_usd(request, prices)
    used = any(getattr(request, name) for name in Tokens.__struct_fields__)
    # Nothing costs nothing, whatever the model.
    return request, usd if usd is not None or used else Decimal(0)


def _row(key: str, pairs: Sequence[Priced]) -> Row:
    known = [usd for _, usd in pairs if usd is not None]
    unpriced = [request for request, usd in pairs if usd is None]
    return Row(
        key,
        len(pairs),
        total_of([request for request, _ in pairs]),
        None if unpriced and not known else sum(known, Decimal(0)),
        _by_model(unpriced),
        not unpriced,
    )


def _by_model(requests: Iterable[ModelRequest]) -> dict[str, Tokens]:
    groups: dict[str, list[ModelRequest]] = {}
    for request in requests:
        groups.setdefault(request.model, []).append(request)
    return {model: total_of(group) for model, group in groups.items()}


def _cells(row: Row) -> list[str]:
    counts = [row.requests, *(getattr(row.tokens, name) for name in Tokens.__struct_fields__)]
    return [row.key, *(f"{count:,}" for count in counts), _money(row)]


def _money(row: Row) -> str:
    if row.cost is None:
        return "unknown"
    return f"${row.cost:,.6f}" if row.exact else f"${row.cost:,.6f} + ?"


def _aligned(rows: list[list[str]]) -> list[str]:
    """The first column to the left, numbers to the right."""
    first, *rest = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], rest)]).rstrip() for row in rows
    ]
