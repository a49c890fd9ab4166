"""`geminorum models`: what can be named with --model, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.render.output import print_json_line
from geminorum.apps.command.render.tables import Column, Sheet, put
from geminorum.runtime.lazy import lazy_module, msgspec

if TYPE_CHECKING:
    from decimal import Decimal

    from geminorum import models as catalogue
    from geminorum.models import Model
else:
    catalogue = lazy_module("geminorum.models")

app = new_app()


@app.command()
def models(
    retired: Annotated[
        bool, typer.Option("--all", "-a", help="Include models that Google has switched off.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per model.")] = False,
) -> None:
    """List models with prices in dollars per million tokens, context windows and aliases."""
    found = [model for model in catalogue.known() if retired or not model.retired]
    if json:
        for model in found:
            print_json_line({**_fields(model), "aliases": _aliases(model)})
        return
    put(sheet(found))


def sheet(found: list[Model]) -> Sheet:
    columns = [
        Column("model", style="cyan"),
        Column("input", right=True),
        Column("cached", right=True, spare=3),
        Column("output", right=True),
        Column("window", right=True, spare=2),
        Column("short name", spare=1),
    ]
    return Sheet(columns, [_row(model) for model in found], notes=_notes(found))


def _row(model: Model) -> list[str]:
    prices = [
        _dollars(getattr(model.price, name)) if model.price else "?"
        for name in ("input", "cached", "output")
    ]
    window = f"{model.window:,}" if model.window else "?"
    return [model.id, *prices, window, ", ".join(_aliases(model))]


def _dollars(price: Decimal) -> str:
    """With cents, so that a column of them stands straight; more digits only where they count."""
    return f"${price:.2f}" if price == round(price, 2) else f"${price.normalize():f}"


def _aliases(model: Model) -> list[str]:
    """The short names for a model; `auto` is marked, because only the CLI takes it."""
    names = [name for name, meaning in catalogue.CLI_ALIASES.items() if meaning == model.id]
    return ["auto (CLI only)" if name == "auto" else name for name in names]


def _notes(found: list[Model]) -> list[str]:
    stepped = [
        f"{model.id}: {_dollars(step.price.input)} in, {_dollars(step.price.output)} out"
        f" above {step.above:,} tokens"
        for model in found
        for step in model.steps
    ]
    return [*stepped, "dollars per million tokens; the CLI and the API take other names too"]


def _fields(model: Model) -> dict[str, object]:
    return msgspec.structs.asdict(model)
