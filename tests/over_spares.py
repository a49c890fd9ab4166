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


@pytest.fixture(scope="session", autouse=True)
def counter() -> Iterator[Counter]:
    """From the first run on: modules and classes have runs that their tests share."""
    counter = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spares, "take", take_a_new_one)
        # The next turn's own would hold its session for a moment, and `take` does not wait for it.
        patch.setattr(Spares, "refill", lambda *_, **__: None)
        patch.setattr(spares.log, "level", logging.DEBUG)
        spares.log.addHandler(counter)
        yield counter
        spares.log.removeHandler(counter)


@pytest.fixture(autouse=True)
def every_run_over_a_spare(counter: Counter, request) -> Iterator[None]:
    yield
    request.node.user_properties += [("taken", counter.taken), ("unfit", counter.unfit)]
    counter.taken, counter.unfit = 0, []


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
