"""`--store` and GEMINORUM_STORE: in `run` and `chat`, and in `sessions`."""

import asyncio
import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from two_homes import SESSION, Machine, machine, turn

from command_line import geminorum_command as command
from geminorum import Error, Options
from geminorum.apps.command.chat import conversation as chatting
from geminorum.apps.command.chat.picking import events_in, pick_session, saved_sessions
from geminorum.apps.command.flags.options import with_options
from geminorum.apps.command.flags.table import OPTIONS_FLAGS, Program, Via
from geminorum.apps.command.render.live import PlainView, QuietView
from geminorum.apps.command.render.output import Showing
from geminorum.apps.command.run.undo import Copies
from geminorum.sessions.store import SqliteStore


@pytest.fixture
def url(tmp_path) -> str:
    """A store with a session."""
    here = machine(tmp_path, "here")
    turn(here, SqliteStore(tmp_path / "sessions.db"), "Remember seven")
    return f"sqlite:///{tmp_path}/sessions.db"


def test_the_sessions_of_a_store_are_listed_shown_exported_and_deleted(url, tmp_path):
    flag = ("--store", url)
    listed = command("sessions", "list", *flag)
    assert SESSION in listed.stdout
    assert "Remember seven" in listed.stdout
    (info,) = map(json.loads, command("sessions", "list", "--json", *flag).stdout.splitlines())
    assert (info["id"], info["title"]) == (SESSION, "Remember seven")
    for name in (SESSION, SESSION[:5], "latest"):
        assert "Remember seven" in command("sessions", "show", name, *flag).stdout
    env = {"GEMINORUM_STORE": url}
    page = tmp_path / "page.html"
    done = command("sessions", "export", "latest", "-f", "html", "-o", page, env=env)
    assert (done.returncode, "Remember seven" in page.read_text()) == (0, True)
    done = command("sessions", "delete", SESSION, "--yes", env=env)
    assert done.stdout == f"removed {SESSION} from the store\n"
    done = command("sessions", "show", SESSION, *flag)
    assert (done.returncode, "has no session" in done.stderr) == (6, True)
    assert "the store is empty" in command("sessions", "list", *flag).stderr


def test_a_store_that_cannot_be_opened_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    done = command("sessions", "list", "--store", f"sqlite:///{tmp_path}/file/x.db")
    assert (done.returncode, "cannot open the store" in done.stderr) == (75, True)
    assert "→ name another file: --store" in done.stderr
    done = command("sessions", "list", "--store", "gopher://x")
    assert (done.returncode, "not the URL of a store" in done.stderr) == (2, True)
    (tmp_path / "no.db").write_text("this is no database, but long enough to be taken for one")
    done = command("sessions", "list", "--store", f"sqlite:///{tmp_path}/no.db")
    assert (done.returncode, "not a database" in done.stderr) == (1, True)


def _options(monkeypatch, store=None, variable=None, via=Via.CLI):
    monkeypatch.setenv("GEMINORUM_STORE", variable or "")
    fields = {**dict.fromkeys(OPTIONS_FLAGS), "store": store, "via": via, "options_file": None}
    return with_options(fields)["options"]


def test_the_flag_comes_before_the_variable(monkeypatch):
    assert _options(monkeypatch).store is None
    assert _options(monkeypatch, "sqlite:///a").store == "sqlite:///a"
    assert _options(monkeypatch, variable="sqlite:///b").store == "sqlite:///b"
    assert _options(monkeypatch, "sqlite:///a", "sqlite:///b").store == "sqlite:///a"
    assert _options(monkeypatch, variable="sqlite:///b", via=Via.API).store is None


@pytest.mark.gemini_cli
def test_a_run_and_a_chat_continue_a_session_of_a_store(fake_gemini, url, tmp_path, real_transport):
    fake_gemini.say("Seven, of course.").say("Still seven.")
    env = {**fake_gemini.env, "GEMINORUM_STORE": url}
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    flags = ("--cli", str(real_transport.executable), "-m", "gemini-2.5-flash")
    done = command("run", "-q", "--resume", SESSION[:6], *flags, "Which?", env=env, cwd=cwd)
    assert (done.returncode, done.stdout) == (0, "Seven, of course.\n"), done.stderr
    done = command("chat", "--resume", "latest", *flags, stdin="And now?\n", env=env, cwd=cwd)
    assert "Still seven." in done.stdout
    said = str([content["parts"] for content in fake_gemini.requests[-1].contents])
    words = ("Remember seven", "Which?", "Seven, of course.", "And now?")
    assert [said.count(word) for word in words] == [1, 1, 1, 1]
    store = SqliteStore(Path(url.removeprefix("sqlite:///")))
    assert len([*store.load(SESSION)]) == 5


