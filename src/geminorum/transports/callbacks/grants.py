"""Grants for calls of functions: each approved request lets one call run, once."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeAlias

import msgspec

Ask: TypeAlias = Callable[[dict[str, Any]], Awaitable[str | None]]
"""Arguments to the reason why they are refused; None: they are allowed."""

_UNASKED = "geminorum refuses it: nobody has allowed this call with these arguments"


class Grants:
    """Permissions for the functions in `asked`, by name and arguments; the others need none.

    Whoever knows the token can call, and a command that was allowed may have found it. So a
    function that somebody is asked about runs only for a call that somebody said yes to.
    """

    def __init__(self, asked: Collection[str] = ()) -> None:
        self._asked = frozenset(asked)
        self._left: Counter[tuple[str, bytes]] = Counter()
        self._postponed: defaultdict[str, deque[Ask]] = defaultdict(deque)

    def leave(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Lets one call with exactly these arguments run."""
        self._left[name, _exact(arguments)] += 1

    def postpone(self, name: str, ask: Ask) -> None:
        """For a question that did not tell the arguments: `ask` decides when the call does."""
        self._postponed[name].append(ask)

    def revoke(self) -> None:
        """What was not used by now never will be."""
        self._left.clear()
        self._postponed.clear()

    async def consume(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Uses up the grant for this call. Returns why the call may not run, or None: it may."""
        call = (name, _exact(arguments))
        if name not in self._asked:
            return None
        if self._left[call] > 0:
            self._left[call] -= 1
            return None
        if self._postponed[name]:
            return await self._postponed[name].popleft()(arguments)
        return _UNASKED


def _exact(arguments: Mapping[str, Any]) -> bytes:
    # As text: for Python 1, 1.0 and True are equal.
    return msgspec.json.encode(arguments, order="deterministic")
