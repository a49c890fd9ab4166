"""The result of a check: its status, and the fix for a problem."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, ParamSpec, TypeAlias

import msgspec

Level: TypeAlias = Literal["ok", "warn", "fail"]
P = ParamSpec("P")


class Check(msgspec.Struct, frozen=True):
    """One finding. `fail`: a run cannot work. `warn`: it may, but not as you would expect."""

    name: str
    level: Level
    detail: str
    fix: str = ""
    """What to type; empty if nothing is wrong."""
    code: str = ""
    """For a `fail`: the `code` of the error that a run would end with ("AUTH", "CONFIG" …)."""


Finding: TypeAlias = tuple[Level, str, str, str]
"""Level, detail, fix and code: a Check that has no name yet."""


def ok(detail: str) -> Finding:
    return "ok", detail, "", ""


def warn(detail: str, fix: str) -> Finding:
    return "warn", detail, fix, ""


def fail(detail: str, fix: str, code: str) -> Finding:
    return "fail", detail, fix, code


def worst(findings: Iterable[Finding], otherwise: Finding) -> Finding:
    """The first failure, else the first warning, else that all is well."""
    found = list(findings)
    levels: tuple[Level, ...] = ("fail", "warn")
    bad = (finding for level in levels for finding in found if finding[0] == level)
    return next(bad, otherwise)


def check_of(name: str) -> Callable[[Callable[P, Finding]], Callable[P, Check]]:
    """Gives a check its name, and turns whatever it raises into a finding."""

    def named(function: Callable[P, Finding]) -> Callable[P, Check]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Check:
            try:
                return Check(name, *function(*args, **kwargs))
            # Any exception: the doctor must not crash over what is broken.
            except Exception as error:
                kind = type(error).__name__
                fix = "fix what the message names; the other checks may say more"
                return Check(name, "fail", f"could not be checked: {kind}: {error}", fix, "SETUP")

        return checked

    return named


def to_utf8(path: Path) -> str:
    """The command that mends a file in an encoding of old."""
    old, new = shlex.quote(str(path)), shlex.quote(f"{path}.utf8")
    return f"iconv -f latin1 -t utf-8 {old} > {new} && mv {new} {old}"


def set_aside(path: Path) -> str:
    """The command that takes a broken file out of the way and keeps it."""
    return f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.broken')}"


def nearest_existing(path: Path) -> Path:
    """The path itself, else the first folder above it that is there."""
    return next(place for place in (path, *path.parents) if os.path.lexists(place))
