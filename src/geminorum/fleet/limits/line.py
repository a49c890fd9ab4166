"""Requests of one tenant, key and model, one behind the other: only the first asks the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from weakref import WeakValueDictionary

from geminorum.fleet.limits.buckets import Obstacle

Place = tuple[str, str | None, str]
"""Tenant, key and model."""
_NOTICE_SECONDS = 0.5
"""Shorter waits are not worth an event."""
_LONGEST_PAUSE_SECONDS = 5.0
"""Limits may be raised while a request waits for one."""


class Line:
    """Keeps their order, and gives each tenant of a worker one voice, however many wait."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by the first."""
        self.obstacle: Obstacle | None = None
        """What the first waits for."""

    async def pause(self, obstacle: Obstacle) -> None:
        """Until it is worth asking again. Not in step with other workers, and often enough that no
        bucket runs over meanwhile."""
        self.obstacle = obstacle
        spread = random.uniform(0, obstacle.fill_seconds / 2)  # nosec B311  # no secret
        await asyncio.sleep(min(obstacle.seconds + spread, _LONGEST_PAUSE_SECONDS))


class Notice:
    """Says what a request waits for once it has waited for a moment, in a block around the wait."""

    def __init__(self, line: Line, give: Callable[[str], None]) -> None:
        self._line, self._give = line, give
        self._timer: asyncio.TimerHandle | None = None
        self.is_given = False

    def __enter__(self) -> Notice:
        self._timer = asyncio.get_running_loop().call_later(_NOTICE_SECONDS, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if self._line.obstacle is None:
            self.__enter__()  # Those before it have just gone through: perhaps it does, too.
            return
        self.is_given = True
        self._give(self._line.obstacle.label)


class Lines:
    """Those of a worker; one that nobody stands in is gone."""

    def __init__(self) -> None:
        self._lines: WeakValueDictionary[Place, Line] = WeakValueDictionary()

    def at(self, place: Place) -> Line:
        if (line := self._lines.get(place)) is None:
            line = self._lines[place] = Line()
        return line
