"""What the process of a turn prints, as far as it was taken in."""

from __future__ import annotations

import asyncio

from geminorum.events import Event
from geminorum.transports.process.tree import Child
from geminorum.transports.turns.stop_checks import Reason
from geminorum.wire.ending import POLICY_ERROR
from geminorum.wire.stream_json.decoder import StreamDecoder

_YIELD_EVERY_BYTES = 512 * 1024
"""Bytes between two looks at what else the event loop has to do: a few milliseconds of work."""


class CliOutput:
    """Decodes the output of one process, and counts what was taken in."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self.decoder = decoder
        self._taken = self._yielded_at = self._results_seen = 0
        self._is_policy_checked = False

    def feed(self, chunk: bytes) -> list[Event]:
        self._taken += len(chunk)
        return self.decoder.feed(chunk)

    async def yield_to_loop(self) -> None:
        """A consumer that never has to wait would keep every other task waiting."""
        if self._taken - self._yielded_at >= _YIELD_EVERY_BYTES:
            self._yielded_at = self._taken
            await asyncio.sleep(0)

    @property
    def tool_runs(self) -> bool:
        return self.decoder.tool_uses > self.decoder.tool_results

    def is_behind(self, child: Child) -> bool:
        """Has the process written what was not taken in yet?"""
        return child.written > self._taken

    @property
    def has_new_results(self) -> bool:
        """Has a tool ended since `note_results` was last called?"""
        return self.decoder.tool_results != self._results_seen

    def note_results(self) -> None:
        self._results_seen = self.decoder.tool_results

    @property
    def is_policy_checked(self) -> bool:
        return self._is_policy_checked

    def check_policy(self, child: Child) -> Reason | None:
        """The CLI reads its policies before it first speaks, and runs on without a broken one."""
        if self._is_policy_checked:
            return None
        self._is_policy_checked = child.written > 0
        return ("bad_policy", None) if POLICY_ERROR in child.stderr() else None
