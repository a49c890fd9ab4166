"""What hostile users, agents and models cannot do with the inbox."""

import asyncio
import os
import sqlite3
import stat

import pytest
from inbox_parts import (
    SHELL,
    WRITE,
    asked,
    asking,
    conversation,
    leave_questions,
    the_question,
)
from msgspec.structs import replace

from geminorum import Allow, Deny, Options, ask
from geminorum.environment import environment_of
from geminorum.errors import InboxError, InboxUnavailable, InvalidOptions, Unsupported
from geminorum.inbox import Inbox
from geminorum.inbox.drafting import MAX_QUESTION_BYTES
from geminorum.transports.process.marked_tree import MARKER


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "inbox.db"


@pytest.fixture
def inbox(path):
    return Inbox(path)


async def test_only_the_user_can_read_and_write_the_file(inbox, path):
    async with asking(conversation(inbox), SHELL):
        await asked(inbox)
        files = list(path.parent.iterdir())
        assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_by_default_it_lies_in_the_user_s_state_folder(private_home, monkeypatch):
    for name in ("GEMINORUM_INBOX", "GEMINORUM_DB", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert f"{private_home}/.local/state/geminorum/inbox.db" in repr(Inbox())
    monkeypatch.setenv("GEMINORUM_DB", "postgresql://user:secret@host/fleet")
    assert "postgresql://user:…@host/fleet" in repr(Inbox())
    assert "secret" not in repr(Inbox())
    monkeypatch.setenv("GEMINORUM_INBOX", "/srv/inbox.db")
    assert "/srv/inbox.db" in repr(Inbox())
    assert not {"GEMINORUM_DB", "GEMINORUM_INBOX"} & {*environment_of(Options())}


def test_no_agent_gets_the_token_of_a_page(monkeypatch):
    """Also one that another command starts, where the token is exported for all of them."""
    monkeypatch.setenv("GEMINORUM_WEB_TOKEN", "correct horse battery staple")
    assert "GEMINORUM_WEB_TOKEN" not in environment_of(Options())


@pytest.mark.parametrize("address", ["ftp://host/inbox", "sqlite://inbox.db", "https://host"])
def test_an_address_of_no_inbox_is_refused(address):
    with pytest.raises(InvalidOptions, match="not the address of an inbox"):
        Inbox(address)


@pytest.mark.parametrize(
    "wrong", [{"deadline": 0}, {"patience": -1}, {"remind_every": "1"}, {"deadline": float("inf")}]
)
def test_limits_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(InvalidOptions, match=next(iter(wrong))):
        Inbox(**wrong)


async def test_to_look_makes_no_file(inbox, path):
    assert await inbox.questions() == []
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "open_to_others",
    [
        lambda path: path.chmod(0o620),
        lambda path: path.chmod(0o602),
        lambda path: path.parent.chmod(0o777),
        lambda path: path.rename(path.with_name("other")) and path.symlink_to("other"),
    ],
    ids=["group", "others", "folder", "link"],
)
async def test_a_file_that_others_can_change_is_a_no(inbox, path, open_to_others):
    async with asking(conversation(inbox), SHELL):
        await asked(inbox)
    open_to_others(path)
    decision = await conversation(Inbox(path)).ask(SHELL)
    assert isinstance(decision, Deny)
    assert "other users can change the inbox" in decision.reason
    with pytest.raises(InboxError, match="other users can change"):
        await Inbox(path).questions()


async def test_a_broken_file_is_a_no_and_says_so(inbox, path):
    path.parent.mkdir(mode=0o700)
    path.write_text("no database " * 1000)
    path.chmod(0o600)
    decision = await conversation(inbox).ask(SHELL)
    assert isinstance(decision, Deny)
    assert "file is not a database" in decision.reason
    with pytest.raises(InboxUnavailable, match="not a database"):
        await anext(inbox.watch())


async def test_the_inbox_of_a_newer_version_is_left_alone(inbox, path):
    async with asking(conversation(inbox), SHELL):
        await asked(inbox)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(Unsupported, match="newer geminorum"):
        await Inbox(path).questions()


async def test_a_store_that_disappears_while_a_question_waits_is_a_no(inbox, path, monkeypatch):
    monkeypatch.setattr("geminorum.inbox.asking._STORE_ABSENCE_SECONDS", 0.0)
    async with asking(conversation(inbox), SHELL) as (task,):
        await asked(inbox)
        for one in path.parent.iterdir():
            one.unlink()
        path.mkdir()
        monkeypatch.setattr("geminorum.inbox.asking._RENEW_SECONDS", 0.0)
        decision = await asyncio.wait_for(task, 60)
    assert isinstance(decision, Deny)


