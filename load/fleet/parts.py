"""What the measurements share: where they run, what they measure, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from load.fleet.machines import Postgres


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a measurement takes place."""

    place: Path
    postgres: Postgres
    stand_in: Path
    """A program that plays the CLI."""
    cli: Path | None
    """The real one; None: nothing needs it."""


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    place = math.ceil(len(ordered) * percent / 100) - 1
    return ordered[max(place, 0)] if ordered else math.nan
