"""What a run of the control suite found, to the page docs/versions.md."""

from collections.abc import Mapping

from versions.features import FEATURES, VERSIONS, Feature

_HEAD = """\
# Versions of the Gemini CLI

The table shows which features of geminorum work with which version of the Gemini CLI.
`make test-versions` generates it: it runs `tests/versions/control.py` against the real CLI of
each version, and writes the page only if every cell was tested and matches.

- **works**: the test passed.
- `Unsupported`: raised before anything starts (`CliTooOld` if the whole transport is unsupported).
  No feature is silently weaker.
"""


def page(found: Mapping[tuple[str, str], str]) -> str:
    """The page, from the outcome of each test (by name) on each version."""
    notes = list(dict.fromkeys(row.note[0] for row in FEATURES.values() if row.note))
    lines = [f"| | {' | '.join(VERSIONS)} |", "|---|" + "---|" * len(VERSIONS)]
    for name, row in FEATURES.items():
        cells = [_cell(found[name, version], row, version, notes) for version in VERSIONS]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    told = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([_HEAD, *lines, "", *told, ""])


def _cell(outcome: str, row: Feature, version: str, notes: list[str]) -> str:
    word = "works" if outcome == "works" else f"`{outcome}`"
    if row.note and version in row.note[1]:
        return f"{word} ({notes.index(row.note[0]) + 1})"
    return word
