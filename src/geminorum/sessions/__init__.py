"""Saved sessions of the Gemini CLI: find, list, read, follow, export, fork and delete them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminorum.sessions.catalogue import Catalogue as Catalogue
    from geminorum.sessions.catalogue import SessionPage as SessionPage
    from geminorum.sessions.exporting import export as export
    from geminorum.sessions.finding import find as find
    from geminorum.sessions.finding import listed as list
    from geminorum.sessions.finding import load as load
    from geminorum.sessions.finding import tail as tail
    from geminorum.sessions.keeping import delete as delete
    from geminorum.sessions.keeping import fork as fork
    from geminorum.sessions.reading import Session as Session
    from geminorum.sessions.summary import SessionInfo as SessionInfo

# Loaded when first asked for: a run needs a few parts of this package, and should start soon.
_MODULE_OF = {
    "Catalogue": ("catalogue", "Catalogue"),
    "Session": ("reading", "Session"),
    "SessionInfo": ("summary", "SessionInfo"),
    "SessionPage": ("catalogue", "SessionPage"),
    "delete": ("keeping", "delete"),
    "export": ("exporting", "export"),
    "find": ("finding", "find"),
    "fork": ("keeping", "fork"),
    "list": ("finding", "listed"),
    "load": ("finding", "load"),
    "tail": ("finding", "tail"),
}
__all__ = [
    "Catalogue",
    "Session",
    "SessionInfo",
    "SessionPage",
    "delete",
    "export",
    "find",
    "fork",
    "list",
    "load",
    "tail",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'geminorum.sessions' has no attribute {name!r}")
    home, inside = _MODULE_OF[name]
    value = getattr(import_module(f"geminorum.sessions.{home}"), inside)
    globals()[name] = value
    return value
