"""A lease over all agents of this process: they end at once when it was not renewed in time.

A worker of a fleet renews it for as long as its jobs are its own. Whatever happens to the worker,
be it stopped, hanging or cut off: keepers are processes of their own, so that no agent is at work
when another worker takes over.
"""

from __future__ import annotations

import math

from geminorum.errors import InvalidOptions, Unsupported
from geminorum.transports.process.keeper import KEEPERS, KeeperServer
from geminorum.transports.process.lease_memory import LEASE_MEMORY, LeaseMemory, boot_time_ns

_LONGEST_SECONDS = 1e9


class AgentLease:
    """One for each process, for any thread of it. A fork has its own, over its own agents."""

    def __init__(self, memory: LeaseMemory, keepers: KeeperServer) -> None:
        self._memory, self._keepers = memory, keepers

    def renew(self, seconds: float) -> bool:
        """Lets the agents live for so long from now; False where the last lease has passed.

        Agents that ran under a lease that has passed end all the same; new ones can start. The
        first call waits for the server of the keepers; those that follow make no call that blocks,
        and a signal handler may make them. Raises Unsupported where there are no keepers.
        """
        if not 0 <= seconds <= _LONGEST_SECONDS:  # Also not a number.
            raise InvalidOptions(
                f"a lease of {seconds} seconds: expected 0 to {_LONGEST_SECONDS:g}"
            )
        if not self.is_set and not self._keepers.is_available():
            raise Unsupported(NO_KEEPERS, hint="run agents under a lease on Linux 5.4 or newer")
        deadline = boot_time_ns() + math.ceil(seconds * 1e9)
        return self._memory.set_deadline(deadline, self._keepers.wake)

    def end(self) -> None:
        """Lets the agents live without a lease, except those whose lease has passed."""
        if self.is_set:
            self._memory.set_deadline(0, self._keepers.wake)

    @property
    def is_set(self) -> bool:
        return self._memory.deadline != 0

    @property
    def is_expired(self) -> bool:
        """Has it passed? Agents that ran under it have ended or are ending; none starts."""
        return self._memory.has_passed


NO_KEEPERS = "a lease over agents needs keepers, and this system has none"
AGENT_LEASE = AgentLease(LEASE_MEMORY, KEEPERS)