@pytest.mark.parametrize("kind", ["cli", "acp"])
async def test_an_inbox_that_the_agent_could_write_to_is_refused(
    kind, stand_in, stand_in_acp, tmp_path
):
    """Before anything starts, also if a link leads there."""
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(project / "deep")
    inbox = Inbox(tmp_path / "link" / "inbox.db")
    via = stand_in(decide=inbox) if kind == "cli" else stand_in_acp("asking", decide=inbox)
    for options in (
        Options(cwd=project),
        Options(cwd=tmp_path / "stand-in", include_directories=[project])
        if kind == "cli"
        else Options(cwd=project / "deep"),
    ):
        with pytest.raises(InvalidOptions, match="could answer itself"):
            await ask("Go", options, via=via)


async def test_an_agent_s_child_cannot_answer(inbox, monkeypatch):
    async with asking(conversation(inbox), SHELL):
        (question,) = await asked(inbox)
        monkeypatch.setenv(MARKER, "x")
        with pytest.raises(InboxError, match="an agent cannot answer"):
            await inbox.answer(question.id, Allow())
        assert await inbox.questions() == [question]


@pytest.mark.parametrize("decision", [True, "allow", None, Allow])
async def test_only_a_decision_is_an_answer(inbox, decision):
    async with asking(conversation(inbox), SHELL):
        (question,) = await asked(inbox)
        with pytest.raises(InvalidOptions, match="is not an answer"):
            await inbox.answer(question.id, decision)


async def test_what_is_too_large_to_be_read_is_a_no(inbox):
    huge = replace(SHELL, input={"command": "x" * MAX_QUESTION_BYTES})
    decision = await conversation(inbox).ask(huge)
    assert isinstance(decision, Deny)
    assert "too large to be asked about" in decision.reason
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert isinstance(await conversation(inbox).ask(replace(SHELL, input={"deep": deep})), Deny)
    assert await inbox.questions(include_closed=True) == []


async def test_the_log_shows_no_letters_that_act_on_a_terminal(inbox, caplog):
    evil = replace(SHELL, name="\x1b]0;owned\x07", input={"x": "x" * MAX_QUESTION_BYTES})
    assert isinstance(await conversation(inbox).ask(evil), Deny)
    assert "too large" in caplog.text
    assert "\x1b" not in caplog.text


async def test_the_secrets_of_a_run_are_not_kept(inbox, path):
    """But calls that differ in a secret only are different calls."""
    decisions = conversation(inbox, redact=lambda text: text.replace("hunter22", "[redacted]"))
    first, second = (
        replace(SHELL, input={"command": f"curl -u me:{password} host", "env": [password]})
        for password in ("hunter22", "[redacted]")
    )
    async with asking(decisions, first):
        (question,) = await asked(inbox)
        assert question.command == "curl -u me:[redacted] host"
        assert question.input["env"] == ["[redacted]"]
        for one in path.parent.iterdir():
            assert b"hunter22" not in one.read_bytes()
        assert await inbox.answer(question.id, Allow())
    async with asking(conversation(inbox), second):
        (question,) = await asked(inbox)


async def test_a_file_outside_of_the_folder_is_not_shown(inbox, tmp_path):
    """The model names it, and those who read questions need not be allowed to read it."""
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret").write_text("the old secret\n")
    (project / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(project / "pipe")
    for name in (str(tmp_path / "secret"), "../secret", "link", "pipe", "a\0b"):
        request = replace(WRITE, input={"file_path": name, "content": "new\n"})
        async with asking(conversation(inbox, str(project)), request):
            (question,) = await asked(inbox)
            assert "+new" in question.diff
            assert "old secret" not in question.diff


async def test_a_call_whose_arguments_are_not_all_known_is_never_the_same(inbox, path):
    """A warm CLI tells only the title of some calls."""
    fetch = replace(SHELL, name="web_fetch", input={}, reason="Fetching")
    await leave_questions(path, fetch, transport="acp")
    question = await the_question(inbox, "waiting")
    await inbox.answer(question.id, Allow())
    async with asking(conversation(inbox, transport="acp"), fetch):
        assert (await asked(inbox))[0].id != question.id
