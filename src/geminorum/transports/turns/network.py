"""Requests of a CLI that do not reach the API: tells of each, and ends the turn after a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from geminorum.errors import NetworkError
from geminorum.events import Error
from geminorum.transports.launch.preloads.network_log import Incident, NetworkLog
from geminorum.transports.turns.stop_checks import Reason

_MAX_INCIDENTS_AT_ONCE = 20


class NetworkWatch:
    """One turn's view of the log: announces each failure, and gives up after `limit` seconds
    in which no request was answered."""

    PAUSE = 0.2

    def __init__(
        self,
        log: NetworkLog,
        limit: float | None,
        announce: Callable[[Error], None],
        is_busy: Callable[[NetworkWatch], bool],
    ) -> None:
        """`is_busy`: does the turn wait for something else than the network?"""
        self._log, self._limit = log, limit
        self._announce, self._is_busy = announce, is_busy
        self._position = log.size()
        self._since: float | None = None
        self._is_connected = False
        self.failures = 0
        """How many requests in a row did not get through."""
        self.trouble = ""
        """What could not be reached, and why; empty while all is well."""

    def look(self) -> Reason | None:
        """Takes in what is new; a reason to stop where it has taken too long."""
        incidents, self._position = self._log.read(self._position)
        for incident in incidents[-_MAX_INCIDENTS_AT_ONCE:]:
            self._take(incident)
        if self._since is not None and (self._is_connected or self._is_busy(self)):
            self._since = time.monotonic()
        if self._since is None or self._limit is None:
            return None
        waited = time.monotonic() - self._since
        return ("network", self._limit) if waited >= self._limit else None

    def _take(self, incident: Incident) -> None:
        self._is_connected = incident.state == "connected"
        if incident.state == "answered":
            self._since, self.failures, self.trouble = None, 0, ""
        elif not self._is_connected:
            self._since = time.monotonic() if self._since is None else self._since
            self.failures += incident.state == "failed"
            self.trouble = str(incident)
            self._announce(announcement_of(self.trouble, self._limit))


def announcement_of(trouble: str, limit: float | None) -> Error:
    """The event that tells of a retry."""
    how_long = "" if limit is None else f", for {limit:g} s at most"
    text = f"{trouble}; trying again{how_long}"
    hint = NetworkError.default_hint
    return Error(text, NetworkError.code, recoverable=True, hint=hint, retryable=True)
