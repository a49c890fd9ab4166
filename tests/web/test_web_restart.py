"""A question of the real CLI outlives the `geminorum web` whose run asked it."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from test_web_command import log_in, page

from geminorum import Cli
from geminorum.inbox import Question, sync
from geminorum.testing import FakeGemini

pytestmark = pytest.mark.gemini_cli
COMMAND = "echo acted >> acted.txt"
WAIT_SECONDS = 60.0


class Agent:
    """Questions of the real CLI, which wants to act once, and the page whose run it is."""

    def __init__(self, folder: Path, fake: FakeGemini, cli: Cli) -> None:
        self.folder, self.fake, self.work = folder, fake, folder / "work"
        self.work.mkdir()
        self.inbox = sync.Inbox(f"sqlite:///{folder}/web.db")
        self._flags = ("--json", "--cli", str(cli.executable), "--cwd", str(self.work))

    @contextmanager
    def page(self) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
        variables = self.fake.env
        with page(self.folder, *self._flags, **variables) as child, log_in(child) as client:
            yield child, client

    def asks_on_a_page_that_ends_by(self, number: signal.Signals) -> Question:
        """Nothing has acted by then."""
        self.fake.call("run_shell_command", command=COMMAND)
        with self.page() as (child, client):
            client.post("/api/runs", json={"prompt": "Act once"}).raise_for_status()
            (asked,) = until(self.inbox.questions)
            assert asked.command == COMMAND
            agents = psutil.Process(child.pid).children(recursive=True)
            child.send_signal(number)
            child.wait(WAIT_SECONDS)
            until(lambda: not any(map(psutil.Process.is_running, agents)))
        assert not (self.work / "acted.txt").exists()
        return self.inbox.question(asked.id)


@pytest.fixture
def agent(tmp_path: Path, fake_gemini: FakeGemini, real_transport: Cli) -> Agent:
    return Agent(tmp_path, fake_gemini, real_transport)


def test_a_question_outlives_a_page_that_is_ended_by_ctrl_c(agent: Agent) -> None:
    assert agent.asks_on_a_page_that_ends_by(signal.SIGINT).state == "waiting"


def test_a_question_outlives_a_killed_page_and_is_answered_after_a_restart(agent: Agent) -> None:
    asked = agent.asks_on_a_page_that_ends_by(signal.SIGKILL)
    assert asked.state == "waiting"
    agent.fake.call("run_shell_command", command=COMMAND).say("It is done.")
    with agent.page() as (child, client):
        shown = client.get("/inbox").text
        assert COMMAND.partition(">")[0] in shown
        assert "The run that asked has ended" in shown
        answered = client.post(f"/inbox/{asked.id}/answer", data={"decision": "allow"})
        run = answered.headers["location"].rpartition("/")[2]
        ended = until(lambda: over(client, run))
        assert ended["status"] == "success", client.get(f"/runs/{run}").text
        assert agent.inbox.question(asked.id).used_at is not None
        assert agent.inbox.questions() == []
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_SECONDS) == 0
    assert (agent.work / "acted.txt").read_text() == "acted\n"
    assert not agent.fake.unused


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
