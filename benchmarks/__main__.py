"""`python -m benchmarks [NAME …] [--json]`: exit code 1 when a target is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from benchmarks import (
    api_chunks,
    cold_start,
    imports,
    keepers,
    latency,
    long_line,
    memory,
    memory_store,
    spares,
    throughput,
    travel,
    warm,
    web_pages,
)
from benchmarks.figures import HEAD, Figure, table

MEASUREMENTS: dict[str, Callable[[], list[Figure]]] = {
    "imports": imports.measure,
    "throughput": throughput.measure,
    "long_line": long_line.measure,
    "memory": memory.measure,
    "latency": latency.measure,
    "store": memory_store.measure,
    "travel": travel.measure,
    "api": api_chunks.measure,
    "cold_start": cold_start.measure,
    "spares": spares.measure,
    "warm": warm.measure,
    "keepers": keepers.measure,
    "web": web_pages.measure,
}


def main() -> int:
    arguments = _arguments()
    results = {}
    if not arguments.json:
        print(HEAD, flush=True)
    for name in arguments.names or MEASUREMENTS:
        results[name] = MEASUREMENTS[name]()
        if not arguments.json:
            print(table(name, results[name]), flush=True)
    if arguments.json:
        print(json.dumps({k: [f.as_data() for f in v] for k, v in results.items()}, indent=2))
    return int(any(f.verdict == "MISS" for figures in results.values() for f in figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--json", action="store_true", help="for programs instead of people")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(MEASUREMENTS):
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are {list(MEASUREMENTS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
