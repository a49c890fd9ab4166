"""A question of the real CLI outlives the `geminorum web` whose run asked it."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from test_web_command import log_in, page

from geminorum import Cli
from geminorum.inbox import sync
from geminorum.testing import FakeGemini

pytestmark = pytest.mark.gemini_cli
COMMAND = "echo acted >> acted.txt"
WAIT_SECONDS = 60.0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_question_outlives_the_page_and_is_answered_after_a_restart(
    number: signal.Signals, tmp_path: Path, fake_gemini: FakeGemini, real_transport: Cli
) -> None:
    (work := tmp_path / "work").mkdir()
    inbox = sync.Inbox(f"sqlite:///{tmp_path}/web.db")
    flags = ("--json", "--cli", str(real_transport.executable), "--cwd", str(work))
    fake_gemini.call("run_shell_command", command=COMMAND)
    with page(tmp_path, *flags, **fake_gemini.env) as child, log_in(child) as client:
        client.post("/api/runs", json={"prompt": "Act once"}).raise_for_status()
        (asked,) = until(inbox.questions)
        assert asked.command == COMMAND
        agents = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(number)
        child.wait(WAIT_SECONDS)
        until(lambda: not any(map(psutil.Process.is_running, agents)))
    assert not (work / "acted.txt").exists()
    assert inbox.question(asked.id).state == "waiting"

    fake_gemini.call("run_shell_command", command=COMMAND).say("It is done.")
    with page(tmp_path, *flags, **fake_gemini.env) as child, log_in(child) as client:
        shown = client.get("/inbox").text
        assert COMMAND.partition(">")[0] in shown
        assert "The run that asked has ended" in shown
        answered = client.post(f"/inbox/{asked.id}/answer", data={"decision": "allow"})
        run = answered.headers["location"].rpartition("/")[2]
        ended = until(lambda: over(client, run))
        assert ended["status"] == "success", client.get(f"/runs/{run}").text
        question = inbox.question(asked.id)
        assert question.used_at is not None
        assert inbox.questions() == []
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_SECONDS) == 0
    assert (work / "acted.txt").read_text() == "acted\n"
    assert not fake_gemini.unused


def over(client: httpx.Client, run: str) -> dict[str, Any] | None:
    found: dict[str, Any] = client.get(f"/api/runs/{run}").json()
    return found if found["ended"] else None


def until(look: Callable[[], Any]) -> Any:
    """What it finds, once it finds something."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, look
        time.sleep(0.05)
    return found
