"""`geminorum doctor --try`: which rows of docs/versions.md hold on the installed CLI."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from geminorum import doctor
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.render.keys import echo_is_off
from geminorum.apps.command.render.output import console, print_json_line
from geminorum.apps.command.render.style import arrow
from geminorum.apps.command.setup.doctor import command_fix, lines_of
from geminorum.doctor.probes import ROWS
from geminorum.errors import RunTimeout

if TYPE_CHECKING:
    from geminorum.doctor import Check


def try_and_print(timeout: float, *, json: bool) -> Exit:
    """Prints one line per row, then a verdict and what to type."""
    with echo_is_off(), _show_progress(timeout) as advance:
        cli, *rows = doctor.try_cli(timeout=timeout, on_check=advance)
    if json:
        _print_json([cli, *rows])
    else:
        _print([cli, *rows])
    if cli.level == "fail":
        return Exit.SETUP
    return Exit.OK if all(row.level == "ok" for row in rows) else Exit.FAILED


def verdict_on(cli: Check, *rows: Check) -> str:
    if cli.level == "fail":
        return "nothing was tried"
    good = sum(row.level == "ok" for row in rows)
    if good == len(rows):
        return f"all {len(rows)} rows that were tried hold on this CLI"
    late = sum(row.code == RunTimeout.code for row in rows)
    bad = len(rows) - good - late
    counts = (
        (good, "holds" if good == 1 else "hold"),
        (bad, "does not hold" if bad == 1 else "do not hold"),
        (late, "did not finish"),
    )
    tried = "row that was tried" if len(rows) == 1 else "rows that were tried"
    return ", ".join([f"of {len(rows)} {tried}", *(f"{n} {what}" for n, what in counts if n)])


def _print_json(checks: list[Check]) -> None:
    for check in checks:
        print_json_line(check)


def _print(checks: list[Check]) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    rows = [line for check in checks for line in lines_of(_plain(check), width)]
    # Once each, below: many rows have the same fix.
    fixes = dict.fromkeys(command_fix(check.fix) for check in checks if check.fix)
    advice = [f"    {arrow(sys.stdout)} {fix}" for fix in fixes]
    lines = [*rows, "", verdict_on(*checks), *advice]
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _plain(check: Check) -> Check:
    """Without the Markdown of the page that the row is from, and without its fix."""
    return replace(check, name=check.name.replace("`", ""), fix="")


@contextmanager
def _show_progress(timeout: float) -> Iterator[Callable[[object], None]]:
    """A bar that advances with each row; one line in a pipe."""
    screen = console(stderr=True)
    if not screen.is_terminal or screen.is_dumb_terminal:
        limit = f"at most {timeout:g} seconds"
        sys.stderr.write(f"trying the Gemini CLI offline, with a simulated model; {limit}\n")
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("Trying the Gemini CLI offline", total=len(ROWS) + 1)
        yield lambda _: bar.advance(task)
