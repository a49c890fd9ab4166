"""Runs of the real CLI that several tests look at, made once. A start takes two seconds of CPU."""

from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

COMPILED = (
    Path(__file__).resolve().parents[1] / ".pytest_cache/compiled/geminorum/node-compile-cache"
)
"""Where compiled code of the CLI is kept between tests."""


def live_in(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Nothing reads or writes the home of whoever runs it; compiled code is kept between tests."""
    patch.setenv("HOME", str(home))
    patch.setenv("XDG_CACHE_HOME", str(COMPILED.parent.parent))
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_CLI_HOME", "GEMINI_MODEL"):
        patch.delenv(name, raising=False)


@contextmanager
def private_place(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What `private_home` is for a test, for the runs that a wider fixture makes in this block.

    Gives a new folder for the agents to work in.
    """
    place = factory.mktemp("shared")
    for name in ("home", "work"):
        (place / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        live_in(place / "home", patch)
        yield place / "work"


class Once:
    """`await once(key, make)` makes what has that key, for whoever asks first.

    Meant for a module-scoped fixture. What is made is made within the test that asks first, with
    that test's home and variables, so it has to be over by then: results, not processes.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    async def __call__(self, key: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        if key not in self._made:
            self._made[key] = await make()
        return self._made[key]
