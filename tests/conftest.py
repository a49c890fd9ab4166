"""Fixtures: the real CLI, programs that play it, a private home, a check for left processes."""

import gc
import os
import signal
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
from geminorum.transports.process.agent_lease import AGENT_LEASE
from left_processes import SHARED, TEST_MARK, keepers, marked_processes
from owners import StartOwner, owners
from shared_run import COMPILED, live_in
from stand_in import StandIn

ROOT = Path(__file__).resolve().parent.parent

# Data of other projects lies beside the repository; a plain clone is complete without it.
collect_ignore = [] if (ROOT.parent / "shared/fixtures").is_dir() else ["other_projects"]

# Tests assert outcomes, never times: on a machine under load any example may be slow.
settings.register_profile("geminorum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("geminorum")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: nobody has to look for garbage in it again and again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _mark_processes() -> None:
    """Puts a mark into the environment, which every process that a test starts inherits."""
    os.environ[TEST_MARK] = uuid.uuid4().hex


@pytest.fixture(scope="session", autouse=True)
def _restore_ctrl_c() -> None:
    """Restores Ctrl-C: a background job of a shell ignores it, and so would its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _work_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs without a folder of their own get an empty one: before each, its folder is searched, and
    this repository holds a hundred thousand files by now."""
    folder, before = tmp_path_factory.mktemp("elsewhere"), Path.cwd()
    os.chdir(folder)
    yield
    os.chdir(before)
    assert list(folder.iterdir()) == [], "files left in the current folder"


HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """For tests after which signals would do something else: restores what they did before."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def no_signal_handler_is_left() -> Iterator[None]:
    """Fails any test that leaves a handler of its own: Ctrl-C would not reach the next test."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    changed = {each: left for each in HANDLED if (left := signal.getsignal(each)) != before[each]}
    for number in changed:
        signal.signal(number, before[number])
    assert not changed, f"signal handlers left behind: {changed}"


@pytest.fixture(autouse=True)
def no_lease_is_left() -> Iterator[None]:
    """Fails any test that leaves a lease over agents: once it has passed, no agent would start."""
    yield
    is_left = AGENT_LEASE.is_set
    AGENT_LEASE.end()
    assert not is_left, "a lease over agents left behind"


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fails a test if one of its processes is alive one second after its end."""
    yield
    deadline = time.monotonic() + 1.0
    mark = os.environ[TEST_MARK]
    while (left := _unshared(marked_processes(mark) + keepers())) and time.monotonic() < deadline:
        time.sleep(0.02)
    found = [f"{process.pid} {' '.join(process.cmdline())[:200]}" for process in left]
    for process in left:
        process.kill()
    assert not found, f"processes left behind: {found}"


def _unshared(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.pid not in SHARED]


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives each test an empty home; a wider fixture has another, see shared_run.py."""
    home = tmp_path_factory.mktemp("home")
    live_in(home, monkeypatch)
    return home


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a real PostgreSQL, which all tests of this process share.

    Each test makes a database of its own in it: `fleet_parts.new_database`, `empty_database`.
    """
    from servers import postgres_server  # Most processes need no driver.

    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def real_transport() -> Cli:
    """The `Cli` transport to the real Gemini CLI, as `make test` installs it."""
    path = os.environ.get("GEMINORUM_TEST_CLI") or ROOT / ".gemini-cli/node_modules/.bin/gemini"
    if not Path(path).exists():
        pytest.fail(f"no Gemini CLI at {path}: run `make test`, which installs it")
    return Cli(executable=path)


@pytest.fixture(params=[Cli, Acp], ids=["cli", "acp"])
def any_transport(request: pytest.FixtureRequest, real_transport: Cli) -> Cli | Acp:
    """`Cli` and `Acp` to the real CLI, one after the other."""
    return request.param(executable=real_transport.executable)


@pytest.fixture(scope="session")
def real_cli(real_transport: Cli) -> list[str]:
    """The command of the real CLI, for tests that start it without a transport."""
    from geminorum.detect import find_cli

    return list(find_cli(real_transport.executable).command)


@pytest.fixture(scope="session")
def quick_start() -> dict[str, str]:
    """Variables that a transport would add, for tests that start the real CLI without one."""
    return {"GEMINI_CLI_NO_RELAUNCH": "true", "NODE_COMPILE_CACHE": str(COMPILED)}


@pytest.fixture
def stand_in_acp(tmp_path: Path) -> Callable[..., Acp]:
    """Makes transports to a program that speaks ACP with one bad habit."""

    def transport(habit: str, **how: Any) -> Acp:
        program = tmp_path / "gemini-stand-in"
        script = Path(__file__).with_name("stand_in_acp.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{script}" "{habit}" "$@"\n')
        program.chmod(0o755)
        return Acp(executable=program, **{"grace": 0.5, **how})

    return transport


@pytest.fixture
def owner() -> Iterator[StartOwner]:
    """Starts a Python program that runs agents, to be killed or stopped."""
    with owners() as start:
        yield start


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """Real executables that play a Gemini CLI; see StandIn."""
    folder = tmp_path / "stand-in"
    folder.mkdir()
    return StandIn(folder)
