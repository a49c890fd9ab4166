"""Which agent is meant: the shape's verbs serve several, this package serves one."""

from __future__ import annotations

from geminorum.errors import Unsupported

TOOL = "gemini"


def refuse_others(tool: str) -> None:
    if tool != TOOL:
        raise Unsupported(f"no agent {tool!r} here", hint=f"tool={TOOL!r}, or leave it out")
