"""The parts of a fleet on one machine: a PostgreSQL, and workers with a home and a temporary folder
of their own, as on separate machines; with what each has used."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from geminorum.fleet import initialise
from geminorum.fleet.embedded import embedded_postgres

_WAIT_SECONDS, _LOOK_SECONDS = 120.0, 0.02


@contextmanager
def open_place() -> Iterator[Path]:
    """A folder that the account of root's server may pass through."""
    place = Path(tempfile.mkdtemp(prefix="load-fleet-"))
    place.chmod(0o711)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def postgres_in(place: Path) -> Iterator[Postgres]:
    with embedded_postgres(place / "database") as url:
        yield Postgres(place / "database", url)


class Postgres:
    """The server of a fleet; each measurement has a database of its own in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url

    async def new_fleet(self) -> str:
        """The address of an empty database with the fleet's tables."""
        name = f"load_{uuid.uuid4().hex}"
        query(self._url, f'CREATE DATABASE "{name}"')
        url = self._url.replace("/postgres?", f"/{name}?")
        await initialise(url)
        return url

    def cpu_seconds(self) -> float:
        """Of all its processes, those that have ended too."""
        note = self._folder / "server/data/postmaster.pid"
        return tree_seconds(int(note.read_text().splitlines()[0]))


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """The rows of one statement, on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def tree_seconds(pid: int) -> float:
    """Processor time of a process, of all below it, and of those that they have waited for."""
    top = psutil.Process(pid)
    return sum(_seconds(process) for process in (top, *top.children(recursive=True)))


def _seconds(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


class WorkerMachine:
    """`geminorum worker` in a process, with a home and a temporary folder of its own."""

    def __init__(self, folder: Path, url: str, program: Path) -> None:
        self.name, self._folder = folder.name, folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self._url, self._program = url, program
        self._said = folder / "stdout"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str, env: Mapping[str, str] | None = None) -> None:
        own = {"HOME": self._folder, "TMPDIR": self.temporary, "GEMINI_CLI_PATH": self._program}
        names = {"GEMINORUM_DB": self._url, "PGAPPNAME": self.name}
        command = [sys.executable, "-m", "geminorum", "worker", "--name", self.name]
        command += ["--json", "--drain-seconds", "0"]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, *flags],
                env={**os.environ, **(env or {}), **{k: str(v) for k, v in own.items()}, **names},
                stdout=said,
                cwd=self._folder,
            )

    async def until_ready(self) -> None:
        async with asyncio.timeout(_WAIT_SECONDS):
            while not any(line["what"] == "registered" for line in self._lines()):
                if self._process is not None and self._process.poll() is not None:
                    raise RuntimeError(f"worker {self.name} ended: {self._said.read_text()}")
                await asyncio.sleep(_LOOK_SECONDS)

    def _lines(self) -> Iterator[dict[str, object]]:
        for line in self._said.read_text().splitlines():
            with suppress(ValueError):  # Half of one.
                yield json.loads(line)

    def own_seconds(self) -> float:
        """Processor time of the worker itself, without keepers and agents."""
        return float(sum(psutil.Process(self.pid).cpu_times()[:2]))

    def all_seconds(self) -> float:
        return tree_seconds(self.pid)

    def peak_mb(self) -> float:
        """The most memory that the worker itself has had at any time."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024

    def connections(self) -> int:
        counted = query(
            self._url,
            f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{self.name}'",
        )
        return int(str(counted[0][0]))

    def processes(self) -> set[psutil.Process]:
        """All below the worker."""
        return set(psutil.Process(self.pid).children(recursive=True))

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """On SIGTERM; jobs that run are handed back."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_WAIT_SECONDS)
        finally:
            self.kill()


@contextmanager
def machines(
    place: Path,
    url: str,
    program: Path,
    count: int,
    *flags: str,
    env: Mapping[str, str] | None = None,
) -> Iterator[list[WorkerMachine]]:
    """Workers that have been started, and that leave with the block."""
    folders = [place / f"{uuid.uuid4().hex[:8]}-{number}" for number in range(count)]
    found = [WorkerMachine(folder, url, program) for folder in folders]
    try:
        for one in found:
            one.start(*flags, env=env)
        yield found
    finally:
        for one in found:
            one.leave()


def are_over(processes: set[psutil.Process]) -> bool:
    return not any(map(_is_alive, processes))


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
