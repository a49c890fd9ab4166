"""Measured loads to the page docs/figures.md and its picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from load.subject import Figures

ROOT = Path(__file__).parent.parent
PAGE, PICTURE = ROOT / "docs/figures.md", ROOT / "docs/pictures/load.svg"

TITLES = {
    "stand-in": "programs that print 200 events, 2 ms apart",
    "cli": "headless runs of the real CLI (`Cli`)",
    "warm": "new sessions of one warm CLI, one turn each (`Acp`)",
}
_HEAD = """\
# Figures under load

What happens when many agents start at the same moment in one Python process. The model is
simulated and answers at once. `make load` measures this and writes this page: it needs a C
compiler, an otherwise idle machine and about five minutes.

- **first event**: the time from the start of all agents until half of them (p50) and 99 % of them
  (p99) had produced their first event.
- **longest stall**: the longest time for which the event loop was blocked.
- **CPU each, memory each**: what the whole machine used, divided by the number of agents; for CPU,
  the share of the Python process is in brackets. A warm CLI that runs already is not counted.

In the first table, a small C program takes the place of the CLI, so that the figures are those of
geminorum and not those of Node. Each row is the median of {rounds} rounds in new processes.
[A hundred runs share one event loop](decisions/0015-a-hundred-at-once.md) says what the time is
spent on.

Measured on {machine}, at commit {commit}.

![Time to the first event and longest stall, by number of agents](pictures/load.svg)
"""
_COLUMNS = (
    "agents at once",
    "failed",
    "all done",
    "first event p50 / p99",
    "longest stall",
    "CPU each (ours)",
    "memory each",
)


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    number: int
    figures: Figures
    cpu_each: float
    """Seconds, of the whole machine."""
    memory_each_mb: float

    def cells(self) -> list[str]:
        figures = self.figures
        return [
            f"{self.number:,}",
            str(figures.failures),
            f"{figures.wall:.2f} s",
            f"{_seconds(figures.first_p50)} / {_seconds(figures.first_p99)}",
            _seconds(figures.stall),
            f"{_seconds(self.cpu_each)} ({_seconds(figures.cpu)})",
            f"{self.memory_each_mb:.1f} MB",
        ]


def page(rows: Sequence[Row], machine: str, commit: str, rounds: int) -> str:
    parts = [_HEAD.format(machine=machine, commit=commit, rounds=rounds)]
    for kind, title in TITLES.items():
        measured = [row.cells() for row in rows if row.kind == kind]
        if measured:
            parts.append(f"## {title[0].upper()}{title[1:]}\n\n{_table(measured)}\n")
    return "\n".join(parts)


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


# ---- the picture

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 360, 70, 30, 210, 50
_LOWEST, _HIGHEST = -3, 1.5
"""Powers of ten: a millisecond to half a minute."""
_CURVES = {
    "first event, 99 of 100": ("first_p99", "#1a73e8"),
    "longest stall": ("stall", "#d93025"),
}
_SECONDS = {0.001: "1 ms", 0.01: "10 ms", 0.1: "100 ms", 1: "1 s", 10: "10 s"}
_DASHES = {"stand-in": "", "cli": "6 4", "warm": "2 3"}
_NAMES = {"stand-in": "stand-ins", "cli": "real CLIs", "warm": "warm sessions"}


def picture(rows: Sequence[Row]) -> str:
    """A chart with logarithmic scales, as SVG."""
    shapes = [*_grid(), *_names()]
    for kind in TITLES:
        measured = [row for row in rows if row.kind == kind]
        for name, colour in _CURVES.values():
            points = [(row.number, getattr(row.figures, name)) for row in measured]
            shapes += _curve(points, colour, _DASHES[kind])
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    white = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
    return "\n".join([head, white, *shapes, "</svg>", ""])


def _x(number: float) -> float:
    span = _WIDTH - _LEFT - _RIGHT
    return _LEFT + span * math.log10(number) / math.log10(300)


def _y(seconds: float) -> float:
    power = min(max(math.log10(max(seconds, 1e-9)), _LOWEST), _HIGHEST)
    span = _HEIGHT - _TOP - _BOTTOM
    return _TOP + span * (_HIGHEST - power) / (_HIGHEST - _LOWEST)


def _grid() -> list[str]:
    shapes = []
    for seconds, name in _SECONDS.items():
        y = _y(seconds)
        shapes.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        shapes.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for number in (1, 10, 100, 300):
        place = f'x="{_x(number):.1f}" y="{_HEIGHT - _BOTTOM + 18}"'
        shapes.append(f'<text {place} text-anchor="middle">{number}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    shapes.append(
        f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">agents at once</text>'
    )
    return shapes


def _names() -> list[str]:
    left, shapes = _WIDTH - _RIGHT + 20, []
    lines = [(name, colour, "") for name, (_, colour) in _CURVES.items()]
    lines += [(name, "#555", _DASHES[kind]) for kind, name in _NAMES.items()]
    for number, (name, colour, dashes) in enumerate(lines):
        y = _TOP + 12 + 22 * number
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        shapes.append(f'<path d="M{left} {y - 4}h28" {stroke}/>')
        shapes.append(f'<text x="{left + 36}" y="{y}">{name}</text>')
    return shapes


def _curve(points: Sequence[tuple[int, float]], colour: str, dashes: str) -> list[str]:
    places = [f"{_x(number):.1f},{_y(seconds):.1f}" for number, seconds in points]
    stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}" fill="none"'
    line = [f'<polyline points="{" ".join(places)}" {stroke}/>'] if len(places) > 1 else []
    dots = [place.split(",") for place in places]
    return [*line, *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in dots)]
