"""Stops a turn of the headless CLI: the request, and the end of its process."""

from __future__ import annotations

import asyncio

from geminorum.transports.cli.process import CliProcess
from geminorum.transports.turns.stop_checks import Reason


class CliStop:
    """Why a turn is to stop, and the task that stops its process."""

    def __init__(self) -> None:
        self.requested: Reason | None = None
        """The first reason, whether or not there was anything left to stop."""
        self.begun: Reason | None = None
        """The reason for which a process was really ended."""
        self._task: asyncio.Task[None] | None = None

    def request(self, reason: Reason, process: CliProcess | None) -> None:
        """Ends the process; where there is none yet, it is to be called again when there is."""
        self.requested = self.requested or reason
        # What ended by itself was not ended by us.
        if process is None or self.begun is not None or process.child.exit_code is not None:
            return
        process.child.begin_stop()
        self.begun = reason
        self._task = asyncio.create_task(_stop(process))

    async def wait(self) -> None:
        if self._task is not None:
            # Not `shield`: where another task leaves the turn, it cancels this one, not its caller.
            await asyncio.wait([self._task])

    def hurry(self, process: CliProcess | None) -> None:
        if self._task is not None and process is not None:
            process.child.kill()

    def cancel(self) -> None:
        """The turn is left, which ends the process anyway."""
        if self._task is not None:
            self._task.cancel()


async def _stop(process: CliProcess) -> None:
    await process.withdraw()
    await process.child.stop()
