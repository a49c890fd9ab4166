"""Every example runs as its page says, and keeps what it promises: each as a program of its own."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import importlib.util
import json
import os
import pty
import re
import runpy
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from command_home import A, B, SavedHome
from geminorum import events
from geminorum.contracts.local_adapter import CONFIG_FIELDS
from stand_in import make_package

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GEMINI = ROOT / ".gemini-cli/node_modules/.bin/gemini"
PAGE = (EXAMPLES / "README.md").read_text()
SHOWN = re.findall(r"^```console\n\$ ([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PATIENCE = 90


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone's examples and a repository with a change in it, as a reader of the page has them."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "GEMINI_CLI_PATH": str(GEMINI), **(extra or {})}
    env.pop("PYTHONPATH", None)
    return env


def example(
    name: str, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def called(
    name: str, *arguments: str, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> int:
    """The example's `main` in this process, which spares a second of imports of Google's SDK."""
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    return runpy.run_path(str(EXAMPLES / name))["main"]()


def as_shown(
    name: str, folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Types the command of the page, and compares what it prints with what the page says."""
    [(command, expected)] = [shown for shown in SHOWN if name in shown[0]]
    shell = ["bash", "-c", command]
    done = subprocess.run(
        shell, cwd=folder, env=environment(env), capture_output=True, text=True, timeout=PATIENCE
    )
    assert comparable(done.stdout) == comparable(expected), done.stderr
    assert "Traceback" not in done.stderr
    return done


def comparable(text: str) -> str:
    """Without what is different each time, and the spaces that make columns of it."""
    text = re.sub(r"\$0\.\d+", "$N", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"'/[^']*/", "'/…/", text)
    return re.sub(r"\s+", " ", text).strip()


# ---- the Gemini CLI


@pytest.mark.gemini_cli
def test_a_reviewer_reports_what_it_finds_and_touches_nothing(folder):
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for content in ("start()\n", "start()\nstop()\n"):
        (folder / "engine.py").write_text(content)
        for command in (["init", "-q"], ["add", "engine.py"], ["commit", "-qm", "Engine"]):
            subprocess.run([*git, *command], cwd=folder, check=True)
    assert as_shown("ci_review.py", folder).returncode == 1
    assert (folder / "engine.py").read_text() == "start()\nstop()\n"


@pytest.mark.gemini_cli
def test_many_agents_work_at_once_each_within_its_own_limits(folder):
    assert as_shown("many_agents.py", folder).returncode == 1
    agents = folder / "examples"
    assert (agents / "writer/note.md").read_text() == "Once upon a time\n"
    assert not (agents / "reader/note.md").exists()


@pytest.mark.gemini_cli
def test_questions_go_on_from_one_session_and_do_not_see_each_other(folder):
    assert as_shown("resume_and_fork.py", folder).returncode == 0


@pytest.mark.gemini_cli
def test_a_chat_bot_in_a_pipe_takes_its_answers_from_there(folder):
    assert as_shown("chat_bot.py", folder).returncode == 0
    assert (folder / "poem.txt").read_text() == "O pipe!\n"


@pytest.mark.gemini_cli
def test_a_chat_bot_on_a_terminal_stops_at_ctrl_c_and_goes_on(fake_gemini, tmp_path):
    fake_gemini.when("wait").hang("Waiting")
    fake_gemini.when("two").calls(*[("write_file", {"file_path": f, "content": f}) for f in "ab"])
    fake_gemini.when("two").say("Both are there.")
    with on_a_terminal("chat_bot.py", cwd=tmp_path, env=fake_gemini.env) as screen:
        screen.type("> ", "Please wait\n")
        screen.type("Waiting", "\x03")
        screen.type("[stopped]", "Write two files\n")
        screen.type("y / n / a: ", "a\n")
        screen.type("Both are there.", "\x04")
        assert screen.ended() == 0
    assert screen.text.count("[?]") == 1
    assert [(tmp_path / name).read_text() for name in "ab"] == ["a", "b"]


# ---- the API transport


