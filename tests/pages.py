"""The pages as programs: what they show is run, top to bottom, and its output is compared.

A page is a list of steps. Readers see the blocks; between them may stand comments that only the
tests read:

    <!-- test: fake.say("Hello.") -->          Python, run before the next block
    <!-- test: use_stand_in() -->              another program plays the CLI, until use_real_cli()
    <!-- test: use_quick_version() -->         the real CLI, which tells its version at once
    <!-- test: until_the_end.callback(…) -->   an ExitStack, which is closed behind the last block
    ```python … ```                            run; a ```text … ``` block behind it is its output
    ```console … ```                           `$ …` lines are run; what follows is their output

`…` in an output stands for any text, and for any lines where it stands alone.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from geminorum.apps.command import main
from geminorum.install import PINNED_CLI
from geminorum.testing import FakeGemini, Tokens
from stand_in import make_package

_STEP = re.compile(
    r"^<!-- test:\s(?P<hidden>.*?)-->$"
    r"|^```(?P<language>\w+)[ \t]*\n(?P<code>.*?)^```$(?:\s*^```text\n(?P<shown>.*?)^```$)?",
    re.M | re.S,
)
_SHELL = re.compile(r"[|<>;&$`]|^(?!geminorum\b)")
_INDENTED = re.compile(r"^    (?:[^\n]*\| )?(geminorum(?: [^\n]*)?)$", re.M)


class Step(NamedTuple):
    """A piece of a page that is run, and what the page says that it prints."""

    kind: str
    code: str
    shown: str | None
    line: int


class Command(NamedTuple):
    """A line of a console block, and what the page shows below it."""

    line: str
    shown: str


def steps(page: Path) -> list[Step]:
    """What is to be run on a page, in its order."""
    return list(_steps(page.read_text()))


def _steps(text: str) -> Iterator[Step]:
    for found in _STEP.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["hidden"] is not None:
            yield Step("hidden", inspect.cleandoc(found["hidden"]), None, line)
        elif found["language"] in ("python", "console"):
            yield Step(found["language"], found["code"], found["shown"], line + 1)


def commands(block: str) -> list[Command]:
    """The lines of a console block that are typed, each with its output."""
    first, *rest = re.split(r"^\$ ", block, flags=re.M)
    assert not first, f"a console block begins with `$ `, not with {first!r}"
    typed = [part.replace("\\\n", " ").partition("\n") for part in rest]
    return [Command(line, shown) for line, _, shown in typed]


def indented_commands(page: Path) -> list[str]:
    """Commands that a page lists without running them."""
    return _INDENTED.findall(page.read_text())


def matches(shown: str, real: str) -> bool:
    """Whether this is the output that the page shows, where the page says it."""
    pattern = "".join(map(_pattern, shown.strip().splitlines()))
    plain = "\n".join(line.rstrip() for line in real.strip().splitlines()) + "\n"
    return re.fullmatch(pattern, plain, re.S) is not None


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:[^\n]*\n)*?"
    return r"[^\n]*?".join(map(re.escape, line.rstrip().split("…"))) + r"\n"


class Reader:
    """Somebody who types all that a page shows, in one folder and one interpreter."""

    def __init__(self, page: Path, folder: Path, fake: FakeGemini) -> None:
        self._page, self._folder = page, folder
        self.names: dict[str, Any] = {"__name__": page.stem}
        self._hidden = {"fake": fake, "Path": Path, "Tokens": Tokens}
        self._hidden |= {"use_stand_in": self._use_stand_in, "use_real_cli": self._use_real_cli}
        self._hidden["use_quick_version"] = self._use_quick_version
        self._loop, self._rest = asyncio.Runner(), contextlib.ExitStack()
        self._hidden["until_the_end"] = self._rest

    def __enter__(self) -> Reader:
        self._loop.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._rest.close()
        self._loop.close()

    def _use_stand_in(self) -> None:
        """For blocks that start many CLIs, and are not about what those do: it only asks the model
        and says its answer, in a session."""
        self._real_cli = os.environ["GEMINI_CLI_PATH"]
        os.environ["GEMINI_CLI_PATH"] = str(make_package(self._new_folder() / "package"))
        os.environ["STAND_IN_ASKS"] = "1"
        self._rest.callback(os.environ.pop, "STAND_IN_ASKS", None)

    def _use_real_cli(self) -> None:
        os.environ["GEMINI_CLI_PATH"] = self._real_cli
        os.environ.pop("STAND_IN_ASKS")

    def _use_quick_version(self) -> None:
        """For programs that ask for it first, which costs as much as a run."""
        program = self._new_folder() / "gemini"
        real = shlex.quote(os.environ["GEMINI_CLI_PATH"])
        tell = f'[ "$1" = --version ] && exec echo {PINNED_CLI}'
        program.write_text(f'#!/bin/sh\n{tell}\nexec {real} "$@"\n')
        program.chmod(0o755)
        os.environ["GEMINI_CLI_PATH"] = str(program)

    def _new_folder(self) -> Path:
        return Path(self._rest.enter_context(tempfile.TemporaryDirectory()))

    def do(self, step: Step) -> None:
        """Runs a step; an AssertionError where the page promises something else."""
        match step.kind:
            case "hidden":
                exec(compile(step.code, str(self._page), "exec", dont_inherit=True), self._hidden)
            case "console":
                self._type(commands(step.code))
            case _:
                self._compare(self._run(step), step.shown, f"line {step.line}")

    def _run(self, step: Step) -> str:
        # The line numbers of the page, so that a traceback shows where it happened.
        tree = ast.increment_lineno(ast.parse(step.code), step.line - 1)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(tree, str(self._page), "exec", flags=flags, dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            waits = eval(code, self.names)
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run(waits)
        return out.getvalue()

    def _type(self, typed: list[Command]) -> None:
        left = 0
        for command, following in zip(typed, [*typed[1:], None], strict=True):
            if command.line == "echo $?":
                out = f"{left}\n"
            else:
                left, out = _written(command.line)
                expected = following is not None and following.line == "echo $?"
                assert left == 0 or expected, f"`{command.line}` left with {left}:\n{out}"
            self._compare(out, command.shown, command.line)

    def _compare(self, real: str, shown: str | None, where: str) -> None:
        real = real.replace(str(self._folder), "/home/ada/poems")
        if shown is None or (not shown.strip() and not real.strip()):
            return
        assert matches(shown, real), f"{where} printed\n{real}\nand not\n{shown}"


def _written(line: str) -> tuple[int, str]:
    """How a command leaves, and what it writes, in the order in which a person would see it."""
    before, pipe, last = line.rpartition(" | ")
    if _SHELL.search(last):
        return _by_shell(line)
    stdin = _by_shell(before)[1] if pipe else ""
    return _by_call(shlex.split(last, comments=True)[1:], stdin)


def _by_call(arguments: list[str], stdin: str) -> tuple[int, str]:
    """The command in this process: what it would import is there already."""
    signals = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGHUP)}
    given, written = io.BytesIO(stdin.encode()), io.BytesIO()
    out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
    terminal, sys.stdin = sys.stdin, io.TextIOWrapper(given, encoding="utf-8")
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            warnings.catch_warnings(),
        ):
            return main(arguments), written.getvalue().decode()
    finally:
        sys.stdin = terminal
        for name, handler in signals.items():
            signal.signal(name, handler)


def _by_shell(line: str) -> tuple[int, str]:
    """Pipes, redirections and other programs, as a shell has them."""
    own = f'geminorum() {{ {shlex.quote(sys.executable)} -m geminorum "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{own}{line}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout
