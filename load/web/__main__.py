"""`python -m load.web [PART …] [--short] [--write]`: what the web page carries, and how fast it is.

The exit code is 1 if a figure misses what is wanted; `--write` writes the measured part of
docs/web.md. Needs a C compiler and the browser that `make test` installs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from benchmarks.figures import HEAD, Figure, table

from load.fleet import page
from load.fleet.machines import open_place
from load.page import ROOT
from load.stand_ins import compiled
from load.web import plan
from load.web.browser import open_browser
from load.web.parts import Stage

PAGE = ROOT / "docs/web.md"


def main() -> int:
    given = _arguments()
    found = asyncio.run(_measured(given.parts, plan.SHORT if given.short else plan.WHOLE))
    if given.write:
        page.write(found, PAGE)
    return int(any(one.verdict == "MISS" for figures in found.values() for one in figures))


async def _measured(parts: Sequence[str], amounts: plan.Amounts) -> dict[str, list[Figure]]:
    _print(HEAD)
    found: dict[str, list[Figure]] = {}
    with open_place() as place:
        async with open_browser() as browser:
            stage = Stage(place, compiled("fleet/agent.c", place), browser)
            for part in parts:
                found[part] = await plan.PARTS[part](stage, amounts)
                _print(table(part, found[part]))
    return found


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load.web", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(plan.PARTS))
    parser.add_argument("--short", action="store_true", help="little of everything")
    parser.add_argument("--write", action="store_true", help="write docs/web.md")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(plan.PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(plan.PARTS)}")
    given.parts = given.parts or list(plan.PARTS)
    return given


if __name__ == "__main__":
    sys.exit(main())
