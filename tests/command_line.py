"""Drives the real command as a person or a script would: a subprocess, or one on a terminal."""

from __future__ import annotations

import fcntl
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
from pathlib import Path
from typing import Any

import geminorum

SOURCE = Path(geminorum.__file__).parents[1]
COMMAND = [sys.executable, "-m", "geminorum"]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x1b[=>]")
_PATIENCE = 60.0


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
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(env),
        cwd=cwd,
        timeout=_PATIENCE,
        check=False,
    )
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


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
        self._child = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment({"PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})}),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
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
        deadline = time.monotonic() + _PATIENCE
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

    def ends_with(self) -> int:
        """The exit code, once it has ended."""
        code = self._child.wait(_PATIENCE)
        self._reader.join()
        return code
