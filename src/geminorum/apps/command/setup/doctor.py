"""`geminorum doctor`: is everything in place, and what to type where it is not."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.failures import command_hint
from geminorum.apps.command.render.output import confirmed, print_json_line
from geminorum.apps.command.render.style import arrow, styled
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.setup import doctor_try
    from geminorum.doctor import Check
else:
    doctor_try = lazy_module("geminorum.apps.command.setup.doctor_try")

app = new_app()

_MARKS = {"ok": ("✓", "ok", "green"), "warn": ("!", "!", "yellow"), "fail": ("✗", "x", "red")}


@app.command()
def doctor(
    live: Annotated[
        bool,
        typer.Option("--live", help="Also send a short prompt to the model; costs a few tokens."),
    ] = False,
    try_: Annotated[
        bool,
        typer.Option(
            "--try", help="Only test the CLI itself, offline: which features work with it?"
        ),
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Fix what can be fixed safely; asks before each change.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --fix: do not ask.")] = False,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", "-C", help="Check for a run in this folder.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(help="Time limit for --live or --try, in seconds.", min=0.1, metavar="N"),
    ] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per check.")] = False,
) -> Exit:
    """Check everything that a run needs and say how to fix it. Changes nothing without --fix."""
    if try_:
        return _try(timeout, live or fix, json=json)
    options = geminorum.Options(cwd=cwd)
    checks = geminorum.doctor.check(options, live, live_timeout=timeout)
    _put(checks, json=json)
    if fix and _mend(checks, yes=yes):
        checks = _check_again(options, json=json)
    return Exit.SETUP if any(check.level == "fail" for check in checks) else Exit.OK


def _try(timeout: float, other: bool, *, json: bool) -> Exit:
    if other:
        raise InvalidOptions("--try goes with neither --live nor --fix", hint="one at a time")
    return doctor_try.try_and_print(timeout, json=json)


def lines_of(check: Check, width: int | None = None) -> list[str]:
    """A check as a line, and what to type as another."""
    wide, narrow, colour = _MARKS[check.level]
    mark = wide if arrow(sys.stdout) == "→" else narrow
    first, *rest = _wrapped(check, width)
    head = f"{styled(mark, colour)} {styled(check.name, 'bold')}  {first}".rstrip()
    # What is to be typed stays in one piece, so that it can be copied.
    fix = [f"    {arrow(sys.stdout)} {command_fix(check.fix)}"] if check.fix else []
    return [head, *rest, *fix]


def _wrapped(check: Check, width: int | None) -> list[str]:
    """The detail, broken between words where a terminal would break it in the middle of one."""
    if width is None:
        return [check.detail]
    width, taken = max(width, 30), len(check.name) + 4
    # A word that is too long for the rest of the first line, a path for one, begins the next.
    begins_below = taken + len(check.detail.partition(" ")[0]) > width
    indent = "    " if begins_below else " " * taken
    lines = textwrap.wrap(
        check.detail,
        width,
        initial_indent=indent,
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    if begins_below or not lines:
        return ["", *lines]
    return [lines[0].removeprefix(indent), *lines[1:]]


def command_fix(fix: str) -> str:
    """What to type, in the words of the command line."""
    return command_hint(fix) or fix


def verdict_on(checks: list[Check]) -> str:
    failed = sum(check.level == "fail" for check in checks)
    warned = sum(check.level == "warn" for check in checks)
    if failed:
        return f"{_counted(failed, 'problem')} to fix before a run can work"
    return f"a run should work; {_counted(warned, 'warning')}" if warned else "all is well"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _put(checks: list[Check], *, json: bool) -> None:
    if json:
        for check in checks:
            print_json_line(check)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    rows = [line for check in checks for line in lines_of(check, width)]
    sys.stdout.writelines(f"{line}\n" for line in [*rows, "", verdict_on(checks)])
    # Before the messages of the repair, also if both go into one pipe.
    sys.stdout.flush()


def _mend(checks: list[Check], *, yes: bool) -> bool:
    """Was anything done?"""
    done = False
    # One remedy may help against two findings; it is asked about once.
    remedies = {one.what: one for one in map(geminorum.doctor.remedy_for, checks) if one}
    if remedies and not yes and not (sys.stdin and sys.stdin.isatty()):
        raise InvalidOptions("there is nobody to ask", hint="add --yes to fix it without asking")
    for remedy in remedies.values():
        if yes or confirmed(remedy.what, err=True):
            _tell(remedy.apply())
            done = True
    if not done:
        well = all(check.level == "ok" for check in checks)
        _tell("nothing to fix" if well else "nothing was changed; the rest is yours to fix")
    return done


def _check_again(options: geminorum.Options, *, json: bool) -> list[Check]:
    checks = geminorum.doctor.check(options)
    if not json:
        sys.stdout.write("\n")
    _put(checks, json=json)
    return checks


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
