"""A whole run of the real CLI, from nothing to its end, beside plain `gemini`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure
from geminorum import Cli, Options, ask
from geminorum.testing import FakeGemini

ROUNDS = 7
MODEL = "gemini-2.5-flash"
PROMPT = "Say hello"
# The console script of the environment that measures, so that its own start counts too.
COMMAND = Path(sys.executable).with_name("geminorum")
PLACES = (
    os.environ.get("GEMINORUM_TEST_CLI"),
    Path(__file__).parent.parent / ".gemini-cli/node_modules/.bin/gemini",
)


def measure() -> list[Figure]:
    with FakeGemini(default="Hello") as fake, tempfile.TemporaryDirectory() as folder:
        start = ColdStart(found_cli(), Path(folder), fake.env)
        # One of each to warm up, then side by side: what slows one slows its neighbours.
        rounds = [start.round() for _ in range(ROUNDS + 1)][1:]
    plain, ours, fresh, command = (median(column) for column in zip(*rounds, strict=True))
    return [
        Figure("plain `gemini`", plain, "s"),
        Figure("geminorum", ours, "s"),
        Figure("geminorum, in a Python that starts with it", fresh, "s"),
        Figure("`geminorum run`, the whole command", command, "s"),
        Figure("geminorum, of plain", median(r[1] / r[0] for r in rounds), at_most=0.55),
        Figure("… in a Python that starts with it", median(r[2] / r[0] for r in rounds)),
        Figure("`geminorum run`, of plain", median(r[3] / r[0] for r in rounds), at_most=0.52),
    ]


@dataclass(frozen=True, slots=True)
class ColdStart:
    cli: Path
    folder: Path
    env: Mapping[str, str]

    def round(self) -> tuple[float, float, float, float]:
        return self.plain(), self.ours(), self.fresh(), self.command()

    def plain(self) -> float:
        """As one would by hand: the npm shim, the PATH's node, the CLI's own defaults."""
        answer = self.folder / "answer"
        with answer.open("wb") as stdout:
            began = time.perf_counter()
            subprocess.run(
                [self.cli, "--output-format", "stream-json", "--skip-trust", "-m", MODEL],
                cwd=self.folder,
                env={**os.environ, **self.env},
                input=PROMPT.encode(),
                stdout=stdout,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            seconds = time.perf_counter() - began
        if b'"status":"success"' not in answer.read_bytes():
            raise RuntimeError(f"plain gemini gave no result: {answer.read_text()}")
        return seconds

    def ours(self) -> float:
        began = time.perf_counter()
        asyncio.run(asked(self.cli, self.folder, self.env))
        return time.perf_counter() - began

    def fresh(self) -> float:
        """With the start and the end of an interpreter, and all that it imports."""
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", __name__, self.cli, self.folder],
            env={**os.environ, **self.env},
            check=True,
        )
        return time.perf_counter() - began

    def command(self) -> float:
        """As a script would: `geminorum run PROMPT`, with its output in a pipe."""
        began = time.perf_counter()
        done = subprocess.run(
            [COMMAND, "run", PROMPT, "-m", MODEL, "--cli", self.cli, "-C", self.folder],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        seconds = time.perf_counter() - began
        if done.stdout != b"Hello\n":
            raise RuntimeError(f"geminorum run gave no answer: {done}")
        return seconds


async def asked(cli: Path, folder: Path, env: Mapping[str, str]) -> None:
    await ask(PROMPT, Options(model=MODEL, cwd=folder, env=env), via=Cli(executable=cli))


def found_cli() -> Path:
    """The CLI that `make bench` installs, or the one that a variable names."""
    found = next((Path(place) for place in PLACES if place and Path(place).exists()), None)
    if found is None:
        raise SystemExit("no Gemini CLI: `make bench` installs one, or set GEMINORUM_TEST_CLI")
    return found


if __name__ == "__main__":
    asyncio.run(asked(Path(sys.argv[1]), Path(sys.argv[2]), {}))
