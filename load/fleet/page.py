"""Measured figures to the tables of a page, between the marks that are there for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure

from load.machine import commit, description
from load.page import ROOT

PAGE = ROOT / "docs/scaling.md"
_MORE = "… "
"""Begins the name of a figure that belongs to the one before."""


def write(found: Mapping[str, Sequence[Figure]], page: Path = PAGE) -> None:
    page.write_text(filled(page.read_text(encoding="utf-8"), found), encoding="utf-8")


def filled(text: str, found: Mapping[str, Sequence[Figure]]) -> str:
    """The page with other tables; those of parts that were not measured stay."""
    about = f"Measured on {description()}, at commit {commit()}, {_load()}."
    for part, figures in found.items():
        mark, end = f"<!-- measured: {part} -->", "<!-- end -->"
        place = re.compile(f"{re.escape(mark)}.*?{re.escape(end)}", re.S)
        if not place.search(text):
            raise ValueError(f"the page has no place for {part}: {mark} … {end}")
        table = f"{mark}\n{about}\n\n{rendered(figures)}\n{end}"
        text = place.sub(lambda _, table=table: table, text)  # type: ignore[misc]
    return text


def _load() -> str:
    """How busy the machine is with all that runs on it, the measurement too."""
    return f"at a load of {os.getloadavg()[1]:.0f}"


def rendered(figures: Sequence[Figure]) -> str:
    """A row for each figure; where the same was measured several times, a column for each time."""
    groups = _grouped(figures)
    rows = [tuple(name for name, _ in group) for _, group in groups]
    if len(groups) < 2 or len(set(rows)) > 1:
        flat = [(one.what, one.shown, one.target) for one in figures]
        return _table(("", "measured", "wanted"), flat)
    columns = [[figure.shown for _, figure in group] for _, group in groups]
    return _table(("", *(kind for kind, _ in groups)), zip(rows[0], *columns, strict=True))


def _grouped(figures: Iterable[Figure]) -> list[tuple[str, list[tuple[str, Figure]]]]:
    """Under the kind that the first figure of each group names: `kind: name`, `… name`."""
    groups: list[tuple[str, list[tuple[str, Figure]]]] = []
    for figure in figures:
        if figure.what.startswith(_MORE):
            groups[-1][1].append((figure.what.removeprefix(_MORE), figure))
        else:
            kind, _, name = figure.what.partition(": ")
            groups.append((kind, [(name or kind, figure)]))
    return groups


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
