"""FakeGemini: a scriptable Gemini API on loopback, to test an agent offline."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminorum.testing.answers import Call as Call
    from geminorum.testing.answers import Fail as Fail
    from geminorum.testing.answers import Hang as Hang
    from geminorum.testing.answers import Raw as Raw
    from geminorum.testing.answers import Say as Say
    from geminorum.testing.answers import Tokens as Tokens
    from geminorum.testing.fake_gemini import FakeGemini as FakeGemini
    from geminorum.testing.request import Request as Request
    from geminorum.testing.request import ToolResult as ToolResult
    from geminorum.testing.wording import prose as prose

_EXPORTS = {
    "Call": "answers",
    "Fail": "answers",
    "FakeGemini": "fake_gemini",
    "Hang": "answers",
    "Raw": "answers",
    "Request": "request",
    "Say": "answers",
    "Tokens": "answers",
    "ToolResult": "request",
    "prose": "wording",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> object:
    # Loaded at first use: the pytest plugin imports this package in every pytest run.
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
