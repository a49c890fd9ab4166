"""Runs of the real CLI that several tests look at, each made once."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any


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
