"""The scripts of this package that Node loads ahead of the CLI."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script_text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
