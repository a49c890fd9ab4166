"""`python -m load [KIND …] [--rounds 3] [--write]`: agents by the hundred, and what they cost.

The exit code is 1 if a run failed or a target was missed; `--write` writes docs/figures.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.cold_start import found_cli

from load.machine import Watch, commit, description
from load.page import PAGE, PICTURE, ROOT, TITLES, Row, page, picture
from load.stand_ins import compiled
from load.subject import Figures

NUMBERS = {"stand-in": (1, 10, 100, 300), "cli": (10, 30), "warm": (1, 10, 50, 100)}
LIMITS = {
    ("stand-in", 1): {"stall": 0.020},
    ("stand-in", 100): {"wall": 1.3, "first_p99": 0.7, "stall": 0.050},
    ("stand-in", 300): {"wall": 3.0, "stall": 0.050},
}
"""What is wanted, in seconds."""
_TIMEOUT_SECONDS, _REST_SECONDS = 300, 1.0


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        programs = {kind: found_cli() for kind in ("cli", "warm") if kind in given.kinds}
        if "stand-in" in given.kinds:
            programs["stand-in"] = compiled("story.c", Path(folder))
        rows = [
            _told(_measured(kind, number, programs[kind], given.rounds))
            for kind in given.kinds
            for number in NUMBERS[kind]
        ]
    if given.write:
        PAGE.write_text(page(rows, description(), commit(), given.rounds), encoding="utf-8")
        PICTURE.write_text(picture(rows), encoding="utf-8")
    return int(any(row.figures.failures or _misses(row) for row in rows))


def _measured(kind: str, number: int, program: Path, rounds: int) -> Row:
    found = [_round(kind, number, program) for _ in range(rounds)]
    names = Figures.__struct_fields__
    middle = {name: median(getattr(row.figures, name) for row in found) for name in names}
    failures = max(row.figures.failures for row in found)
    return Row(
        kind,
        number,
        Figures(**{**middle, "failures": failures}),
        median(row.cpu_each for row in found),
        median(row.memory_each_mb for row in found),
    )


def _round(kind: str, number: int, program: Path) -> Row:
    command = [sys.executable, "-m", "load.subject", kind, str(number), str(program)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True) as subject:
        assert subject.stdin is not None
        assert subject.stdout is not None
        if subject.stdout.readline() != "warm\n":
            raise RuntimeError(f"{' '.join(command)} did not start")
        time.sleep(_REST_SECONDS)  # Whatever the first run has left to do, it does now.
        with Watch() as watch:
            said, _ = subject.communicate("go\n", timeout=_TIMEOUT_SECONDS)
    figures = msgspec.json.decode(said, type=Figures)
    return Row(kind, number, figures, watch.cpu_seconds / number, watch.memory_mb / number)


def _told(row: Row) -> Row:
    missed = _misses(row)
    remark = f"MISS: {', '.join(missed)}" if missed else ""
    sys.stdout.write(f"{row.kind:<9} {' · '.join(row.cells())}  {remark}\n")
    sys.stdout.flush()
    return row


def _misses(row: Row) -> list[str]:
    limits = LIMITS.get((row.kind, row.number), {})
    missed = {name: limit for name, limit in limits.items() if getattr(row.figures, name) > limit}
    return [f"{name} ≤ {limit:g} s" for name, limit in missed.items()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(TITLES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write docs/figures.md")
    given = parser.parse_args()
    if unknown := set(given.kinds) - set(TITLES):
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(TITLES)}")
    given.kinds = given.kinds or list(TITLES)
    return given


if __name__ == "__main__":
    sys.exit(main())
