"""ISO time stamps to milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

_LATEST = 253_370_764_800_000
"""The year 9999 begins. Later moments cannot be told in every time zone, and tell nothing."""
FRACTIONS = {f"{number:03}Z": number for number in range(1000)}
"""The milliseconds in the last four letters of a stamp."""


class Clock:
    """Reads the stamps of one stream. Most share their second with the one before, so that is
    kept: reading each from its beginning would take longer than decoding the whole line.
    """

    def __init__(self) -> None:
        self.second = "none yet"
        """The first twenty letters of the stamps of the latest second."""
        self.base = 0
        """When that second began."""
        self.last = 0
        """The latest moment that a stamp told."""

    def milliseconds(self, stamp: str) -> int:
        """Since 1970; where the stamp says nothing, as late as the one before."""
        if stamp[:20] == self.second and (fraction := FRACTIONS.get(stamp[20:])) is not None:
            self.last = last = self.base + fraction
            return last
        self.last = self._parsed(stamp)
        return self.last

    def _parsed(self, stamp: str) -> int:
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            return self.last
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = round(moment.timestamp() * 1000)
        # A date before 1970 comes from a broken clock, and may not exist in every time zone.
        if not 0 <= milliseconds <= _LATEST:
            return self.last
        if stamp[20:] in FRACTIONS:
            self.second, self.base = stamp[:20], milliseconds // 1000 * 1000
        return milliseconds
