"""What the tests of the fleet share: databases, workers here and workers in processes."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psycopg

from geminorum import Cli
from geminorum.detect import PACKAGE
from geminorum.fleet import Worker, schema
from geminorum.fleet.database import Database

_SCRIPT = Path(__file__).with_name("worker_process.py")
_WAIT_SECONDS = 60.0
_templates: dict[tuple[str, int], str] = {}
"""The names of databases with tables, by server and version."""


async def new_database(server: str, version: int = schema.VERSION) -> str:
    """An empty database with the fleet's tables, perhaps of an older version; returns its URL."""
    if (server, version) not in _templates:
        _templates[server, version] = await _with_tables(server, version)
    return await _copy(server, _templates[server, version])


async def _with_tables(server: str, version: int) -> str:
    """A database to copy: twice as fast as to make the tables. Returns its name."""
    name = f"tables_{version}_{uuid.uuid4().hex}"
    async with Database(await _copy(server, "template1", name)) as database:
        await schema.initialise(database, version)
    return name


async def _copy(server: str, template: str, name: str = "") -> str:
    name = name or f"fleet_{uuid.uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return server.replace("/postgres?", f"/{name}?")


@asynccontextmanager
async def working(url: str, transports: dict, **how) -> AsyncIterator[Worker]:
    """A worker in this process, for as long as the block."""
    worker = Worker(url, transports, **how)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        worker.hand_back()
        await asyncio.wait_for(task, _WAIT_SECONDS)


@contextmanager
def worker_process(url: str, home: Path, *, env=None, **how) -> Iterator[subprocess.Popen]:
    """A worker as on another machine: a process with a home and a temporary folder of its own."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    own = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(_SCRIPT), json.dumps({"url": url, **how})],
        env={**os.environ, **own, **(env or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def cut_connections(url: str) -> None:
    """Of everybody else to this database."""
    query = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(query)


def requesting_cli(folder: Path, **how) -> Cli:
    """A `Cli` to a program that sends requests to a model; see requesting_cli.cjs."""
    script = folder / "package/gemini.cjs"
    script.parent.mkdir()
    script.write_text(Path(__file__).with_name("requesting_cli.cjs").read_text())
    package = {"name": PACKAGE, "version": "0.61.0", "bin": {"gemini": "gemini.cjs"}}
    (script.parent / "package.json").write_text(json.dumps(package))
    return Cli(executable=script, grace=0.5, **how)


async def until(condition, seconds: float = _WAIT_SECONDS):
    """Waits for a coroutine to return something true; returns that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                if found := await condition():
                    return found
                await asyncio.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")
