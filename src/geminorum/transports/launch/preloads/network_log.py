"""The requests of a CLI that do not reach the API, as a script in its process writes them down."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from geminorum.runtime import typed
from geminorum.system.regular_file import open_regular
from geminorum.transports.launch.preloads.scripts import script_text

_SCRIPT, _LOG = "network_log.cjs", "network.jsonl"
_MAX_BYTES_AT_ONCE = 64 * 1024


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