@pytest.mark.gemini_cli
def test_the_same_functions_serve_the_cli_and_the_api(fake_gemini, folder, monkeypatch, capsys):
    by_cli = as_shown("python_tools.py", folder).stdout
    fake_gemini.call("find_orders", customer="Ada").call("refund", order=1)
    fake_gemini.say("Done, with apologies.")
    request = "Ada wants her money back"
    called("python_tools.py", "api", request, env=fake_gemini.env, monkeypatch=monkeypatch)
    assert capsys.readouterr().out == by_cli


def test_labels_of_a_file(folder):
    assert as_shown("label_batch.py", folder).returncode == 0


def test_labelling_goes_on_where_it_was_and_leaves_failures_for_the_next_time(
    fake_gemini, folder, monkeypatch, capsys
):
    mails, results = folder / "examples/mails.csv", folder / "examples/mails.labels.csv"
    results.write_text("row,label,confidence,usd\n1,bug,0.9,0.1\n")
    fake_gemini.when("moths").fail(400, "no moths, please")
    fake_gemini.when("halt").say('{"label": "question", "confidence": 1}')
    arguments = ("label_batch.py", str(mails), "body", "bug,question")
    assert called(*arguments, env=fake_gemini.env, monkeypatch=monkeypatch) == 1
    told = capsys.readouterr()
    assert told.out == "1 labelled before, 1 failed, 3 in total\n"
    assert told.err.startswith("row 2: ")
    assert "no moths" in told.err
    lines = results.read_text().splitlines()
    assert lines[1] == "1,bug,0.9,0.1"
    assert [line[:10] for line in lines[2:]] == ["3,question"]


# The tests of the example are tests of ours: pytest finds them here, and gives them the fixture.
_spec = importlib.util.spec_from_file_location("test_my_agent", EXAMPLES / "test_my_agent.py")
_theirs = sys.modules["test_my_agent"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_theirs)
globals().update((name, value) for name, value in vars(_theirs).items() if name[:5] == "test_")


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "save it without outputs"
    NotebookClient(notebook, timeout=PATIENCE).execute(cwd=str(tmp_path))
    told, table, cost = ("".join(map(said, cell.outputs)) for cell in cells[1:])
    assert "sunny in Rome" in told
    assert "pack light, and take a hat." in told
    assert "<td>Milan</td><td>1370000</td>" in table
    assert "total: $" in cost


def said(output: dict) -> str:
    data = output.get("data", {})
    return data.get("text/html") or data.get("text/markdown") or output.get("text", "")


# ---- files


def test_the_cost_of_saved_sessions_is_a_csv_that_never_calls_the_unknown_free(tmp_path, folder):
    saved = SavedHome(tmp_path / "saved", tmp_path / "project")
    saved.save(A, "Hi", "Hello", "And?", "No.")
    saved.save(B, "Hi", "Hello", day=2, model="gemini-9-ultra")
    done = as_shown("cost_report.py", folder, env=saved.env)
    assert done.returncode == 0
    assert done.stderr == "no price for gemini-9-ultra: 1,100 tokens are not in usd\n"


# ---- a web service


@pytest.mark.gemini_cli
def test_a_web_service_streams_events_and_stops_the_run_of_a_client_that_hangs_up(
    fake_gemini, tmp_path
):
    fake_gemini.whenever("wait").hang("Waiting")
    fake_gemini.whenever().say("Hello ", "world.")
    with served(tmp_path, fake_gemini.env) as client:
        answer = client.post("/tenants/anna/ask", json={"prompt": "Hi"})
        told = [events.decode(line[6:].encode()) for line in answer.text.splitlines()[1::3]]
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "".join(event.text for event in told if event.type == "text_delta") == "Hello world."
        assert told[-1].status == "success"

        with client.stream("POST", "/tenants/bob/ask", json={"prompt": "Please wait"}) as answer:
            assert any("Waiting" in line for line in answer.iter_lines())
        until(lambda: fake_gemini.abandoned)
        until(lambda: client.get("/health").json()["conversations"] == 0)

        again = client.post("/tenants/bob/ask", json={"prompt": "Hi"})
        assert '"status":"success"' in again.text
        assert client.get("/health").json() == {"processes": 1, "conversations": 0, "turns": 3}
        assert client.post("/tenants/..%2f/ask", json={"prompt": "Hi"}).status_code in (404, 422)
        assert 'event: error\ndata: {"type":"error","message":"the prompt is empty"' in (
            client.post("/tenants/bob/ask", json={"prompt": ""}).text
        )


