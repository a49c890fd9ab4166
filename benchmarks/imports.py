"""What `import geminorum` costs a program that may not use it."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.figures import Figure

ROUNDS = 7
PROGRAMS = {
    "nothing": "",
    "package": "import geminorum",
    "cli": "import geminorum; geminorum.run; geminorum.Cli",
}
_CLOCK = "import time; print(time.process_time())"


def measure() -> list[Figure]:
    rounds = [{name: _cpu(code) for name, code in PROGRAMS.items()} for _ in range(ROUNDS)]
    best = {name: min(row[name] for row in rounds) * 1000 for name in PROGRAMS}
    package, cli = best["package"] - best["nothing"], best["cli"] - best["nothing"]
    return [
        Figure("import geminorum", package, "ms CPU", at_most=60),
        Figure("… and geminorum.run, geminorum.Cli (with asyncio)", cli, "ms CPU"),
    ]


def _cpu(code: str) -> float:
    """CPU seconds of a new interpreter up to the end of `code`."""
    command = [sys.executable, "-c", f"{code}\n{_CLOCK}"]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)
