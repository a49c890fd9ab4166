"""What `import geminorum` costs a program that may not use it; what `geminorum --help` costs."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.figures import Figure

ROUNDS = 7
PROGRAMS = {
    "nothing": "",
    "package": "import geminorum",
    "asyncio": "import asyncio, msgspec",
    "run": "import geminorum; geminorum.run",
    "cli": "import geminorum; geminorum.run; geminorum.Cli",
    "help": "from geminorum.apps.command import main; main(['--help'])",
    "run help": "from geminorum.apps.command import main; main(['run', '--help'])",
}
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_CLOCK = "import time; print(time.process_time())"


def measure() -> list[Figure]:
    rounds = [{name: _cpu(code) for name, code in PROGRAMS.items()} for _ in range(ROUNDS)]
    best = {name: min(row[name] for row in rounds) * 1000 for name in PROGRAMS}
    package, cli, run, basis = (
        best[name] - best["nothing"] for name in ("package", "cli", "run", "asyncio")
    )
    return [
        Figure("import geminorum", package, "ms CPU", at_most=60),
        # No agent is driven without these two, so they are what the rest is measured against.
        Figure("… and geminorum.run, in times of asyncio and msgspec", run / basis, at_most=1.5),
        Figure("… and geminorum.run, geminorum.Cli (with asyncio)", cli, "ms CPU"),
        # A person waits for Python itself as well.
        Figure("geminorum --help, Python included", best["help"], "ms CPU", at_most=150),
        Figure("geminorum run --help, Python included", best["run help"], "ms CPU"),
    ]


def _cpu(code: str) -> float:
    """CPU seconds of a new interpreter up to the end of `code`."""
    command = [sys.executable, "-c", f"{code}\n{_CLOCK}"]
    # As after an installation, which compiles: a first round may write the bytecode.
    env = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    printed = subprocess.run(command, check=True, capture_output=True, env=env).stdout
    return float(printed.splitlines()[-1])
