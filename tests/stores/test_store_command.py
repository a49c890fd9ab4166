"""`--store` and GEMINORUM_STORE: in `run` and `chat`, and in `sessions`."""

import json
from pathlib import Path

import pytest
from two_homes import SESSION, machine, turn

from command_line import geminorum_command as command
from geminorum.apps.command.flags.options import with_options
from geminorum.apps.command.flags.table import OPTIONS_FLAGS, Via
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
    done = command("sessions", "list", "--store", "gopher://x")
    assert (done.returncode, "not the URL of a store" in done.stderr) == (2, True)
    (tmp_path / "no.db").write_text("this is no database, but long enough to be taken for one")
    done = command("sessions", "list", "--store", f"sqlite:///{tmp_path}/no.db")
    assert (done.returncode, "not a database" in done.stderr) == (75, True)


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
    assert len(SqliteStore(Path(url.removeprefix("sqlite:///"))).load(SESSION)) == 6