def test_the_page_is_mounted_in_a_program_of_ones_own(fake_gemini, tmp_path):
    """The page is what is tested: a stand-in asks the model and says its answer."""
    fake_gemini.whenever().say("Hello world.")
    cli = make_package(tmp_path / "package")
    env = {**fake_gemini.env, "GEMINI_CLI_PATH": str(cli), "STAND_IN_ASKS": "1"}
    with served(tmp_path, env, "web_embedded.py") as client:
        [link] = re.findall(r"^Open (\S+)$", (tmp_path / "server.log").read_text(), re.M)
        path = link.replace("127.0.0.1:0", "x").partition("x")[2]
        client.follow_redirects = True
        page = client.get(path)
        assert page.url.path == "/agents/runs"
        [csrf] = re.findall(r'name="csrf" value="(\w+)"', page.text)
        run = client.post("/agents/runs", data={"csrf": csrf, "prompt": "Hi"})
        assert run.url.path.startswith("/agents/runs/")
        events = client.get(f"/agents/api{run.url.path.removeprefix('/agents')}/events")
        assert "Hello world." in events.text
        assert '"status":"success"' in events.text
        assert client.get("/health").json() == {"live_runs": 0}


@contextlib.contextmanager
def served(
    cwd: Path, env: Mapping[str, str], name: str = "fastapi_events.py"
) -> Iterator[httpx.Client]:
    """The service on a port of its own, ended as a service is: by SIGTERM."""
    command = [sys.executable, EXAMPLES / name, "0"]
    said = cwd / "server.log"
    with (
        said.open("w") as log,
        subprocess.Popen(command, cwd=cwd, env=environment(env), stdout=log, stderr=log) as server,
    ):
        try:
            until(lambda: "running on" in said.read_text() or server.poll() is not None)
            [address] = re.findall(r"running on (http://[\d.:]+)", said.read_text())
            with httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as client:
                yield client
        finally:
            server.terminate()
            server.wait(PATIENCE)
    assert "Application shutdown complete" in said.read_text()


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


# ---- the portal


@pytest.mark.gemini_cli
def test_an_agent_is_edited_saved_checked_and_run_in_a_browser(fake_gemini, tmp_path):
    fake_gemini.whenever("Respond with: hello").say("hello")
    fake_gemini.whenever("Greet").say("Hello <world>.")
    # The real CLI, but for its version, which test_doctor.py asks it for.
    cli = tmp_path / "bin/gemini"
    cli.parent.mkdir()
    cli.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo 0.61.0\nexec "{GEMINI}" "$@"\n')
    cli.chmod(0o755)
    with portal(tmp_path, {**fake_gemini.env, "GEMINI_CLI_PATH": str(cli)}) as client:
        form = client.get("/writer").text
        assert [f.key for f in CONFIG_FIELDS if f'name="{f.key}"' not in form] == []
        assert 'value="run"' not in form
        [token] = re.findall(r'name="token" value="([^"]+)"', form)

        def press(action: str, **typed: str) -> str:
            answer = client.post("/writer", data={"token": token, "action": action, **typed})
            assert answer.status_code == 200
            return answer.text

        refused = press("save", cwd="work", timeoutSec="soon")
        assert "timeoutSec cannot be read" in refused
        assert 'value="work"' in refused
        assert not (tmp_path / "agents").exists()

        typed = {"cwd": "work", "model": "gemini-2.5-flash", "env": "# mine\nexport SECRET = hush"}
        page = press("save", **typed)
        assert "Saved" in page
        assert "hush" not in page
        file = tmp_path / "agents/writer.json"
        stored = {"cwd": "work", "model": "gemini-2.5-flash", "env": {"SECRET": "hush"}}
        assert json.loads(file.read_text()) == stored
        assert file.stat().st_mode & 0o777 == 0o600
        press("save", cwd="work", model="gemini-2.5-flash")
        assert json.loads(file.read_text()) == stored

        checks = press("check", **typed)
        assert re.findall(r"<li>(\w+): (\w+):", checks) == [
            *(("ok", "cli"), ("ok", "cwd"), ("ok", "instructions"), ("ok", "live"))
        ]
        done = press("run", **typed, prompt="Greet me")
        assert "<li>status: success" in done
        assert "<pre>Hello &lt;world&gt;.</pre>" in done
        assert (tmp_path / "work").is_dir()


