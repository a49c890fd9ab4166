"""The server of a warm process at which it asks before each of its requests to a model."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from geminorum.transports.callbacks.gate_server import GateServer
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.launch.preloads.request_gate import GateAddress, hide_address
from geminorum.transports.turns.request_gate import TurnGate

_REQUESTS = "/request"


class ProcessGate:
    """A server of its own, for as long as the block; its turns come and go."""

    def __init__(self, resident: TurnGate) -> None:
        """`resident` is asked while the process has no turn."""
        self.requests = GateServer(self._hide_address, resident)
        self.home: Path | None = None
        """The overlay of the process, once there is one."""
        self._server = Loopback({_REQUESTS: self.requests.answer}, revocable=[_REQUESTS])
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ProcessGate:
        await self._stack.enter_async_context(self._server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def address(self) -> GateAddress:
        return GateAddress(self._server.port, _REQUESTS, self._server.token_for(_REQUESTS))

    def _hide_address(self) -> None:
        if self.home is not None:
            hide_address(self.home)
