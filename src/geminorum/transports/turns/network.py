"""The requests of a CLI that do not reach the API: told as events, and ended when it takes long."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from geminorum.errors import NetworkError
from geminorum.events import Error
from geminorum.runtime import typed
from geminorum.system.regular_file import open_regular
from geminorum.transports.launch.preloads.scripts import script_text
from geminorum.transports.turns.stop_checks import Reason

_SCRIPT, _LOG = "network_watch.cjs", "network.jsonl"
_MAX_BYTES_AT_ONCE = 64 * 1024
_MAX_INCIDENTS_AT_ONCE = 20


class Incident(msgspec.Struct, frozen=True):
    """What became of one request to a model."""

    state: Literal["waiting", "failed", "connected", "answered"]
    address: str
    why: str = ""

    def __str__(self) -> str:
        return f"cannot reach {self.address}: {self.why}"


class NetworkLog:
    """A file that a script inside of the CLI writes, because the CLI itself retries in silence."""

    def __init__(self, home: Path) -> None:
        self._script, self._file = home / _SCRIPT, home / _LOG

    @property
    def files(self) -> dict[str, str]:
        return {_SCRIPT: script_text(_SCRIPT), _LOG: ""}

    @property
    def node_flag(self) -> str:
        return f"--import={self._script.as_uri()}"

    def size(self) -> int:
        try:
            return self._file.stat().st_size
        except OSError:
            return 0  # The run is over, and its folder gone.

    def read(self, start: int) -> tuple[list[Incident], int]:
        """The incidents behind `start`, and where the next ones begin."""
        if self.size() <= start:
            return [], start
        try:
            # A command that was allowed may put anything in its place, a pipe for one.
            with open_regular(self._file) as file:
                file.seek(start)
                data = file.read(_MAX_BYTES_AT_ONCE)
        except OSError:
            return [], start
        whole, end, rest = data.rpartition(b"\n")
        if len(rest) == _MAX_BYTES_AT_ONCE:
            return [], start + len(rest)  # Not one of our lines.
        found = [_incident_in(line) for line in whole.split(b"\n")]
        return [one for one in found if one is not None], start + len(whole + end)


def _incident_in(line: bytes) -> Incident | None:
    try:
        return typed.decode(line, Incident)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # A command that was allowed may write there.


class NetworkWatch:
    """One turn's view of that file: announces each failure, and gives up after `limit` seconds
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
