"""The checks of one turn, started together and cancelled together."""

from __future__ import annotations

from collections.abc import Callable

from geminorum.cost import PriceBook
from geminorum.events import Event, ModelRequest
from geminorum.transports.turns.network import NetworkWatch
from geminorum.transports.turns.stop_checks import BudgetGuard, PeriodicCheck, Reason, StallDetector
from geminorum.wire.ending import Stop


class TurnLimits:
    """The checks of one turn: the network from the start, silence and budget on request."""

    def __init__(self, network: NetworkWatch, stop: Callable[[Stop, float | None], None]) -> None:
        self.network, self._stop = network, stop
        self._checks: list[PeriodicCheck] = []
        self._retries: list[Event] = []
        self.watch(network.PAUSE, network.look)

    def watch(
        self,
        pause: float,
        look: Callable[[], Reason | None],
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Calls `look` every `pause` seconds; the first reason that it returns stops the turn."""
        self._checks.append(PeriodicCheck(pause, look, self._stop, until))

    def announce(self, retry: Event) -> None:
        """Keeps a network retry until the turn takes it."""
        self._retries.append(retry)

    def take_retries(self) -> list[Event]:
        retries, self._retries = self._retries, []
        return retries

    def watch_silence(self, detector: StallDetector) -> None:
        if detector.pause is not None:
            self.watch(detector.pause, detector.look)

    def watch_budget(
        self,
        budget: float | None,
        prices: PriceBook | None,
        requests: Callable[[], list[ModelRequest]],
        awaits_answer: Callable[[], bool],
    ) -> None:
        if budget is not None:
            guard = BudgetGuard(requests, budget, prices, awaits_answer)
            self.watch(guard.PAUSE, guard.look)

    def cancel(self) -> None:
        for check in self._checks:
            check.cancel()
