"""What `import geminorum` costs a program that may not use it; what `geminorum --help` costs."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.figures import Figure

ROUNDS = 7
PROGRAMS = {
    "nothing": "",
    "package": "import geminorum",
    "cli": "import geminorum; geminorum.run; geminorum.Cli",
    "help": "from geminorum.apps.command import main; main(['--help'])",
    "run help": "from geminorum.apps.command import main; main(['run', '--help'])",
}
_CLOCK = "import time; print(time.process_time())"


def measure() -> list[Figure]:
    rounds = [{name: _cpu(code) for name, code in PROGRAMS.items()} for _ in range(ROUNDS)]
    best = {name: min(row[name] for row in rounds) * 1000 for name in PROGRAMS}
    package, cli = best["package"] - best["nothing"], best["cli"] - best["nothing"]
    return [
        Figure("import geminorum", package, "ms CPU", at_most=60),
        Figure("… and geminorum.run, geminorum.Cli (with asyncio)", cli, "ms CPU"),
        # A person waits for Python itself as well.
        Figure("geminorum --help, Python included", best["help"], "ms CPU", at_most=150),
        Figure("geminorum run --help, Python included", best["run help"], "ms CPU"),
    ]


def _cpu(code: str) -> float:
    """CPU seconds of a new interpreter up to the end of `code`."""
    command = [sys.executable, "-c", f"{code}\n{_CLOCK}"]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    return float(printed.splitlines()[-1])
