"""Executables that play a Gemini CLI, for what the real one does not do on request."""

import json
import sys
from pathlib import Path
from typing import Any

from geminorum import Cli
from geminorum.detect import PACKAGE


class StandIn:
    """Makes executables that play a Gemini CLI: `stand_in({...}, exit=53)` is a `Cli` for one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def __call__(
        self,
        *lines: dict[str, Any] | str | bytes | Path,
        exit: int = 0,
        signal: int | None = None,
        stderr: str = "",
        stderr_bytes: int = 0,
        chunk: int | None = None,
        delay: float = 0.0,
        sleep: float = 0.0,
        hang: bool = False,
        ignore_term: bool = False,
        grandchildren: tuple[str, ...] = (),
        read_stdin: bool = True,
        **transport: Any,
    ) -> Cli:
        """`lines` are frames, raw lines, or one recording's path; the rest says how it behaves."""
        self._made += 1
        plan = self._folder / f"plan-{self._made}.json"
        said = plan.with_suffix(".stdout")
        said.write_bytes(b"".join(map(_line, lines)))
        wishes = {
            "stdout": str(said),
            "exit": exit,
            "signal": signal,
            "stderr": stderr,
            "stderr_bytes": stderr_bytes,
            "chunk": chunk,
            "delay": delay,
            "sleep": sleep,
            "hang": hang,
            "ignore_term": ignore_term,
            "grandchildren": grandchildren,
            "read_stdin": read_stdin,
        }
        plan.write_text(json.dumps(wishes))
        return Cli(executable=self._executable(plan), **{"grace": 0.5, **transport})

    def _executable(self, plan: Path) -> Path:
        program = self._folder / f"gemini-{self._made}"
        script = Path(__file__).with_name("stand_in_gemini.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{script}" "{plan}" "$@"\n')
        program.chmod(0o755)
        return program

    def change(self, **wishes: Any) -> None:
        """What the last one does from its next start on."""
        plan = self._folder / f"plan-{self._made}.json"
        plan.write_text(json.dumps(json.loads(plan.read_text()) | wishes))

    @property
    def has_spoken(self) -> bool:
        """Has the last one said all that it had to say?"""
        return (self._folder / f"plan-{self._made}.said").exists()

    @property
    def call(self) -> dict[str, Any]:
        """How the last one was called: argv, stdin, cwd, env, pid, children."""
        return json.loads((self._folder / f"plan-{self._made}.call").read_text())


def _line(line: dict[str, Any] | str | bytes | Path) -> bytes:
    match line:
        case Path():
            return line.read_bytes()
        case dict():
            return json.dumps(line, ensure_ascii=False).encode() + b"\n"
        case str():
            return line.encode() + b"\n"
        case _:
            return line


def make_package(folder: Path) -> Path:
    """An npm package that starts quickly and plays the CLI; see stand_in_package.cjs."""
    script = folder / "bundle/gemini.cjs"
    script.parent.mkdir(parents=True)
    script.write_text(Path(__file__).with_name("stand_in_package.cjs").read_text())
    package = {"name": PACKAGE, "version": "0.61.0", "bin": {"gemini": "bundle/gemini.cjs"}}
    (folder / "package.json").write_text(json.dumps(package))
    return script
