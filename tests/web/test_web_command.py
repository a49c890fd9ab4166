"""`geminorum web` in a process of its own: its link, its port, its end."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import httpx
import psutil
import pytest
from played import INIT, delta

from command_line import COMMAND, environment, geminorum_command
from geminorum.apps.command.web import serving
from stand_in import StandIn


@contextmanager
def page(folder: Path, *flags: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """The command in the foreground; whatever happens, it ends with the block."""
    words = [*COMMAND, "web", "--db", f"sqlite:///{folder}/web.db", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(words, env=environment(env), **pipes)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """A CLI that hangs with children of its own."""
    stand_in = StandIn(tmp_path_factory.mktemp("endless"))
    stand_in(INIT, delta("Hello"), hang=True, grandchildren=("tool", "stubborn"))
    return stand_in


def log_in(child: subprocess.Popen[str]) -> httpx.Client:
    link = json.loads(child.stdout.readline())["url"]
    address, _, token = link.partition("/?token=")
    bearer = {"authorization": f"Bearer {unquote(token)}"}
    return httpx.Client(base_url=address, headers=bearer)


def start_run(client: httpx.Client, endless: StandIn, work: Path) -> list[int]:
    """A run that hangs; the numbers of its processes."""
    said = endless._folder / "plan-1.said"
    said.unlink(missing_ok=True)
    options = {"cwd": str(work), "approval": "yolo"}
    client.post("/api/runs", json={"prompt": "Go on", "options": options}).raise_for_status()
    deadline = time.monotonic() + 30
    while not said.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return [endless.call["pid"], *endless.call["children"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_page_and_everything_that_its_runs_started(number, tmp_path, endless):
    cli = endless._folder / "gemini-1"
    (work := tmp_path / "work").mkdir()
    own = {"GEMINORUM_WEB_TOKEN": "correct horse battery"}
    with page(tmp_path, "--json", "--cli", str(cli), **own) as child, log_in(child) as client:
        processes = start_run(client, endless, work)
        assert all(map(psutil.pid_exists, processes))
        # An agent that knew the token could answer its own questions.
        assert client.headers["authorization"] == "Bearer correct horse battery"
        assert "correct horse battery" not in json.dumps(endless.call)
        with client.stream("GET", "/live") as stream:
            child.send_signal(number)
            assert b"event: over" in stream.read()
        assert child.wait(30) == 0
        assert "stopping 1 run" in child.stderr.read()
        assert not any(map(psutil.pid_exists, processes))


def test_a_kill_leaves_no_agent_behind(tmp_path, endless):
    cli = endless._folder / "gemini-1"
    (work := tmp_path / "work").mkdir()
    with page(tmp_path, "--json", "--cli", str(cli)) as child, log_in(child) as client:
        processes = start_run(client, endless, work)
        child.kill()
        deadline = time.monotonic() + 30
        while any(map(psutil.pid_exists, processes)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(psutil.pid_exists, processes))


def test_the_link_is_all_that_is_printed_and_works(tmp_path):
    with page(tmp_path) as child:
        link = child.stdout.readline().strip()
        assert httpx.get(link, follow_redirects=False).status_code == 303
        second = geminorum_command("web", "--port", link.split(":")[2].partition("/")[0])
        assert second.returncode != 0
        assert "another `geminorum web` serves port" in second.stderr
        assert "leave --port out" in second.stderr
        child.send_signal(signal.SIGINT)
        rest, hints = child.communicate(timeout=30)
        assert rest == ""
        assert "Whoever has this link can start agents as you" in hints


def test_a_port_of_another_program_is_told_apart(tmp_path):
    with serving.serving.listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = geminorum_command("web", "--port", str(port), "--db", f"sqlite:///{tmp_path}/w.db")
    assert "another program listens on port" in done.stderr


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--host", "0.0.0.0"), "GEMINORUM_WEB_TOKEN"),
        (("--host", "::"), "--proxy-header"),
        (("--token", "short"), "16 or more"),
        (("--db", "mysql://host/name"), "sqlite:///FILE"),
        (("--host", ".", "--token", "x" * 16), "--host 127.0.0.1"),
        (("--db", "sqlite:////proc/nowhere/web.db"), "--db sqlite:///FILE"),
    ],
)
def test_what_cannot_be_served_says_what_to_type(flags, told):
    done = geminorum_command("web", *flags)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_browser_is_opened_without_the_token_in_its_arguments(tmp_path):
    """Every user of a machine can read the arguments of every process."""
    said = tmp_path / "said"
    program = tmp_path / "browser"
    lines = [f'(echo "$1"; cat "${{1#file://}}") > {said}.part', f"mv {said}.part {said}"]
    program.write_text("\n".join(["#!/bin/sh", *lines]))
    program.chmod(0o755)
    with page(tmp_path, "--open", BROWSER=f"{program} %s") as child:
        link = child.stdout.readline().strip()
        deadline = time.monotonic() + 30
        while not said.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        argument, file = said.read_text().split("\n", 1)
        token = link.partition("token=")[2]
        assert token not in argument
        assert token in file
        place = Path(argument.removeprefix("file://")).parent
        assert place.stat().st_mode & 0o077 == 0
        child.send_signal(signal.SIGTERM)
        child.wait(30)
        assert not place.exists()
