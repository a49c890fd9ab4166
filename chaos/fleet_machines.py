"""Machines of a fleet on one machine: each with a home, a temporary folder and a worker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from chaos.fleet_agent import born
from geminorum.fleet.embedded import embedded_postgres

ROOT = Path(__file__).parents[1]
_WAIT_SECONDS = 60.0


class Server:
    """A PostgreSQL whose guardian starts it again."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self.url = folder, url

    def signal(self, number: int) -> None:
        note = self._folder / "server/data/postmaster.pid"
        with suppress(OSError, ValueError, IndexError):  # It is starting again already.
            pid = int(note.read_text().splitlines()[0])
            # While it starts it is the guardian's, whose end would be the end of the story.
            if "postgres" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(pid, number)

    def cut_connections(self) -> None:
        """Of everybody, on all databases."""
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> %s"
        with suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query, (connection.info.backend_pid,))


@contextmanager
def open_place() -> Iterator[Path]:
    """A folder that the account of root's server may pass through."""
    place = Path(tempfile.mkdtemp(prefix="chaos-fleet-"))
    place.chmod(0o711)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def server_in(place: Path) -> Iterator[Server]:
    with embedded_postgres(place / "database") as url:
        yield Server(place / "database", url)


def write_agent(place: Path, diary: Path) -> Path:
    """The program that workers take for the CLI."""
    program = place / "gemini"
    script = ROOT / "chaos/fleet_agent.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{script}" "{diary}" "$@"\n')
    program.chmod(0o755)
    return program


class Machine:
    """A worker, or the next one after it was killed."""

    def __init__(self, folder: Path, url: str, agent: Path, *, slots: int, clock: float) -> None:
        self.name, self._folder = folder.name, folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self._log = folder / "stderr"
        self._settings = {"url": url, "executable": str(agent), "slots": slots, "clock": clock}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, tenants: Sequence[str] | None = None) -> None:
        """Where it does not run: it may have been killed twice."""
        if self._process is not None and self._process.poll() is None:
            return
        settings = {**self._settings, "name": self.name, "tenants": tenants}
        own = {"HOME": str(self._folder), "TMPDIR": str(self.temporary)}
        path = os.pathsep.join([str(ROOT), *sys.path])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chaos.fleet_worker", json.dumps(settings)],
                env={**os.environ, **own, "PYTHONPATH": path},
                stderr=log,
                cwd=self._folder,
            )

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(_WAIT_SECONDS)

    def leave(self) -> int:
        """In peace; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """In any case."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def folders(self) -> list[str]:
        """What is left in its temporary folder."""
        return sorted(path.name for path in self.temporary.iterdir())


def still_alive(pairs: set[tuple[int, str]], seconds: float = 5.0) -> list[int]:
    """Of these processes, the ones that do not end within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        alive = [pid for pid, start in pairs if born(pid) == start]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)
