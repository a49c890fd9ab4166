"""The requests of one turn at the gate: their price, and the events about those that wait."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from geminorum.cost import PriceBook, request_usd
from geminorum.errors import LimitReached
from geminorum.events import Error, ModelRequest
from geminorum.transports.gates import BYTES_PER_TOKEN, Consumed, ModelCall, RequestGate, Settle


class TurnGate:
    """A gate as one turn uses it."""

    def __init__(
        self,
        gate: RequestGate,
        prices: PriceBook | None,
        announce: Callable[[Error], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`announce` puts a notice into the stream of the turn; `is_busy`: is it at a tool?"""
        self._gate, self._prices, self._announce = gate, prices, announce
        self.is_busy = is_busy

    async def admit(self, model: str, key: str | None, size: int) -> Settle:
        """Returns when a request of so many bytes may be sent. Raises LimitReached."""
        tokens = size // BYTES_PER_TOKEN
        usd = self._price(ModelRequest(model=model, input=tokens, total=tokens))
        call = ModelCall(model=model, key=key, tokens=tokens, usd=usd)
        return await self._gate.admit(call, self._on_wait)

    def consumed(self, request: ModelRequest) -> Consumed:
        return Consumed(tokens=request.total, usd=self._price(request))

    def _on_wait(self, what: str) -> None:
        self._announce(
            Error(
                what,
                LimitReached.code,
                recoverable=True,
                hint=LimitReached.default_hint,
                retryable=True,
            )
        )

    def _price(self, request: ModelRequest) -> Decimal | None:
        try:
            return request_usd(request, self._prices)
        except Exception:
            return None  # A price book of the caller's may do anything.
