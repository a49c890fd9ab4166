"""Modules that are imported when one of their names is first used.

A library that takes long to load, and that most runs never need, is listed here once:

    from geminorum.runtime.lazy import psutil      # loads nothing
    psutil.Process(pid)                    # loads it

For a module of this package, so that a type checker and a reader see an ordinary import:

    if TYPE_CHECKING:
        from geminorum import install
    else:
        install = lazy_module("geminorum.install")
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = [
    "asyncio",
    "difflib",
    "lazy_module",
    "markdown_it",
    "msgspec",
    "platformdirs",
    "price_library",
    "psutil",
    "urllib_parse",
]


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        # Not out of sys.modules, where another thread may have it half loaded.
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, attribute)

    def __repr__(self) -> str:
        return f"<lazy module {self._name!r}>"


def lazy_module(name: str) -> Any:
    """Returns a stand-in for the module, which imports it when an attribute is read."""
    return _LazyModule(name)


if TYPE_CHECKING:
    import asyncio
    import difflib
    import urllib.parse as urllib_parse

    import markdown_it
    import msgspec
    import platformdirs
    import psutil
    from genai_prices import data_snapshot as price_library
else:
    asyncio = lazy_module("asyncio")
    difflib = lazy_module("difflib")
    markdown_it = lazy_module("markdown_it")
    msgspec = lazy_module("msgspec")
    platformdirs = lazy_module("platformdirs")
    price_library = lazy_module("genai_prices.data_snapshot")
    psutil = lazy_module("psutil")
    urllib_parse = lazy_module("urllib.parse")
