"""The recorded runs of the control suite to the page docs/versions.md."""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from versions.features import FEATURES, Feature

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/versions.md"
MINORS = ROOT / "tests/versions/minors.txt"

_HEAD = """\
# Versions of the Gemini CLI

The table shows which features of geminorum work with which version of the Gemini CLI.
`make test-versions` generates it: it runs `tests/versions/control.py` against the real CLI of
each version, and writes the page only if every cell was tested and matches. A column stands for
all tested versions from the first to the last that it names.

- **works**: the test passed.
- `Unsupported`: raised before anything starts (`CliTooOld` if the whole transport is unsupported).
  No feature is silently weaker.

Tested versions: {versions}.
"""

Outcomes = Mapping[str, str]
"""How each test ended, by its name."""


def versions() -> list[str]:
    """The versions to test, oldest first."""
    return MINORS.read_text(encoding="utf-8").split()


def record_of(version: str) -> Path:
    return ROOT / f".versions/{version}.json"


def page(found: Mapping[str, Outcomes]) -> str:
    """The page, from the outcomes on each version, oldest first."""
    notes = list(dict.fromkeys(row.note.text for row in FEATURES.values() if row.note))
    columns = {version: _column(outcomes, version, notes) for version, outcomes in found.items()}
    spans = [list(group) for _, group in groupby(columns, key=columns.__getitem__)]
    lines = [f"| | {' | '.join(map(_span, spans))} |", "|---|" + "---|" * len(spans)]
    for number, row in enumerate(FEATURES.values()):
        cells = [columns[first][number] for first, *_ in spans]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    numbered = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([_HEAD.format(versions=", ".join(found)), *lines, "", *numbered, ""])


def _column(outcomes: Outcomes, version: str, notes: list[str]) -> list[str]:
    return [_cell(outcomes[name], row, version, notes) for name, row in FEATURES.items()]


def _cell(outcome: str, row: Feature, version: str, notes: list[str]) -> str:
    word = "works" if outcome == "works" else f"`{outcome}`"
    if row.note and row.note.applies_to(version):
        return f"{word} ({notes.index(row.note.text) + 1})"
    return word


def _span(versions: Sequence[str]) -> str:
    """Minor versions, with spaces that do not break."""
    first, last = (version.rpartition(".")[0] for version in (versions[0], versions[-1]))
    return first if first == last else f"{first}\u00a0\u2013\u00a0{last}"


def expected(version: str) -> Outcomes:
    return {name: row.expected(version) for name, row in FEATURES.items()}


def main() -> int:
    found = {version: json.loads(record_of(version).read_bytes()) for version in versions()}
    stale = [version for version in found if found[version] != expected(version)]
    if stale:
        sys.stderr.write(f"{PAGE.name} not written: test again VERSIONS='{' '.join(stale)}'\n")
        return 1
    PAGE.write_text(page(found), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} written: {len(found)} versions, {len(FEATURES)} rows each\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
