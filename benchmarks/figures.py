"""One measured number with its target, and the table of many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "MISS", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Empty where there is no target: the figure is there to explain another."""
        if self.at_most is None and self.at_least is None:
            return ""
        too_high = self.at_most is not None and self.value > self.at_most
        too_low = self.at_least is not None and self.value < self.at_least
        return "MISS" if too_high or too_low else "ok"

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"≤ {_number(self.at_most)}"
        return f"≥ {_number(self.at_least)}" if self.at_least is not None else ""

    @property
    def shown(self) -> str:
        return f"{_number(self.value)} {self.unit}".rstrip()

    def as_data(self) -> dict[str, object]:
        return {
            "what": self.what,
            "figure": self.value,
            "unit": self.unit,
            "target": self.target,
            "verdict": self.verdict,
        }


def table(name: str, figures: Iterable[Figure]) -> str:
    """The rows of one measurement, its name on the first."""
    rows = []
    for figure in figures:
        rows.append(
            f"{name:<12}{figure.what:<52}{figure.shown:>16}  {figure.target:>8}  {figure.verdict}"
        )
        name = ""
    return "\n".join(row.rstrip() for row in rows)


HEAD = f"{'':<12}{'what':<52}{'figure':>16}  {'target':>8}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
