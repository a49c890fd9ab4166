"""`geminorum usage`: tokens and cost of all saved sessions, in a table and in bars."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.flags.moments import moment_of
from geminorum.apps.command.render.output import console, print_line
from geminorum.apps.command.render.tables import (
    Bar,
    Column,
    Sheet,
    bars,
    can_draw_blocks,
    flat,
    put,
)
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.sessions import views
    from geminorum.usage import Report, Row
else:
    views = lazy_module("geminorum.apps.command.sessions.views")

app = new_app()

By = Literal["day", "model", "project", "session"]
_MOST_BARS = 30


@app.command()
def usage(
    by: Annotated[By, typer.Option(help="One row per day, model, project or session.")] = "day",
    since: Annotated[
        str | None, typer.Option(help="Only since this date or time: 2026-11-01, 24h, 7d, 2w.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only before this date or time.")] = None,
    cwd: Annotated[Path | None, typer.Option(help="Only the sessions of this folder.")] = None,
    tz: Annotated[
        str | None,
        typer.Option(
            help="The time zone of a day, such as Europe/Berlin. Default: this machine's."
        ),
    ] = None,
    chart: Annotated[bool, typer.Option(help="Show bars below the table.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show tokens and cost of all sessions that the Gemini CLI has saved."""
    report = geminorum.usage.report(
        by=by, since=moment_of(since), until=moment_of(until), cwd=cwd, tz=tz
    )
    if json:
        return print_line(report.to_json().encode())
    put(sheet(report))
    return _draw(report) if chart else None


def sheet(report: Report) -> Sheet:
    """The report as a table; on a narrow screen only what was used and what it cost."""
    counts = {"requests": 3, "input": 1, "cached": 4, "output": 2, "thoughts": 5}
    columns = [
        Column(report.by, style="cyan", elastic=report.by == "project"),
        *(Column(name, right=True, spare=spare) for name, spare in counts.items()),
        Column("tokens", right=True),
        Column("cost", right=True, style="green"),
    ]
    # Whole ids in a pipe, as in `sessions list`.
    short = report.by == "session" and sys.stdout.isatty()
    rows = [_cells(row, short=short) for row in report.rows]
    return Sheet(columns, rows, _cells(report.total), _missing(report))


def chart(report: Report, width: int, *, blocks: bool) -> list[str]:
    """Bars of the cost; of the tokens where nothing has a price."""
    rows = {_name(row, short=report.by == "session"): row for row in report.rows[-_MOST_BARS:]}
    if any(row.cost for row in rows.values()):
        made = [Bar(name, float(row.cost or 0), _money(row)) for name, row in rows.items()]
    else:
        used = {name: row.tokens.total for name, row in rows.items()}
        made = [Bar(name, total, f"{total:,}") for name, total in used.items()]
    return bars(made, width, blocks=blocks)


def _draw(report: Report) -> None:
    screen = console()
    # Bars are for eyes; a program that reads the table would stumble over them.
    if screen.is_terminal and len(report.rows) > 1:
        screen.print()
        for line in chart(report, min(screen.width, 100), blocks=can_draw_blocks()):
            screen.print(line, style="cyan", no_wrap=True)


def _cells(row: Row, *, short: bool = False) -> list[str]:
    used = row.tokens
    counts = (row.requests, used.input, used.cached, used.output, used.thoughts, used.total)
    return [_name(row, short=short), *(f"{count:,}" for count in counts), _money(row)]


def _name(row: Row, *, short: bool) -> str:
    return flat(row.key)[: views.SHORT_ID] if short else flat(row.key)


def _money(row: Row) -> str:
    if row.cost is None:
        return "unknown"
    return f"${row.cost:,.4f}" if row.exact else f"${row.cost:,.4f} + ?"


def _missing(report: Report) -> list[str]:
    prices = [
        f"no price for {model}: {tokens.total:,} tokens"
        for model, tokens in report.total.unpriced.items()
    ]
    nothing = ["nothing was used in that time"] if not report.rows else []
    return [
        *nothing,
        *prices,
        *(f"not counted: {one.path}: {one.reason}" for one in report.problems),
        *report.unsaved(),
    ]
