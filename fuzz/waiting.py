"""Coroutines in a loop that lives as long as this process, and whose complaints are findings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from fuzz.soundness import Unsound

T = TypeVar("T")
_complaints: list[str] = []


def answered(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns; Unsound where asyncio has a complaint besides."""
    result = _loop().run(work)
    if _complaints:
        text = _complaints.pop()
        _complaints.clear()
        raise Unsound(text)
    return result


@cache
def _loop() -> asyncio.Runner:
    runner = asyncio.Runner()
    runner.get_loop().set_exception_handler(_note)
    return runner


def _note(loop: object, context: dict[str, Any]) -> None:
    _complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
