"""What tests stand on: the real CLI, a stand-in for it, a watch over each process they start."""

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from geminorum import Acp, Cli
from geminorum.transports.keeper import KEEPERS

ROOT = Path(__file__).resolve().parent.parent
TEST_MARK = "GEMINORUM_TEST_SESSION"
COMPILED = ROOT / ".pytest_cache" / "compiled" / "geminorum" / "node-compile-cache"

# Data of other projects lies beside the repository; a plain clone is complete without it.
collect_ignore = [] if (ROOT.parent / "shared/fixtures").is_dir() else ["other_projects"]

# Tests assert outcomes, never times: on a machine under load any example may be slow.
settings.register_profile("geminorum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("geminorum")


@pytest.fixture(scope="session", autouse=True)
def _marked_session() -> None:
    """Every process that a test starts, however far it moves, carries this mark."""
    os.environ[TEST_MARK] = uuid.uuid4().hex


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fails any test that leaves a descendant behind one second after its end."""
    yield
    deadline = time.monotonic() + 1.0
    mark = os.environ[TEST_MARK]
    while (left := marked_processes(mark) + keepers()) and time.monotonic() < deadline:
        time.sleep(0.02)
    told = [f"{process.pid} {' '.join(process.cmdline())[:200]}" for process in left]
    for process in left:
        process.kill()
    assert not told, f"processes left behind: {told}"


def marked_processes(mark: str) -> list[psutil.Process]:
    """Living processes other than this one that have `mark` in their environment."""
    found = []
    for pid in psutil.pids():
        try:
            if pid != os.getpid() and mark in _environment(pid):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def keepers() -> list[psutil.Process]:
    """Those of this process that are at work; they have no environment, so no mark."""
    server = KEEPERS.pid
    try:
        told = Path(f"/proc/{server}/task/{server}/children") if server else None
        return [psutil.Process(int(pid)) for pid in (told.read_text().split() if told else ())]
    except (psutil.Error, OSError):
        return []  # It has ended, or the system does not tell.


def _environment(pid: int) -> str:
    """Straight from the kernel where that is possible: this is asked after every single test."""
    if sys.platform == "linux":
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return "\0".join(psutil.Process(pid).environ().values())


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the home of whoever runs it; compiled code is kept between tests."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(COMPILED.parent.parent))
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_CLI_HOME", "GEMINI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def real_cli_door() -> Cli:
    """The `Cli` door to the real Gemini CLI, as `make test` installs it."""
    path = os.environ.get("GEMINORUM_TEST_CLI") or ROOT / ".gemini-cli/node_modules/.bin/gemini"
    if not Path(path).exists():
        pytest.fail(f"no Gemini CLI at {path}: run `make test`, which installs it")
    return Cli(executable=path)


@pytest.fixture(params=[Cli, Acp], ids=["cli", "acp"])
def any_door(request: pytest.FixtureRequest, real_cli_door: Cli) -> Cli | Acp:
    """Either way to the real CLI."""
    return request.param(executable=real_cli_door.executable)


@pytest.fixture(scope="session")
def real_cli(real_cli_door: Cli) -> list[str]:
    """The command behind that door, for tests that start it by themselves."""
    from geminorum.detect import find_cli

    return list(find_cli(real_cli_door.executable).command)


@pytest.fixture(scope="session")
def quick_start() -> dict[str, str]:
    """For tests that start the real CLI by themselves: what our own doors would add."""
    return {"GEMINI_CLI_NO_RELAUNCH": "true", "NODE_COMPILE_CACHE": str(COMPILED)}


class StandIn:
    """Makes executables that play a Gemini CLI: `stand_in({...}, exit=53)` is a door to one."""

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
        **door: Any,
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
        return Cli(executable=self._executable(plan), **{"grace": 0.5, **door})

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


@pytest.fixture
def stand_in_acp(tmp_path: Path) -> Callable[..., Acp]:
    """Doors to a program that speaks the ACP, but for one bad habit."""

    def door(habit: str, **how: Any) -> Acp:
        program = tmp_path / "gemini-stand-in"
        script = Path(__file__).with_name("stand_in_acp.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{script}" "{habit}" "$@"\n')
        program.chmod(0o755)
        return Acp(executable=program, **{"grace": 0.5, **how})

    return door


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


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """Real executables that play a Gemini CLI; see StandIn."""
    folder = tmp_path / "stand-in"
    folder.mkdir()
    return StandIn(folder)
