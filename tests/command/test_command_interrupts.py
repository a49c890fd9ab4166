"""Ctrl-C at any time: no traceback, and nothing left behind."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from command_line import COMMAND, environment

INIT = {"type": "init", "session_id": "s-1", "model": "flash"}


def ended(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, stderr = child.communicate(timeout=60)
    return child.returncode, stderr.decode()


def started(*words: str, env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *words], env=env, cwd=cwd, **pipes)


@pytest.mark.parametrize(
    ("module", "words"), [("typer", ["--help"]), ("asyncio", ["run", "--offline", "Hi"])]
)
def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(tmp_path, module, words):
    interrupted = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    tmp_path.joinpath(f"{module}.py").write_text(interrupted)
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    code, stderr = ended(started(*words, env=env, cwd=tmp_path))
    assert code in (-signal.SIGINT, 130)
    assert "Traceback" not in stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_burst_of_signals_leaves_nothing(stand_in, tmp_path, stubborn, number):
    transport = stand_in(INIT, hang=True, grandchildren=("tool",), ignore_term=stubborn)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    names = {"GEMINI_CLI_PATH": str(transport.executable), "TMPDIR": str(temporary)}
    env = environment({**names, "GEMINI_API_KEY": "k"})
    child = started("run", "Hi", env=env, cwd=tmp_path)
    while not list(tmp_path.glob("stand-in/*.call")):
        assert child.poll() is None
        time.sleep(0.02)
    while child.poll() is None:
        child.send_signal(number)
        time.sleep(0.003)
    code, stderr = ended(child)
    assert code in (-number, 128 + number)
    assert "Traceback" not in stderr
    assert "destroyed" not in stderr
    assert list(temporary.iterdir()) == []
