"""`python -m chaos [--seeds N] [--fault NAME]`: exit code 1 when anything was violated."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.plan import FAULTS, Plan, drawn

ROOT = Path(__file__).parent.parent
CLI = ROOT / ".gemini-cli" / "node_modules" / ".bin" / "gemini"
LONGEST_SECONDS = 400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    plan: Plan
    violations: list[str]
    seconds: float


def main() -> int:
    arguments = _arguments()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    began, bad = time.monotonic(), 0
    tried: Counter[str] = Counter()
    for verdict in verdicts(list(seeds), arguments.fault, arguments.jobs):
        tried[verdict.plan.fault] += 1
        bad += bool(verdict.violations)
        _print(verdict, sum(tried.values()), len(seeds), is_quiet=arguments.quiet)
    _print_table(tried)
    print(f"{sum(tried.values())} trials in {time.monotonic() - began:.0f} s, {bad} violated")
    return int(bad > 0)


def verdicts(seeds: list[int], fault: str | None, jobs: int) -> Iterator[Verdict]:
    with ThreadPoolExecutor(jobs) as judges:
        for done in as_completed([judges.submit(judge, seed, fault) for seed in seeds]):
            yield done.result()


def judge(seed: int, fault: str | None = None) -> Verdict:
    """By a process of its own, which becomes the parent of whatever is left."""
    words = [sys.executable, "-m", "chaos.judge", str(seed), *([fault] if fault else [])]
    env = {**os.environ, "CHAOS_CLI": str(CLI), "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    began = time.monotonic()
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        return Verdict(drawn(seed, fault), [f"the judge failed: {done.stderr[-3000:]}"], seconds)
    found: dict[str, Any] = json.loads(done.stdout)
    return Verdict(drawn(seed, fault), found["violations"], seconds)


def _print(verdict: Verdict, count: int, total: int, *, is_quiet: bool) -> None:
    plan = verdict.plan
    if verdict.violations:
        again = f"python -m chaos --from {plan.seed} --seeds 1 --fault {plan.fault!r}"
        print(f"seed {plan.seed}: {plan.title}, {plan.moment} ({again})", flush=True)
        for line in verdict.violations:
            print("   ", line.replace("\n", "\n    "), flush=True)
    elif not is_quiet:
        print(
            f"{count:>4}/{total} {plan.seed:>5} {plan.title:<40}{verdict.seconds:6.1f} s",
            flush=True,
        )


def _print_table(tried: Counter[str]) -> None:
    for fault, count in sorted(tried.items()):
        print(f"  {fault:<20}{count:>5}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="how many trials; default: 60")
    parser.add_argument(
        "--from",
        type=int,
        default=0,
        dest="first",
        metavar="SEED",
        help="the first seed; default: 0",
    )
    parser.add_argument("--fault", choices=list(FAULTS), help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time; default: 2")
    parser.add_argument("--quiet", action="store_true", help="only what is violated")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
