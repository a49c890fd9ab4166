"""A batch while it runs, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from geminorum.apps.command.render.keys import echo_is_off
from geminorum.apps.command.render.output import console

if TYPE_CHECKING:
    from geminorum.apps.command.batch.journal import Journal, TaskOutcome
    from geminorum.apps.command.batch.runner import Batch, Budget


class Meter:
    """Counts, and a bar where there is a terminal for it."""

    def __init__(self, journal: Journal, total: int) -> None:
        self.total = total
        self._counts = Counter(_kind(one) for one in journal.outcomes.values())
        self._progress: Any = None
        self._bar: Any = None

    @contextmanager
    def show(self) -> Iterator[Meter]:
        """Shows the progress on stderr, so that results can go through a pipe."""
        screen = console(stderr=True)
        if not screen.is_terminal or screen.is_dumb_terminal:
            yield self
            return
        with echo_is_off(), _progress(screen) as self._progress:
            self._bar = self._progress.add_task("", total=self.total, completed=self.done)
            yield self

    @property
    def done(self) -> int:
        return self._counts.total()

    @property
    def failed(self) -> int:
        return self._counts["failed"]

    def add(self, outcome: TaskOutcome, batch: Batch) -> None:
        self._counts[_kind(outcome)] += 1
        if self._progress is not None:
            words = f"{self.failed} failed  ${batch.budget.spent:.4f}"
            self._progress.update(self._bar, completed=self.done, description=words)


def _progress(screen: Any) -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = [
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    ]
    if screen.width >= 60:
        columns.append(TimeRemainingColumn())
    return Progress(*columns, console=screen, expand=True)


def _kind(outcome: TaskOutcome) -> str:
    return "done" if outcome.status == "success" else "failed"


def summary(meter: Meter, batch: Batch, journal: Journal) -> list[str]:
    """What came of it, and what to type next."""
    left = meter.total - meter.done
    counts = f"{meter.done - meter.failed} done, {meter.failed} failed, {left} left"
    lines = [f"{counts}; {_spent(batch.budget)}; results in {journal.results}"]
    if batch.brake == "budget":
        dearest = f"the dearest prompt took ${_plain(batch.budget.dearest)}"
        lines.append(
            f"the budget of ${_plain(batch.budget.limit)} is used up ({dearest});"
            " raise --budget and run the command again to continue"
        )
    elif batch.brake == "no_price":
        lines.append("a model answered whose price is not known; leave --budget out, or --model")
    elif left:
        jobs = "; jobs that were submitted go on meanwhile" if batch.goes_on_elsewhere else ""
        lines.append(f"run the same command again to continue{jobs}")
    if meter.failed:
        lines.append(_first_failure(journal))
        lines.append("add --retry-failed to send the failed ones again")
    return lines


def _spent(budget: Budget) -> str:
    spent = f"${_plain(budget.spent)} spent"
    if not budget.assumed:
        return spent
    return f"{spent} (${_plain(budget.assumed)} of it assumed for attempts that were killed)"


def greeting(meter: Meter) -> list[str]:
    """What a batch that goes on says first: in a pipe it would say nothing until its end."""
    left = meter.total - meter.done
    if not meter.done or not left:
        return []
    return [f"{meter.done} of {meter.total} prompts are done already; {left} to go"]


def _first_failure(journal: Journal) -> str:
    """Often all of them failed alike, and one reason tells it."""
    first = next(one for one in journal.outcomes.values() if _kind(one) == "failed")
    reason = first.error.message if first.error else first.status
    return f"first failure, {first.id!r}: {' '.join(reason.split())}"


def _plain(usd: Decimal | None) -> str:
    return f"{(usd or Decimal(0)).normalize():f}"


def tell(lines: list[str]) -> None:
    """On stderr; a terminal gets lines that break between words."""
    screen = console(stderr=True)
    for line in lines:
        screen.print(line, soft_wrap=not screen.is_terminal)
