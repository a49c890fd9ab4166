"""The data file of `genai_prices`, which is Python source, to the models of one provider.

The file is parsed and never run. Whatever is not written as we know it raises Unfamiliar; the
library itself understands every version of its own file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias


class Unfamiliar(ValueError):
    """The file is written in another way than the versions that we know."""


class Tier(NamedTuple):
    start: int
    price: Decimal


class TieredPrices(NamedTuple):
    base: Decimal
    tiers: list[Tier]


PerMillion: TypeAlias = Decimal | TieredPrices | None


class Prices(NamedTuple):
    """US dollars per million tokens."""

    input_mtok: PerMillion
    output_mtok: PerMillion
    cache_read_mtok: PerMillion


class DatedPrices(NamedTuple):
    start_date: date | None
    prices: Prices


class ListedModel(NamedTuple):
    id: str
    context_window: int | None
    deprecated: bool | None
    prices: Prices | list[DatedPrices]

    def get_prices(self, when: datetime) -> Prices:
        """The last prices that have begun by then; if none have, the first."""
        if isinstance(self.prices, Prices):
            return self.prices
        day = when.astimezone(UTC).date()
        begun = [one for one in self.prices if one.start_date is None or one.start_date <= day]
        return (begun[-1] if begun else self.prices[0]).prices


class Row:
    """A model as the file has it; what it costs is read when somebody asks."""

    def __init__(self, source: str, is_match: Callable[[str], bool]) -> None:
        self._source, self.is_match = source, is_match

    @cached_property
    def model(self) -> ListedModel:
        with _understanding():
            return _model(_parsed(self._source))


class Provider(NamedTuple):
    rows: list[Row]
    fallbacks: list[str]
    """Providers whose models are looked at next."""


def provider_in(source: bytes, name: str) -> Provider:
    """One provider of the file; of its models, only how to recognise their names is read yet."""
    with _understanding():
        head, models = _halves(_provider_text(source, name))
        blocks = _blocks(models)
        return Provider(list(map(Row, blocks, _matches(blocks))), _fallbacks(head))


# In the file, an argument has a line of its own, whose indentation tells what it belongs to.
_PROVIDER, _END_OF_PROVIDERS = "\n    Provider(", "\n]\n"
_MODELS, _END_OF_MODELS = "\n        models=[", "\n        ],\n"
_MODEL = "\n            ModelInfo("
_MATCH = re.compile(r"\n {16}match=(.*?),\n {16}(?=\w)", re.DOTALL)
_FALLBACKS = re.compile(r"\n {8}fallback_model_providers=(\[[^]]*\]),\n")
_OF_PROVIDER = {
    *("id", "name", "api_pattern", "pricing_urls", "description", "price_comments", "model_match"),
    *("provider_match", "extractors", "fallback_model_providers"),
}
_OF_MODEL = {
    *("id", "match", "name", "description", "context_window", "price_comments", "deprecated"),
    # Variants are for batches and other service tiers, which no run of ours asks for.
    *("prices", "price_variants"),
}


def _provider_text(source: bytes, name: str) -> str:
    # In bytes, and without copies: it is a small part of a large file.
    opening = f"{_PROVIDER}\n        id={name!r},".encode()
    start = source.find(opening) + len(opening)
    end = source.find(_PROVIDER.encode(), start)
    if end < 0:
        end = source.find(_END_OF_PROVIDERS.encode(), start)
    _require(opening in source and end >= 0, f"no provider {name!r}")
    return source[start:end].decode()


def _halves(provider: str) -> tuple[str, str]:
    """What is said of the provider itself, and its models."""
    head, found, rest = provider.partition(_MODELS)
    models, ended, after = rest.partition(_END_OF_MODELS)
    _require(found and ended and after.strip() == "),", "no models where they should be")
    _require_known(set(re.findall(r"^ {8}(\w+)=", head, re.MULTILINE)), _OF_PROVIDER)
    return f"{head}\n", models


def _fallbacks(head: str) -> list[str]:
    found = _FALLBACKS.search(head)
    _require(found or "fallback_model_providers" not in head, "fallbacks in another form")
    return list(_value(_parsed(found[1]))) if found else []


def _blocks(models: str) -> list[str]:
    before, *blocks = models.split(_MODEL)
    # One that has no line of its own would be missed.
    is_complete = not before.strip() and len(blocks) == models.count("ModelInfo(")
    _require(is_complete, "models that do not begin with a line of their own")
    return [f"ModelInfo({block.rstrip().removesuffix(',')}" for block in blocks]


def _matches(blocks: list[str]) -> list[Callable[[str], bool]]:
    found = [_MATCH.search(block) for block in blocks]
    # All of them at once: to parse one long text takes half as long as to parse many short ones.
    clauses = _value(_parsed(f"[{','.join(one[1] if one else '' for one in found)}]"))
    _require(len(clauses) == len(blocks) and all(map(callable, clauses)), "no match of a model")
    return list(clauses)


def _model(node: ast.expr) -> ListedModel:
    _require(isinstance(node, ast.Call) and not node.args, "no model")
    assert isinstance(node, ast.Call)
    fields = {one.arg or "**": one.value for one in node.keywords}
    _require_known(set(fields), _OF_MODEL)
    prices = _value(fields["prices"])
    is_priced = isinstance(prices, Prices | list) and prices != []
    _require(is_priced, "no prices")
    # The rest is long, and nobody asks for it.
    rest = {one: _value(fields[one]) for one in ("context_window", "deprecated") if one in fields}
    return ListedModel(
        _value(fields["id"]), rest.get("context_window"), rest.get("deprecated"), prices
    )


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Call(func=kind, args=args, keywords=named):
            values = {one.arg or "**": _value(one.value) for one in named}
            return _KINDS[_name(kind)](*map(_value, args), **values)
        case _:
            raise Unfamiliar(ast.dump(node))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
        case _:
            raise Unfamiliar(ast.dump(node))


def _prices(
    input_mtok: PerMillion = None,
    output_mtok: PerMillion = None,
    cache_read_mtok: PerMillion = None,
    **_: PerMillion,
) -> Prices:
    return Prices(input_mtok, output_mtok, cache_read_mtok)


def _tiered(base: Decimal, tiers: list[Tier]) -> TieredPrices:
    return TieredPrices(base, sorted(tiers))


def _dated(constraint: date | None = None, *, prices: Prices) -> DatedPrices:
    return DatedPrices(constraint, prices)


# Names are looked up in lower case.
_KINDS: dict[str, Callable[..., Any]] = {
    "Decimal": Decimal,
    "datetime.date": date,
    "ModelPrice": _prices,
    "TieredPrices": _tiered,
    "Tier": Tier,
    "ConditionalPrice": _dated,
    "StartDateConstraint": lambda start_date: start_date,
    "ClauseEquals": lambda equals: lambda name: name == equals.lower(),
    "ClauseStartsWith": lambda starts_with: lambda name: name.startswith(starts_with.lower()),
    "ClauseEndsWith": lambda ends_with: lambda name: name.endswith(ends_with.lower()),
    "ClauseContains": lambda contains: lambda name: contains.lower() in name,
    "ClauseRegex": lambda regex: lambda name: bool(re.search(regex, name)),
    "ClauseOr": lambda or_: lambda name: any(clause(name) for clause in or_),
    "ClauseAnd": lambda and_: lambda name: all(clause(name) for clause in and_),
}


def _require(is_so: object, otherwise: str) -> None:
    if not is_so:
        raise Unfamiliar(otherwise)


def _require_known(names: set[str], known: set[str]) -> None:
    _require(names <= known, f"unknown: {names - known}")


@contextmanager
def _understanding() -> Iterator[None]:
    try:
        yield
    except (SyntaxError, LookupError, TypeError, DecimalException, RecursionError) as error:
        raise Unfamiliar(str(error)) from error
