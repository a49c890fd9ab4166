"""A pytest plugin: every headless run goes to a CLI that was started ahead, a moment before.

`make test-spares` runs the tests of the transport with it.
"""

import logging
from collections.abc import Iterator

import pytest

from geminorum.errors import GeminorumError
from geminorum.transports.cli import spares
from geminorum.transports.cli.spares import Spare, SpareOrder, Spares

_WENT_AHEAD = "the prompt went to a CLI that was started"


async def take_a_new_one(self: Spares, order: SpareOrder) -> Spare | None:
    """In place of `Spares.take`. What cannot start has to fail as a cold run does."""
    if order.refusal is not None:
        return None
    try:
        spare = Spare(order)
        await spare.start()
    except (GeminorumError, OSError):
        return None
    if (why := spare.why_unfit(order, 600)) is not None:
        await spare.close()
        spares.log.debug("a CLI that was started ahead is not used: %s", why)
        return None
    return spare


class Counter(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.taken = 0
        self.unfit: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.taken += text.startswith(_WENT_AHEAD)
        if "is not used" in text:
            self.unfit.append(text)


@pytest.fixture(autouse=True)
def every_run_over_a_spare(monkeypatch: pytest.MonkeyPatch, request) -> Iterator[None]:
    counter = Counter()
    monkeypatch.setattr(Spares, "take", take_a_new_one)
    # The next turn's own would hold its session for a moment, and `take` does not wait for it here.
    monkeypatch.setattr(Spares, "refill", lambda *_, **__: None)
    spares.log.addHandler(counter)
    level, spares.log.level = spares.log.level, logging.DEBUG
    yield
    spares.log.removeHandler(counter)
    spares.log.level = level
    request.node.user_properties += [("taken", counter.taken), ("unfit", counter.unfit)]


class Tally:
    """Says at the end how many runs it were, also where other processes made them."""

    def __init__(self) -> None:
        self.taken = 0
        self.unfit: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            found = dict(report.user_properties)
            self.taken += int(found.get("taken", 0))
            self.unfit += found.get("unfit", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        unfit = len(self.unfit)
        terminalreporter.write_line(f"{self.taken} runs over CLIs started ahead, {unfit} unfit")
        for text in sorted({*self.unfit}):
            terminalreporter.write_line(f"  {text}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Tally())
