"""What real CLIs printed: whole runs in `recordings/`, streams of known scripts in `fixtures/`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parent / "recordings"
OURS = Path(__file__).parent / "fixtures" / "gemini"


def runs(version: str) -> Iterator[dict[str, Any]]:
    """Each run's name, command, exit code, stdout and stderr."""
    for line in (RECORDINGS / f"{version}.jsonl").read_text().splitlines():
        yield json.loads(line)


def recording(version: str, name: str) -> dict[str, Any]:
    return next(run for run in runs(version) if run["name"] == name)


def stream(name: str) -> Path:
    """What a run of `fixtures/make.py` wrote to stdout."""
    return OURS / "streams" / f"{name}.ndjson"
