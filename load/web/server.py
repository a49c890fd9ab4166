"""`geminorum web` in a process of its own, and what it uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from load.fleet.machines import tree_seconds

_WAIT_SECONDS = 60.0


class PageServer:
    """The page, as somebody has started it in a terminal."""

    def __init__(self, home: Path, process: subprocess.Popen[str], link: str) -> None:
        self.home, self._process, self.link = home, process, link
        self.address = link.partition("/?")[0]
        self._token = link.partition("token=")[2]

    @property
    def db(self) -> str:
        return _database(self.home)

    def own_seconds(self) -> float:
        """Processor time of the server itself, without keepers and agents."""
        return float(sum(psutil.Process(self._process.pid).cpu_times()[:2]))

    def agents_seconds(self) -> float:
        return tree_seconds(self._process.pid) - self.own_seconds()

    def client(self) -> httpx.AsyncClient:
        """A program that uses the JSON API, and may read the pages."""
        headers = {"authorization": f"Bearer {self._token}"}
        return httpx.AsyncClient(
            base_url=self.address, headers=headers, timeout=_WAIT_SECONDS, follow_redirects=True
        )


@contextmanager
def serving(home: Path, program: Path) -> Iterator[PageServer]:
    """The page of a user with this home, whose CLI is this program; it ends with the block."""
    work = home / "work"
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "geminorum", "web", "--json", "--db", _database(home)]
    command += ["--cwd", str(work), "--cli", str(program)]
    with subprocess.Popen(
        command, env={**os.environ, "HOME": str(home)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield PageServer(home, process, json.loads(process.stdout.readline())["url"])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_WAIT_SECONDS)
            finally:
                process.kill()


def _database(home: Path) -> str:
    return f"sqlite:///{home}/web.db"
