"""`geminorum fleet limits`: limits over all workers of the fleet."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.fleet.flags import Db, Json, JsonLines
from geminorum.apps.command.render.output import print_json_line
from geminorum.apps.command.render.tables import put
from geminorum.runtime.lazy import asyncio, lazy_module

if TYPE_CHECKING:
    from geminorum import fleet as fleets
    from geminorum.apps.command.fleet import views
    from geminorum.fleet import Limit, LimitInfo
else:
    # Both load what a help page does without: drivers and tables.
    fleets = lazy_module("geminorum.fleet")
    views = lazy_module("geminorum.apps.command.fleet.views")

app = new_app("List, set and remove limits over all workers.")

_KINDS = "requests-per-minute, tokens-per-minute, usd-per-day or concurrency"
Kind = Annotated[str, typer.Argument(metavar="KIND", help=f"What is limited: {_KINDS}.")]
Key = Annotated[
    str | None,
    typer.Option(metavar="FINGERPRINT", help="Of one API key, or of each of its own: '*'."),
]
KeyOf = Annotated[
    str | None,
    typer.Option(
        metavar="VARIABLE", help="Of the API key in this variable; only its print is kept."
    ),
]
Tenant = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of one tenant, or of each of its own: '*'.")
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of one model, or of each of its own: '*'.")
]


@app.command(name="list")
def list_limits(db: Db = None, json: JsonLines = False) -> None:
    """List the limits, how far each is used, and how many jobs wait for it."""
    found = asyncio.run(_limits(db))
    if json:
        for limit in found:
            print_json_line(limit)
        return
    put(views.limits_sheet(found))


@app.command(name="set")
def set_limit(
    kind: Kind,
    amount: Annotated[float, typer.Argument(metavar="AMOUNT", help="How much of it.")],
    key: Key = None,
    key_of: KeyOf = None,
    tenant: Tenant = None,
    model: Model = None,
    burst: Annotated[
        float | None,
        typer.Option(metavar="N", help="How much may come at a time. Default: a second's share."),
    ] = None,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Refuse what is above it, instead of delaying it.")
    ] = False,
    db: Db = None,
    json: Json = False,
) -> None:
    """Limit all workers together, from now on. A limit for the same is replaced.

    Without --key, --tenant and --model it is one limit for everything together.
    """
    whose = {"key": _fingerprint(key, key_of), "tenant": tenant, "model": model}
    reaction = "refuse" if refuse else "delay"
    made = asyncio.run(_set(db, _kind(kind), amount, **whose, burst=burst, reaction=reaction))
    if json:
        return print_json_line(made)
    verb = "refuses" if refuse else "delays"
    sys.stdout.write(f"{made.label}: {verb} what is above it\n")
    return None


@app.command(name="remove")
def remove_limit(
    kind: Kind,
    key: Key = None,
    key_of: KeyOf = None,
    tenant: Tenant = None,
    model: Model = None,
    db: Db = None,
) -> Exit:
    """Remove a limit, named as it was set. Jobs that wait for it go on."""
    whose = {"key": _fingerprint(key, key_of), "tenant": tenant, "model": model}
    if asyncio.run(_remove(db, _kind(kind), **whose)):
        sys.stdout.write("removed\n")
        return Exit.OK
    sys.stderr.write(
        "there is no such limit; `geminorum fleet limits list` shows those there are\n"
    )
    return Exit.NOT_FOUND


async def _limits(db: str | None) -> list[LimitInfo]:
    async with fleets.Fleet(db) as fleet:
        return await fleet.limits()


async def _set(db: str | None, kind: Any, amount: float, **how: Any) -> Limit:
    async with fleets.Fleet(db) as fleet:
        return await fleet.set_limit(kind, amount, **how)


async def _remove(db: str | None, kind: Any, **whose: str | None) -> bool:
    async with fleets.Fleet(db) as fleet:
        return await fleet.remove_limit(kind, **whose)


def _kind(typed: str) -> str:
    return typed.replace("-", "_")


def _fingerprint(key: str | None, variable: str | None) -> str | None:
    if variable is None:
        return key
    if key is not None:
        raise typer.BadParameter("--key and --key-of exclude each other; leave one of them out")
    if not (value := os.environ.get(variable)):
        raise typer.BadParameter(
            f"{variable} is not set here; export it, or pass --key FINGERPRINT"
        )
    return fleets.key_fingerprint(value)