def test_the_portal_takes_forms_from_its_own_pages_only(tmp_path):
    with portal(tmp_path, {}) as client:
        forged = {"token": "ünknown", "action": "save", "cwd": "work", "yolo": "on"}
        assert client.post("/writer", data=forged).status_code == 403
        assert client.get("/writer", headers={"Host": "evil.example"}).status_code == 404
        assert client.get("/..%2fwriter").status_code == 404
        [token] = re.findall(r'name="token" value="([^"]+)"', client.get("/writer").text)
        unsaved = client.post("/writer", data={"token": token, "action": "run"})
        assert unsaved.status_code == 400
        assert [*tmp_path.iterdir()] == [tmp_path / "server.log"]


@pytest.mark.parametrize("length", ["1000001", "9" * 30, "-1", "many"])
def test_the_portal_refuses_a_form_without_end(tmp_path, length):
    with portal(tmp_path, {}) as client:
        address = client.base_url
        raw = http.client.HTTPConnection(address.host, address.port, timeout=5)
        with contextlib.closing(raw):
            raw.putrequest("POST", "/writer")
            raw.putheader("Content-Length", length)
            raw.endheaders()
            assert raw.getresponse().status == 413


@contextlib.contextmanager
def portal(cwd: Path, env: Mapping[str, str]) -> Iterator[httpx.Client]:
    command = [sys.executable, EXAMPLES / "agent_portal.py", "0"]
    said = cwd / "server.log"
    with (
        said.open("w") as log,
        subprocess.Popen(command, cwd=cwd, env=environment(env), stdout=log, stderr=log) as server,
    ):
        try:
            until(lambda: "/writer" in said.read_text() or server.poll() is not None)
            [address] = re.findall(r"http://[\d.:]+", said.read_text())
            with httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as client:
                yield client
        finally:
            server.terminate()
            server.wait(PATIENCE)
    assert "Traceback" not in said.read_text()


# ---- mistakes


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ci_review.py", "the following arguments are required: range"),
        ("label_batch.py examples/mails.csv subject a,b", "no such column: 'subject'"),
        ("python_tools.py fax Hello", "usage: python_tools.py api|cli PROMPT"),
        ("many_agents.py nowhere.toml", "No such file or directory"),
        ("offline.py hologram.py", "examples: agent_portal.py, chat_bot.py"),
    ],
)
def test_an_example_called_wrongly_says_what_to_type(command, words, folder):
    name, *arguments = command.split()
    done = example(name, *arguments, cwd=folder)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_lists_every_example():
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert set(re.findall(r"^\| \[([\w.]+)\]", PAGE, re.MULTILINE)) == names


# ---- a terminal


class Screen:
    """A program on a terminal of its own: `type` waits for words, then presses keys."""

    def __init__(self, child: subprocess.Popen[bytes], ours: int) -> None:
        self._child, self._ours = child, ours
        self.text, self._read_to = "", 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # Linux: the other end has gone.
            while piece := os.read(self._ours, 65536):
                self.text += piece.decode(errors="replace")

    def type(self, words: str, keys: str) -> None:
        until(lambda: self.text.find(words, self._read_to) >= 0 or self._child.poll() is not None)
        found = self.text.find(words, self._read_to)
        assert found >= 0, self.text
        self._read_to = found + len(words)
        os.write(self._ours, keys.encode())

    def ended(self) -> int:
        code = self._child.wait(PATIENCE)
        self._reader.join()
        return code


@contextlib.contextmanager
def on_a_terminal(name: str, *, cwd: Path, env: Mapping[str, str]) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, EXAMPLES / name],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=environment(env),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    screen = Screen(child, ours)
    try:
        yield screen
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(10)
        screen._reader.join()
        os.close(ours)
