"""`python -m fuzz [NAME …] [--minutes N]`: exit code 1 while a finding is open."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fuzz.driver import Hunt, replayed, signature_of
from fuzz.targets import TARGETS

FINDINGS = Path(__file__).parent.parent / ".fuzz"
_PAUSE_SECONDS = 10.0


def main() -> int:
    arguments = _arguments()
    names = arguments.names or list(TARGETS)
    print(f"seed {arguments.seed}")
    open_findings = [line for name in names for line in _replay(name)]
    if not arguments.replay:
        open_findings += [line for name in names for line in _hunt(name, arguments)]
    print(f"{len(open_findings)} open", *open_findings, sep="\n  ")
    return int(bool(open_findings))


def _replay(name: str) -> list[str]:
    """The saved findings that still fail; the others are deleted."""
    still_open = []
    for file in sorted((FINDINGS / name).glob("*.[ig]*")):
        if (error := replayed(TARGETS[name], file)) is None:
            print(f"{name}: fixed: {file}")
            file.unlink()
            file.with_suffix(".txt").unlink(missing_ok=True)
        else:
            still_open.append(f"{name}: {signature_of(error)}: {file}")
    return still_open


def _hunt(name: str, arguments: argparse.Namespace) -> list[str]:
    progress = _Progress()
    hunt = Hunt(TARGETS[name], 60 * arguments.minutes, arguments.seed, progress.print)
    hunt.run()
    progress.print(hunt, last=True)
    return [f"{name}: {one.signature}: {one.save(FINDINGS)}" for one in hunt.found.values()]


class _Progress:
    """A line for each target now and then, and one at its end."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def print(self, hunt: Hunt, *, last: bool = False) -> None:
        if not last and time.monotonic() - self._printed < _PAUSE_SECONDS:
            return
        self._printed = time.monotonic()
        speed = hunt.executions / max(hunt.elapsed, 0.001)
        counts = f"{hunt.executions:>9,} executions {speed:>7,.0f}/s"
        end = "" if last else " …"
        print(f"{hunt.target.name:<17}{counts} {len(hunt.found):>3} findings{end}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=1.0, help="for each decoder; default: 1")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--replay", action="store_true", help="only try saved findings again")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(TARGETS):
        parser.error(f"no decoder {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
