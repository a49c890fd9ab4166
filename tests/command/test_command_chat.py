"""`geminorum chat`: from a pipe, and on a terminal with somebody typing."""

import asyncio
import json
import re
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from command_home import A, B, SavedHome
from command_line import Terminal, shared_environment
from command_line import geminorum_command as command
from geminorum import Options, Result, events, sessions
from geminorum.apps.command.chat import conversation as chatting
from geminorum.apps.command.chat.conversation import is_command
from geminorum.apps.command.chat.slash_commands import Talk
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.render.output import Showing
from geminorum.apps.command.run import keep
from geminorum.apps.command.run.undo import Copies
from geminorum.testing import FakeGemini
from owners import wait_until

PROMPT_OPENS = "\x1b[?2004h"
"""What a terminal gets when a line can be typed: from now on, say what is pasted."""
ODD = b"caf\xe9\r\nno newline at the end \xff\x00"


@pytest.fixture
def work(tmp_path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def env(fake_gemini, real_transport) -> dict[str, str]:
    return {"GEMINI_CLI_PATH": str(real_transport.executable), **fake_gemini.env}


EDITS = ("chat", "--via", "acp", "--approval", "auto_edit")
API = ("chat", "--via", "api")
"""Where the transport does not matter: this one needs no other program to start."""


class Shared(SimpleNamespace):
    """A chat that several tests look at, with a folder and a model of its own."""

    def __init__(self, fake: FakeGemini, cli: Path | str, work: Path) -> None:
        env = {"GEMINI_CLI_PATH": str(cli), **fake.env, **shared_environment(work.parent)}
        super().__init__(fake=fake, env=env, work=work)


@pytest.fixture(scope="module")
def shared(real_transport, tmp_path_factory) -> Iterator[Callable[[], Shared]]:
    with ExitStack() as stack:

        def make() -> Shared:
            work = tmp_path_factory.mktemp("shared") / "work"
            work.mkdir()
            fake = stack.enter_context(FakeGemini())
            return Shared(fake, real_transport.executable, work)

        yield make


@pytest.fixture(scope="module")
def piped(shared) -> Shared:
    """Two prompts and an /undo from a pipe, each turn by a CLI of its own. The second may
    write, and there is nobody to ask about its command."""
    chat = shared()
    (chat.work / "a.txt").write_bytes(ODD)
    chat.fake.say("Noted.").call("run_shell_command", command="echo x > b.txt")
    chat.fake.call("write_file", file_path="a.txt", content="x").say("Seven.")
    arguments = ("chat", "--via", "cli", "--approval", "auto_edit")
    typed = "Remember seven\n\nWhich?\n/undo\n"
    chat.done = command(*arguments, stdin=typed, env=chat.env, cwd=chat.work)
    return chat


@pytest.mark.gemini_cli
def test_each_line_of_a_pipe_is_a_prompt(piped):
    done = piped.done
    assert done.returncode == 0
    assert done.stdout.startswith("Noted.\nSeven.\n  ✓ a.txt: as it was\n")
    assert "Remember seven" in str(piped.fake.requests[1].contents)
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.gemini_cli
def test_nobody_to_ask_in_a_pipe(piped):
    (line,) = (line for line in piped.done.stderr.splitlines() if "[run_shell_command" in line)
    assert "denied" in line
    assert [file.name for file in piped.work.iterdir()] == ["a.txt"]


@pytest.mark.gemini_cli
def test_a_past_session_is_picked_from_a_list(piped, tmp_path):
    """The one of the chat in a pipe."""
    saved = tmp_path / "all.md"
    piped.fake.say("It is seven.")
    with Terminal("chat", "--via", "acp", "--pick", env=piped.env, cwd=piped.work) as chat:
        chat.wait_for("  1  20")
        chat.wait_for("Remember seven")
        chat.wait_for("number (Enter: a new session):")
        chat.send("9\r")
        chat.wait_for("a number from 1 to 1")
        chat.send("1\r")
        chat.wait_for("continuing ")
        chat.send("Which was it?\r")
        chat.wait_for("It is seven.")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        chat.send(f"/save {saved}\r")
        chat.wait_for("saved to")
        chat.send("/resume\r")
        chat.wait_for("there are no other saved sessions")
        chat.send("/quit\r")
        assert chat.ends_with() == 0
    assert "Remember seven" in str(piped.fake.requests[-1].contents)
    assert "Remember seven" in saved.read_text()


@pytest.fixture(scope="module")
def words(shared) -> Shared:
    """Every word with a slash, and two prompts, from a pipe."""
    chat = shared()
    (chat.work / "a.txt").write_bytes(ODD)
    chat.fake.call("write_file", file_path="a.txt", content="hi").say("Written.").say("Sent.")
    typed = "/cost\n/files\nWrite\n/files\n/cost\n/cots\n/xyzzy\n//etc is what?\n/help\n"
    typed += "/undo\n/undo\n/quit\nNo more\n"
    arguments = ("chat", "--via", "acp", "--approval", "yolo")
    chat.done = command(*arguments, stdin=typed, env=chat.env, cwd=chat.work)
    return chat


@pytest.mark.gemini_cli
def test_words_with_a_slash(words):
    assert words.done.returncode == 0, words.done.stderr
    told = words.done.stdout
    assert "nothing yet" in told
    assert "no file was written" in told
    assert "  turn 1  a.txt\n" in told
    assert "  turn 1: gemini-" in told
    assert re.search(r"  total: (about )?\$0\.0", told)
    assert "did you mean /cost?" in told
    assert "there is no /xyzzy; /help lists them" in told
    assert "  /undo    put back" in told
    assert [request.prompt for request in words.fake.requests][-1].strip(
        "\u200b "
    ) == "/etc is what?"
    assert len(words.fake.requests) == 3


@pytest.mark.gemini_cli
@pytest.mark.parametrize(("via", "approval"), [("cli", "auto_edit"), ("acp", "yolo")])
def test_what_needs_no_question_can_be_undone_all_the_same(via, approval, request):
    chat = request.getfixturevalue("piped" if via == "cli" else "words")
    assert "✓ a.txt: as it was" in chat.done.stdout
    assert (chat.work / "a.txt").read_bytes() == ODD


def test_the_api_transport_remembers_too(fake_gemini, env, work):
    fake_gemini.say("Noted.").say("Seven.")
    done = command(*API, stdin="Remember seven\nWhich?\n", env=env, cwd=work)
    assert (done.returncode, done.stdout) == (0, "Noted.\nSeven.\n")
    assert "Remember seven" in str(fake_gemini.requests[1].contents)


def test_the_last_turns_failure_is_the_exit_code_of_a_pipe(fake_gemini, env, work):
    fake_gemini.say("Fine.").fail(400, "no such thing").always()
    done = command(*API, stdin="One\nTwo\n", env=env, cwd=work)
    assert (done.returncode, done.stdout) == (Exit.FAILED, "Fine.\n")
    assert "no such thing" in done.stderr


def test_offline_says_so(work):
    done = command(*API, "--offline", stdin="Hello\n", cwd=work)
    assert done.stderr.startswith("offline: a simulated model")
    assert "You said: *Hello*" in done.stdout


@pytest.mark.parametrize(
    ("line", "is_word"),
    [("/cost", True), ("/save a.md", True), ("/etc/hosts is what?", False), ("hi /x", False)],
)
def test_a_path_is_no_word(line, is_word):
    assert is_command(line) is is_word


def test_a_conversation_is_saved_in_the_format_of_the_name(fake_gemini, env, work):
    fake_gemini.say("Hello **you**.")
    names = ["a.md", "a.html", "a.jsonl", "a.json"]
    typed = "Hi\n" + "".join(f"/save {name}\n" for name in [*names, "a.md", "a.doc", "no/a.md"])
    done = command(*API, stdin=typed, env=env, cwd=work)
    assert "Hello **you**." in (work / "a.md").read_text()
    assert "<strong>you</strong>" in (work / "a.html").read_text()
    lines = (work / "a.jsonl").read_text().splitlines()
    assert [events.decode(line).type for line in (lines[0], lines[-1])] == ["init", "done"]
    assert '"assistant"' in (work / "a.json").read_text()
    assert "a.md already exists" in done.stdout
    assert "with one of .md, .html" in done.stdout
    assert "cannot write no/a.md" in done.stdout


@pytest.fixture(scope="module")
def undone(shared) -> Shared:
    """Two turns that write, and an /undo for each; another turn, after which somebody else writes
    before the /undo."""
    talk = shared()
    work, fake = talk.work, talk.fake
    odd, other, made = work / "odd.txt", work / "other.txt", work / "new" / "deep" / "b.txt"
    odd.write_bytes(ODD)
    odd.chmod(0o750)
    other.write_bytes(b"alpha\r\nbeta\r\n")
    fake.calls(
        ("write_file", {"file_path": "odd.txt", "content": "first"}),
        ("write_file", {"file_path": "new/deep/b.txt", "content": "made"}),
        ("write_file", {"file_path": "new/deep/c.txt", "content": "made"}),
    )
    fake.call("write_file", file_path="odd.txt", content="second").say("One.")
    fake.call(
        "replace", file_path="other.txt", old_string="beta", new_string="gamma", instruction="x"
    ).say("Two.")
    fake.call("write_file", file_path="other.txt", content="agent").say("I see.")
    with Terminal(*EDITS, env=talk.env, cwd=work) as chat:
        chat.wait_for("> ")
        chat.send("Change\r")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        talk.first = (odd.read_text(), made.read_text())
        chat.send("Change more\r")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        talk.second = other.read_bytes()
        chat.send("/undo\r")
        chat.wait_for("✓ other.txt: as it was")
        talk.after_one = (other.read_bytes(), odd.read_text())
        chat.send("/undo\r")
        chat.wait_for("✓ odd.txt: as it was")
        chat.wait_for("not undone: what shell")
        talk.after_two = (odd.read_bytes(), stat.S_IMODE(odd.stat().st_mode))
        talk.is_made_gone = not (work / "new").exists()
        chat.send("/undo\r")
        chat.wait_for("nothing to undo")
        chat.send("And?\r")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        talk.written = other.read_text()
        other.write_text("mine")
        chat.send("/undo\r")
        chat.wait_for("✗ other.txt: changed by someone else since")
        chat.wait_for("> ")
        chat.send("\x04")
        talk.code = chat.ends_with()
    return talk


@pytest.mark.gemini_cli
def test_undo_puts_files_back_byte_for_byte(undone):
    """Two turns; each /undo takes one back, and the agent is told."""
    assert undone.first == ("second", "made")
    assert b"gamma" in undone.second
    assert undone.after_one == (b"alpha\r\nbeta\r\n", "second")
    assert undone.after_two == (ODD, 0o750)
    assert undone.is_made_gone
    assert undone.code == 0
    told = undone.fake.requests[-1].prompt
    assert told.startswith("(I have undone your last changes to: other.txt, ")
    assert told.endswith("\n\nAnd?")


@pytest.mark.gemini_cli
def test_undo_leaves_alone_what_somebody_else_changed(undone):
    assert undone.written == "agent"
    assert undone.code == 0
    assert (undone.work / "other.txt").read_text() == "mine"


@pytest.mark.parametrize("forged", ["record", "bytes"])
def test_undo_writes_back_nothing_that_somebody_else_put_there(tmp_path, forged):
    """The temporary folder may be among those of the agent."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    theirs.write_text("before")
    with Copies() as copies:
        copies.keep(theirs)
        theirs.write_text("after")
        (place,) = copies._pending.iterdir()
        if forged == "bytes":
            (place / "bytes").write_text("evil")
        else:
            (copies._pending / "x").mkdir()
            (copies._pending / "x/bytes").write_text("evil")
            record = (place / "was.json").read_text().replace(str(theirs), str(mine))
            (copies._pending / "x/was.json").write_text(record)
        copies.end_turn()
        outcomes = copies.undo()
    assert mine.read_text() == "mine"
    assert theirs.read_text() == ("after" if forged == "bytes" else "before")
    assert [one.done for one in outcomes] == [forged == "record"]


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    """A write through a link changes its target; so does taking it back."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(ODD)
    link.symlink_to(target)
    with Copies() as copies:
        copies.keep(link)
        link.write_text("new")
        copies.keep(link)  # The second write of the turn: too late to be what it was.
        (kept,) = copies.end_turn()
        assert (kept.path, kept.bytes) == (target, ODD)
        assert [one.done for one in copies.undo()] == [True]
    assert link.is_symlink()
    assert target.read_bytes() == ODD


def test_a_file_that_was_replaced_gets_its_permissions_back(tmp_path):
    """A tool may write a new file in the place of the old."""
    path = tmp_path / "run.sh"
    path.write_bytes(ODD)
    path.chmod(0o750)
    with Copies() as copies:
        copies.keep(path)
        path.unlink()
        path.write_text("new")
        copies.end_turn()
        copies.undo()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (ODD, 0o750)


def test_what_was_kept_and_not_written_is_not_undone(tmp_path):
    """A write that was refused leaves a copy, and nothing to take back."""
    (tmp_path / "a").write_text("same")
    with Copies() as copies:
        copies.keep(tmp_path / "a")
        copies.keep(tmp_path / "b")
        assert copies.end_turn() == []
        assert copies.undo() == []


def test_a_write_that_cannot_be_leaves_nothing_to_undo(tmp_path):
    with Copies() as copies:
        copies.keep(tmp_path)
        copies.keep(tmp_path / "a-file" / "below")
        assert copies.end_turn() == []


def test_a_turn_after_an_undo_can_be_undone_too(tmp_path):
    path = tmp_path / "a"
    with Copies() as copies:
        for text in ("one", "two", "three"):
            copies.keep(path)
            path.write_text(text)
            assert len(copies.end_turn()) == 1
            assert [one.done for one in copies.undo()] == [True]
            assert not path.exists()


def test_a_file_that_was_undone_is_marked(tmp_path):
    """… of the turn that was undone, and not of the one before it."""
    path, screen = tmp_path / "a.txt", Console(file=StringIO(), width=200)
    with Copies() as copies:
        talk = Talk(copies, screen)
        for text in ("one", "two"):
            copies.keep(path)
            path.write_text(text)
            talk.end_turn(Result(status="success", text=""))
        talk.command("/undo")
        talk.command("/files")
    told = [line for line in screen.file.getvalue().splitlines() if "turn " in line]
    assert [line.endswith("a.txt  (undone)") for line in told] == [False, True]


def test_copies_are_private_and_go_with_the_chat(tmp_path):
    (tmp_path / "a").write_text("secret")
    with Copies() as copies:
        copies.keep(tmp_path / "a")
        command_line = copies.settings()["hooks"]["BeforeTool"][0]["hooks"][0]["command"]
        folder = Path(command_line.split(" ")[-2]).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert keep.__file__ in command_line
    assert not folder.exists()


def test_line_editing_history_and_completion(fake_gemini, env, work, private_home):
    fake_gemini.say("One.").say("Two.")
    with Terminal(*API, env=env, cwd=work) as chat:
        chat.wait_for("> ")
        chat.send("Hallo\x1b[D\x1b[D\x1b[D\x7fe\r")  # Three to the left, take the a out, an e in.
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        chat.send("\x1b[A\r")  # The line before.
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        chat.send("/fil\t")
        chat.wait_for("/files")
        chat.send("\r")
        chat.wait_for("no file was written")
        chat.wait_for("> ")
        chat.send("\x03")
        chat.wait_for("Ctrl-D or /quit to leave")
        chat.wait_for("> ")
        chat.send("\x04")
        assert chat.ends_with() == 0
    assert [request.prompt for request in fake_gemini.requests] == ["Hello", "Hello"]
    (history,) = private_home.rglob("chat-history")
    assert "+Hello\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_ctrl_c_twice_leaves_an_idle_chat(env, work):
    with Terminal(*API, env=env, cwd=work) as chat:
        chat.wait_for("> ")
        chat.send("\x03")
        chat.wait_for("Ctrl-C again")
        chat.wait_for("> ")
        # A line that is dropped does not count.
        chat.send("Never mind")
        chat.wait_for("Never mind")
        opened = chat.raw.count(PROMPT_OPENS)
        chat.send("\x03")
        # Between two prompts, it would do nothing.
        wait_until(lambda: chat.raw.count(PROMPT_OPENS) > opened)
        chat.send("\x03")
        chat.wait_for("Ctrl-C again")
        chat.wait_for("> ")
        chat.signal(signal.SIGINT)  # From elsewhere, as good as the key.
        assert chat.ends_with() == 0


@pytest.mark.parametrize("via", ["acp", "cli"])
@pytest.mark.parametrize(("resume", "words"), [("zzz", "no session 'zzz'"), ("latest", "has no")])
def test_a_session_that_is_not_there_is_refused_at_once(via, resume, words, fake_gemini, env, work):
    """… and not after the first prompt was typed."""
    done = command("chat", "--via", via, "--resume", resume, env=env, cwd=work)
    assert done.returncode == Exit.NOT_FOUND
    assert words in done.stderr
    assert "start a new session without --resume" in done.stderr


def test_ctrl_c_stops_the_turn_and_not_the_chat(stand_in, tmp_path, work):
    """test_chats.py cancels turns of the real CLI."""
    init = {"type": "init", "session_id": "s1", "model": "m", "timestamp": "2026-01-01T00:00:00Z"}
    say = {"type": "message", "role": "assistant", "delta": True}
    cli = stand_in(init, {**say, "content": "Half of it"}, hang=True).executable
    whole = tmp_path / "whole"
    lines = (init, {**say, "content": "Whole."}, {"type": "result", "status": "success"})
    whole.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Terminal("chat", "--via", "cli", "--cli", cli, cwd=work) as chat:
        chat.wait_for("> ")
        chat.send("Hi\r")
        chat.wait_for("Half of it")
        stand_in.change(stdout=str(whole), hang=False)
        chat.send("\x03")
        chat.wait_for("■ stopped")
        # Once more, too late for the turn; it is no key here, whatever the terminal's mode.
        chat.signal(signal.SIGINT)
        chat.send("Again\r")
        chat.wait_for("Whole.")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        chat.send("/quit\r")
        assert chat.ends_with() == 0
    assert "Traceback" not in chat.text


class Answers:
    """Somebody who was asked, and says what is to be said."""

    interactive = True

    def __init__(self, *answers: str) -> None:
        self.answers, self.questions = list(answers), []

    async def answer(self, question: str) -> str:
        self.questions.append(question)
        return self.answers.pop(0)


@pytest.fixture
def saved(tmp_path, work) -> SavedHome:
    home = SavedHome(tmp_path / "home", work)
    home.save(A, "Remember the number seven", "Noted: seven.", day=1)
    home.save(B, "What is a pipe?", "A pipe joins two programs.", day=2)
    return home


@pytest.fixture
def table(monkeypatch):
    """A chat at which somebody answers so."""
    screen = Console(file=StringIO(), width=200)
    monkeypatch.setattr(chatting, "console", lambda: screen)
    with Copies() as copies:
        yield lambda *answers: chatting.ChatContext(
            Via.ACP, Program(), Showing(), Answers(*answers), copies
        )


def test_enter_in_mid_chat_stays_and_at_the_start_is_new(saved, table):
    options = Options(cwd=saved.cwd, home=saved.home, resume=A)
    here = table("", "")
    here.talk.events.append("what was said")
    assert asyncio.run(chatting._pick_in_chat(here, options)) is None
    assert here.talk.events == ["what was said"]
    assert asyncio.run(chatting._pick_at_start(here, options)) == options.changed(resume=None)
    asked = ["number (Enter: stay in this one): ", "number (Enter: a new session): "]
    assert here.lines.questions == asked


@pytest.mark.parametrize("resume", [B, "latest", None])
def test_the_session_one_is_in_is_not_offered(resume, saved, table):
    here = table("2", "1")
    if resume is None:
        here.talk.end_turn(Result(status="success", text="", session_id=B))
    options = Options(cwd=saved.cwd, home=saved.home, resume=resume)
    assert asyncio.run(chatting._pick_in_chat(here, options)).resume == A
    told = here.console.file.getvalue()
    assert "Remember the number seven" in told
    assert "What is a pipe?" not in told
    assert "a number from 1 to 1" in told


def test_after_a_pick_only_the_picked_session_is_remembered(saved, table):
    here = table("1", "1")
    here.talk.events.append("what was said before")
    options = Options(cwd=saved.cwd, home=saved.home, session_id="my-own")
    there = asyncio.run(chatting._pick_in_chat(here, options))
    assert (there.resume, there.session_id) == (B, None)
    assert here.talk.events == list(sessions.load(B, home=saved.home).events())
    assert asyncio.run(chatting._pick_in_chat(here, there)).resume == A


def test_no_session_to_pick(fake_gemini, env, work):
    """… is no reason to leave the conversation that there is."""
    fake_gemini.say("Hello.").say("Still here.")
    lines = "Hi\n/resume\nAnd now?\n"
    done = command("chat", "--via", "api", "--pick", stdin=lines, env=env, cwd=work)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Still here.")
    assert done.stdout.count("there are no saved sessions") == 2
    assert len(fake_gemini.requests[1].contents) == 3


def test_a_dumb_terminal_has_plain_lines(fake_gemini, env, work):
    fake_gemini.say("Hello.")
    with Terminal(*API, env={**env, "TERM": "dumb"}, cwd=work) as chat:
        chat.wait_for("> ")
        chat.send("Hi\n")
        chat.wait_for("Hello.")
        chat.wait_for("> ")
        chat.send("\x04")
        assert chat.ends_with() == 0
    assert "\x1b" not in chat.raw


@pytest.fixture(scope="module")
def asked(shared) -> Shared:
    """One warm chat: a no, something else instead, a yes, and a yes to all that follows; what is
    written is undone. Then Ctrl-C at another question."""
    talk = shared()
    fake, file = talk.fake, talk.work / "a.txt"
    fake.when("One").call("run_shell_command", command="echo hi > a.txt").say("Then not.")
    fake.when("Two").call("run_shell_command", command="echo ho > b.txt").say("Better.")
    fake.when("use a file").say("Better.")
    fake.when("Stop").call("run_shell_command", command="echo x > c.txt").say("Never said.")
    for name in ("First", "Second", "Third"):
        fake.when(name).call("write_file", file_path="a.txt", content=name).say("Done.")
    with Terminal("chat", "--via", "acp", env=talk.env, cwd=talk.work) as chat:
        chat.wait_for("> ")
        # The yes comes too early: nobody can have meant a question that was not there.
        chat.send("One\ry\r")
        chat.wait_for("? run_shell_command")
        chat.wait_for("$ echo hi > a.txt")
        chat.wait_for("what to do instead:")
        chat.send("n\r")
        chat.wait_for("Then not.")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        chat.send("Two\r")
        chat.wait_for("$ echo ho > b.txt")
        chat.wait_for("what to do instead:")
        chat.send("use a file\r")
        for _ in range(2):
            chat.wait_for("Better.")
            chat.wait_for("✓ done")
        chat.wait_for("> ")
        talk.told_instead = fake.requests[-1].prompt
        talk.after_no = list(talk.work.iterdir())
        file.write_bytes(ODD)
        chat.send("First\r")
        chat.wait_for("? write_file")
        chat.wait_for("+First")
        chat.wait_for("what to do instead:")
        talk.states = [file.read_bytes()]
        chat.send("y\r")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        talk.states.append(file.read_bytes())
        chat.send("Second\r")
        chat.wait_for("what to do instead:")
        chat.send("a\r")
        chat.wait_for("✓ done")
        chat.wait_for("> ")
        chat.send("Third\r")
        chat.wait_for("✓ done")
        talk.states.append(file.read_bytes())
        for _ in range(3):
            chat.send("/undo\r")
            chat.wait_for("as it was")
            chat.wait_for("> ")
            talk.states.append(file.read_bytes())
        chat.send("Stop\r")
        chat.wait_for("$ echo x > c.txt")
        chat.wait_for("what to do instead:")
        chat.send("\x03")
        chat.wait_for("■ stopped")
        chat.send("/quit\r")
        talk.code = chat.ends_with()
        talk.text = chat.text
    return talk


@pytest.mark.gemini_cli
def test_a_question_shows_the_change_and_waits(asked):
    """y: it is written, and can be undone. a: and nobody is asked again."""
    assert asked.states == [ODD, b"First", b"Third", b"Second", b"First", ODD]
    assert asked.text.count("? write_file") == 2
    assert asked.code == 0


@pytest.mark.gemini_cli
def test_ctrl_c_at_a_question_stops_the_turn(asked):
    assert not (asked.work / "c.txt").exists()
    assert "Never said." not in asked.text
    assert asked.code == 0


@pytest.mark.gemini_cli
@pytest.mark.parametrize("via", ["acp", "cli"])
def test_a_no_and_what_to_do_instead(via, request):
    """The agent hears what to do instead: in the same turn, or as the next prompt."""
    talk = request.getfixturevalue("asked" if via == "acp" else "asked_by_cli")
    assert "use a file" in talk.told_instead
    assert talk.after_no == []
    assert talk.code == 0


@pytest.fixture
def asked_by_cli(fake_gemini, env, work) -> SimpleNamespace:
    fake_gemini.call("run_shell_command", command="echo hi > a.txt")
    fake_gemini.call("run_shell_command", command="echo ho > b.txt").say("Better.")
    with Terminal("chat", "--via", "cli", env=env, cwd=work) as chat:
        chat.wait_for("> ")
        chat.send("One\ry\r")
        chat.wait_for("? run_shell_command")
        chat.wait_for("$ echo hi > a.txt")
        chat.wait_for("what to do instead:")
        chat.send("n\r")
        chat.wait_for("$ echo ho > b.txt")
        chat.wait_for("what to do instead:")
        chat.send("use a file\r")
        chat.wait_for("Better.")
        chat.wait_for("✓ done")
        chat.send("/quit\r")
        code = chat.ends_with()
    told = str(fake_gemini.requests[-1].tool_results)
    return SimpleNamespace(told_instead=told, after_no=list(work.iterdir()), code=code)
