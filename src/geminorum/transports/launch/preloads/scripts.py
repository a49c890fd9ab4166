"""The scripts of this package that Node loads ahead of the CLI."""

from __future__ import annotations

from functools import cache
from pkgutil import get_data


@cache
def script_text(name: str) -> str:
    # Not `importlib.resources`, which loads `zipfile`: the CLI starts only after that.
    data = get_data(__package__, name)
    assert data is not None
    return data.decode()
