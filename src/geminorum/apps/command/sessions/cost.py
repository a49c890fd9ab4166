"""`geminorum cost SESSION`: what one saved session cost, and how that comes about."""

from __future__ import annotations

import re
import shutil
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.render.output import print_json_line
from geminorum.apps.command.sessions.chosen import place_of
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import cost as costs
    from geminorum.events import Cost, Usage
    from geminorum.sessions import Session
else:
    costs = lazy_module("geminorum.cost")

app = new_app()


class Part(NamedTuple):
    """A session, or a subagent of it, with its bill."""

    name: str
    usage: Usage
    cost: Cost | None
    note: str | None
    """Why there is no cost."""


@app.command()
def cost(
    session: Annotated[
        str, typer.Argument(help="An id or the start of one, a file, or `latest`.")
    ] = "latest",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the arithmetic: tokens times price.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a saved session cost, including its subagents."""
    loaded = geminorum.sessions.load(place_of(session))
    parts = parts_of(loaded)
    if json:
        return print_json_line(_data(loaded, parts))
    lines = [*(_explained(parts) if explain else []), total(parts)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.writelines(f"{line}\n" for line in narrowed(lines, width))
    return None


def narrowed(lines: list[str], width: int | None) -> list[str]:
    """For a terminal of that width: a product or a reason that would not fit has its own line."""
    if width is None or max(map(len, lines)) <= width:
        return lines
    broken = (re.sub(r" (= |at list |cost unknown)", r"\n    \1", line) for line in lines)
    return [row for line in broken for row in line.split("\n")]


def parts_of(session: Session) -> list[Part]:
    """The session itself first."""
    return [
        _part(session, "the session"),
        *(_part(agent, f"subagent {agent.id}") for agent in session.subagents),
    ]


def _part(session: Session, name: str) -> Part:
    used = session.usage
    return Part(name, used, costs.cost_of(used), costs.unknown_because(used))


def _explained(parts: list[Part]) -> list[str]:
    lines = []
    for part in parts:
        if len(parts) > 1:
            lines.append(f"# {part.name}")
        lines += _arithmetic(part.cost) if part.cost else [f"unknown: {part.note}"]
    return lines


def _arithmetic(cost: Cost) -> list[str]:
    """Without its sum, which follows, and as far to the left as its numbers let it."""
    rows = cost.explain().splitlines()[:-1]
    deep = [len(row) - len(row.lstrip()) for row in rows if row.startswith(" ")]
    return [row[min(deep) - 2 :] if row.startswith(" ") else row for row in rows]


def total(parts: list[Part]) -> str:
    usd, tokens = _usd(parts), sum(part.usage.total for part in parts)
    if usd is None:
        reasons = ", ".join(dict.fromkeys(part.note for part in parts if part.note))
        return f"{tokens:,} tokens, cost unknown: {reasons}"
    return f"{tokens:,} tokens, ${usd.normalize():f} at list prices"


def _usd(parts: list[Part]) -> Decimal | None:
    """None where any part is unknown: a sum without it would look like all of it."""
    known = [part.cost.usd for part in parts if part.cost]
    return sum(known, Decimal(0)) if len(known) == len(parts) else None


def _data(session: Session, parts: list[Part]) -> dict[str, object]:
    return {
        "session_id": session.id,
        "usd": _usd(parts),
        "tokens": sum(part.usage.total for part in parts),
        "parts": [
            {"name": part.name, "usage": part.usage, "cost": part.cost, "note": part.note}
            for part in parts
        ],
    }