@pytest.mark.gemini_cli
def test_a_chat_offers_the_sessions_of_the_store(fake_gemini, url, tmp_path, real_transport):
    fake_gemini.say("Seven.")
    env = {**fake_gemini.env, "GEMINORUM_STORE": url}
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    flags = ("--cli", str(real_transport.executable), "-m", "gemini-2.5-flash")
    lines = "\n/resume\n1\nWhich?\n/save all.md\n"
    done = command("chat", "--via", "acp", "--pick", *flags, stdin=lines, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert "here: Remember seven" in done.stdout
    assert f"continuing {SESSION}: Remember seven" in done.stdout
    (request,) = fake_gemini.requests
    assert "Remember seven" in str(request.contents)
    assert "Remember seven" in (cwd / "all.md").read_text()


def _choice(tmp_path, url: str | None, *answers: str, here: str | None = None):
    """What somebody who answers so picks; and what is shown."""
    cwd = tmp_path / "work-here" / "here"
    options = Options(cwd=cwd, home=tmp_path / "home-here", store=url)
    screen = Console(file=StringIO(), width=200)
    picking = pick_session(Answers(*answers), screen, options, enter="none", here=here)
    found = asyncio.run(picking)
    return found, screen.file.getvalue(), options


class Answers:
    """Somebody who was asked, and says what is to be said."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def answer(self, question: str) -> str:
        return self.answers.pop(0)


OTHER = "fedcba98-0000-4000-8000-000000000000"


def test_a_session_is_offered_once_and_so_are_those_that_only_this_folder_has(url, tmp_path):
    local = Machine(tmp_path / "home-here", tmp_path / "work-here" / "here")
    local.say("only here", session=OTHER)
    there = machine(tmp_path, "there")
    turn(there, SqliteStore(tmp_path / "sessions.db"), "and eight")
    picked, shown, options = _choice(tmp_path, url, "2")
    assert shown.count("Remember seven") == shown.count("only here") == 1
    assert picked.id in (SESSION, OTHER)
    by_id = {info.id: info for info in saved_sessions(options)}
    said = {name: str(events_in(options, info)) for name, info in by_id.items()}
    assert "and eight" in said[SESSION]  # The store's copy is the newer one.
    assert "only here" in said[OTHER]
    _, shown, _ = _choice(tmp_path, None, "")
    assert "Remember seven" in shown


def test_a_session_of_the_store_that_is_damaged_is_not_offered(url, tmp_path):
    SqliteStore(tmp_path / "sessions.db").append("damaged", 1, b"junk")
    _, shown, _ = _choice(tmp_path, url, "")
    assert shown.count("\n") == 1
    with pytest.raises(EOFError):
        _choice(tmp_path, url, here=SESSION)


def test_a_store_that_fails_does_not_end_a_chat(url, tmp_path, monkeypatch):
    screen = Console(file=StringIO(), width=200)
    monkeypatch.setattr(chatting, "console", lambda: screen)
    (tmp_path / "no.db").write_text("this is no database, but long enough to be taken for one")
    options = Options(cwd=tmp_path, store=f"sqlite:///{tmp_path}/no.db")
    with Copies() as copies:
        table = chatting.ChatContext(Via.ACP, Program(), Showing(), Answers(), copies)
        assert asyncio.run(chatting._pick_in_chat(table, options)) is None
    assert "not a database" in screen.file.getvalue()


@pytest.mark.parametrize("view", [QuietView, PlainView])
def test_what_could_not_be_saved_is_said_once_also_with_quiet(view, capsys):
    view().show(Error("the turn is not in the store: no room", "STORE", recoverable=True))
    assert capsys.readouterr().err.count("! the turn is not in the store: no room\n") == 1
