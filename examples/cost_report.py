"""The cost of saved sessions as CSV: one row per day, model, project or session.

    python examples/cost_report.py --by day --since 2026-11-01 > november.csv
    python examples/cost_report.py --by project --home /srv/bots/anna

It reads the session files of the Gemini CLI on this machine and needs no account, no network and
no model. An unknown cost is an empty cell, never 0; stderr says what is missing.
"""

from __future__ import annotations

import argparse
import csv
import sys
from datetime import date
from typing import get_args

from geminorum import GeminorumError, usage
from geminorum.usage import By

TOKENS = ("input", "cached", "output", "thoughts", "tool", "total")


def main() -> int:
    asked = arguments()
    try:
        report = usage.report(by=asked.by, since=asked.since, until=asked.until, home=asked.home)
    except GeminorumError as error:
        print(error, file=sys.stderr)
        return 1
    write(report)
    for model, tokens in report.total.unpriced.items():
        print(f"no price for {model}: {tokens.total:,} tokens are not in usd", file=sys.stderr)
    for problem in report.problems:
        print(f"not counted: {problem.path}: {problem.reason}", file=sys.stderr)
    return 0


def write(report: usage.Report) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([report.by, "requests", *TOKENS, "usd", "complete"])
    for row in report.rows:
        counts = [getattr(row.tokens, name) for name in TOKENS]
        usd = "" if row.cost is None else f"{row.cost:f}"
        writer.writerow([row.key, row.requests, *counts, usd, "yes" if row.exact else "no"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of saved sessions, as CSV.")
    parser.add_argument("--by", choices=get_args(By), default="day", help="what a row is (day)")
    parser.add_argument("--since", type=date.fromisoformat, help="2026-11-01: from this day on")
    parser.add_argument("--until", type=date.fromisoformat, help="2026-12-01: before this day")
    parser.add_argument("--home", help="the folder that holds .gemini (your own)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
