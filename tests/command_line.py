"""Drives the real command as a person or a script would: a subprocess, or one on a terminal."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import geminorum
from command_server import Server
from shared_run import COMPILED

SOURCE = Path(geminorum.__file__).parents[1]
COMMAND = [sys.executable, "-m", "geminorum"]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x1b[=>]")
_WAIT_SECONDS = 60.0


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without what would change how a terminal is drawn."""
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "GEMINORUM_DEBUG"):
        env.pop(name, None)
    return {**env, **(extra or {})}


def geminorum_command(
    *arguments: str | Path,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The command with pipes around it, run to its end."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    words = [*map(str, arguments)]
    run = _run_afresh if _is_about_starting(env) else _run_forked
    code, out, err = run(words, given, environment(env), cwd)
    texts = (said.decode(errors="replace") for said in (out, err))
    return subprocess.CompletedProcess(words, code, *texts)


def _is_about_starting(env: Mapping[str, str] | None) -> bool:
    """Does Python itself read any of this when it starts?"""
    return any(name.startswith(("PYTHON", "LANG", "LC_")) for name in env or ())


def _run_afresh(
    words: list[str], stdin: bytes, env: Mapping[str, str], cwd: Path | None
) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        env=env,
        cwd=cwd,
        timeout=_WAIT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def _run_forked(
    words: list[str], stdin: bytes, env: Mapping[str, str], cwd: Path | None
) -> tuple[int, bytes, bytes]:
    pipes = [os.pipe() for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = pipes
    child = server().start(words, (theirs_in, theirs_out, theirs_err), env, cwd)
    for theirs in (theirs_in, theirs_out, theirs_err):
        os.close(theirs)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_write_all, ours_in, stdin)
        said = [threads.submit(_read_all, ours) for ours in (ours_out, ours_err)]
        try:
            code = child.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            raise
    return code, said[0].result(), said[1].result()


class Started:
    """The command with pipes around it while it runs; of `subprocess.Popen` it has what tests use.

    `stderr` may be `subprocess.PIPE`, for `communicate`; what it says on stdout goes nowhere.
    """

    def __init__(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stderr: int = subprocess.DEVNULL,
    ) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        ours, theirs = os.pipe() if stderr == subprocess.PIPE else (None, os.dup(nowhere))
        words, files = [*map(str, arguments)], (nowhere, nowhere, theirs)
        self._child = server().start(words, files, environment(env), cwd)
        for descriptor in (nowhere, theirs):
            os.close(descriptor)
        self._stderr = ours
        self.poll, self.wait = self._child.poll, self._child.wait

    @property
    def returncode(self) -> int | None:
        return self._child.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self._child.pid, number)

    def communicate(self) -> bytes:
        """Until its end: what it said on stderr."""
        assert self._stderr is not None
        with ThreadPoolExecutor(1) as thread:
            said = thread.submit(_read_all, self._stderr)
            try:
                self.wait(_WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.send_signal(signal.SIGKILL)
                raise
            return said.result()


def shared_environment(folder: Path) -> dict[str, str]:
    """For a run that several tests look at, which is over before any has a home of its own."""
    return {"HOME": str(folder), "XDG_CACHE_HOME": str(COMPILED.parent.parent)}


def _write_all(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as pipe, contextlib.suppress(BrokenPipeError):
        pipe.write(data)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as pipe:
        return pipe.read()


@functools.cache
def server() -> Server:
    """One for all the tests of a worker."""
    server = Server(SOURCE)
    atexit.register(server.close)
    return server


class Terminal:
    """The command on a terminal of its own: `send` types, `wait_for` reads."""

    def __init__(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        columns: int = 80,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        words, files = [*map(str, arguments)], (theirs, theirs, theirs)
        variables = environment({"PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})})
        self._child = server().start(words, files, variables, cwd, terminal=True)
        os.close(theirs)
        self.raw = ""
        self._read_to = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGTERM)
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._child.pid, signal.SIGKILL)
                self._child.wait()
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        pieces = b""
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # Linux: the other end has gone.
                return
            if not piece:
                return
            pieces += piece
            self.raw = pieces.decode(errors="replace")

    @property
    def text(self) -> str:
        """All that was written, without colours and movements; each redraw on a line of its own."""
        return _ESCAPES.sub("", self.raw.replace("\r\n", "\n")).replace("\r", "\n")

    def wait_for(self, words: str) -> str:
        """Until the words are written, behind those that were waited for before."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (found := self.text.find(words, self._read_to)) < 0:
            over = self._child.poll() is not None and not self._reader.is_alive()
            if over or time.monotonic() > deadline:
                raise AssertionError(f"{words!r} is not in {self.text[self._read_to :]!r}")
            time.sleep(0.02)
        self._read_to = found + len(words)
        return self.text

    def send(self, keys: str) -> None:
        """Type; "\\r" is Enter, "\\x03" Ctrl-C, "\\x04" Ctrl-D."""
        os.write(self._ours, keys.encode())

    def signal(self, number: int) -> None:
        """As `kill` would."""
        os.kill(self._child.pid, number)

    def ends_with(self) -> int:
        """The exit code, once it has ended."""
        code = self._child.wait(_WAIT_SECONDS)
        self._reader.join()
        return code
