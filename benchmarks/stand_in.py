"""Programs that stand in for the CLI where only the stream is measured."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from geminorum import Cli, Options, Run, run


@dataclass(frozen=True, slots=True)
class StandIn:
    """A folder with a program and what it says."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "gemini"

    @property
    def recording(self) -> Path:
        return self.folder / "recording.ndjson"

    @property
    def spoken(self) -> Path:
        """Is there once everything is written."""
        return self.folder / "spoken"

    def run(self) -> Run:
        """A run whose CLI is this program, away from the home of whoever measures."""
        options = Options(cwd=self.folder, home=self.folder)
        return run("Tidy up, please.", options, via=Cli(executable=self.program))

    @asynccontextmanager
    async def run_with_all_said(self) -> AsyncIterator[Run]:
        """A run at the moment when everything is written and nothing is read."""
        self.spoken.unlink(missing_ok=True)
        async with self.run() as live:
            while not self.spoken.exists():  # noqa: ASYNC110 - another process sets it
                await asyncio.sleep(0.01)
            yield live


@contextmanager
def saying(lines: Iterable[bytes]) -> Iterator[StandIn]:
    """A program that writes the lines in one go, and then tells that it has."""
    with _stand_in() as stand_in:
        with stand_in.recording.open("wb") as file:
            file.writelines(lines)
        cat = shlex.join(["cat", str(stand_in.recording)])
        touch = shlex.join(["touch", str(stand_in.spoken)])
        _write_program(stand_in, f"{cat}\n{touch}")
        yield stand_in


@contextmanager
def running(module: str, *arguments: str) -> Iterator[StandIn]:
    """A program that is one of our own modules."""
    with _stand_in() as stand_in:
        root = Path(__file__).parent.parent
        command = shlex.join([sys.executable, "-m", module, *arguments])
        _write_program(stand_in, f"export PYTHONPATH={shlex.quote(str(root))}\nexec {command}")
        yield stand_in


@contextmanager
def _stand_in() -> Iterator[StandIn]:
    with tempfile.TemporaryDirectory(prefix="geminorum-bench-") as folder:
        yield StandIn(Path(folder))


def _write_program(stand_in: StandIn, commands: str) -> None:
    stand_in.program.write_text(f"#!/bin/sh\n{commands}\n")
    stand_in.program.chmod(0o700)
