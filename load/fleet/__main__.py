"""`python -m load.fleet [PART …] [--short] [--write]`: what a fleet carries, and how fast it is.

The exit code is 1 if a figure misses what is wanted; `--write` writes the measured part of
docs/scaling.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from benchmarks.cold_start import found_cli
from benchmarks.figures import HEAD, Figure, table

from load.fleet import page, plan
from load.fleet.machines import open_place, postgres_in
from load.fleet.parts import Stage
from load.stand_ins import compiled


def main() -> int:
    given = _arguments()
    found = asyncio.run(_measured(given.parts, plan.SHORT if given.short else plan.WHOLE))
    if given.write:
        page.write(found)
    return int(any(one.verdict == "MISS" for figures in found.values() for one in figures))


async def _measured(parts: Sequence[str], amounts: plan.Amounts) -> dict[str, list[Figure]]:
    _print(HEAD)
    found: dict[str, list[Figure]] = {}
    with open_place() as place, postgres_in(place) as postgres:
        cli = found_cli() if plan.REAL & set(parts) else None
        stage = Stage(place, postgres, compiled("fleet/agent.c", place), cli)
        for part in parts:
            found[part] = await plan.PARTS[part](stage, amounts)
            _print(table(part, found[part]))
    return found


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load.fleet", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(plan.PARTS))
    parser.add_argument("--short", action="store_true", help="little of everything")
    parser.add_argument("--write", action="store_true", help="write docs/scaling.md")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(plan.PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(plan.PARTS)}")
    given.parts = given.parts or list(plan.PARTS)
    return given


if __name__ == "__main__":
    sys.exit(main())
