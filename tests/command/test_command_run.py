"""`geminorum run`: the real command, the real CLI, a simulated model."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import COMMAND, Terminal, environment, shared_environment
from command_line import geminorum_command as command
from geminorum import Done, Init, Text, ToolResult, ToolUse, events
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.run.offline import _answer
from geminorum.testing import FakeGemini, Request, Tokens, prose
from recorded import recording

API = ("--via", "api")
"""Where the transport does not matter: this one needs no other program to start."""
INIT = {"type": "init", "session_id": "s1", "model": "m", "timestamp": "2026-01-01T00:00:00Z"}


def said(text: str) -> dict[str, object]:
    """What the stand-in says of an answer."""
    return {"type": "message", "role": "assistant", "content": text, "delta": True}


@pytest.fixture
def work(tmp_path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def cli(real_transport) -> dict[str, str]:
    """The environment in which the command finds the real CLI."""
    return {"GEMINI_CLI_PATH": str(real_transport.executable)}


@pytest.fixture
def env(fake_gemini, cli) -> dict[str, str]:
    """… and talks to FakeGemini."""
    return {**cli, **fake_gemini.env}


@pytest.fixture(scope="module")
def two_runs(real_transport, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A run in a pipe, which may not write, its calls judged once more by `policy test`; and
    another run in JSON that goes on with its session and may write."""
    work = tmp_path_factory.mktemp("work")
    with FakeGemini() as fake:
        fake.call("list_directory", dir_path=".").call("write_file", file_path="b.txt", content="b")
        fake.say("**Four** ", "files.\n")
        fake.call("write_file", file_path="a.txt", content="hi").say("Dóne ✓")
        env = {"GEMINI_CLI_PATH": str(real_transport.executable), **fake.env}
        env |= shared_environment(work)
        first = command("run", "How many?", env=env, cwd=work)
        session = first.stderr.split("session ")[1].strip()
        judged = command("policy", "test", "latest", env=env, cwd=work)
        more = ("--json", "Write", "--approval", "auto_edit", "--resume", session)
        second = command("run", *more, env=env, cwd=work)
        found = {"first": first, "judged": judged, "second": second}
        yield SimpleNamespace(**found, requests=fake.requests, work=work)


@pytest.mark.gemini_cli
def test_in_a_pipe_the_text_is_all_that_stdout_has(two_runs):
    done = two_runs.first
    assert (done.returncode, done.stdout) == (0, "**Four** files.\n")
    assert "[list_directory .] success" in done.stderr
    assert "session " in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert two_runs.requests[0].prompt == "How many?"


@pytest.mark.gemini_cli
def test_json_lines_are_our_events(two_runs):
    """What a program reads with `geminorum.events.decode`, and nothing between the lines."""
    done = two_runs.second
    assert (done.returncode, done.stderr) == (0, "")
    told = [events.decode(line) for line in done.stdout.splitlines()]
    kinds = [type(event) for event in told]
    assert kinds[0] is Init
    assert kinds[-1] is Done
    assert {ToolUse, ToolResult, Text} <= set(kinds)
    assert [event.text for event in told if isinstance(event, Text)] == ["Dóne ✓"]
    assert (two_runs.work / "a.txt").read_text() == "hi"


@pytest.mark.gemini_cli
def test_a_session_goes_on(two_runs):
    assert [request.prompt for request in two_runs.requests][3] == "Write"
    assert "How many?" in str(two_runs.requests[3].contents)
    assert "**Four** files." in str(two_runs.requests[3].contents)


@pytest.mark.gemini_cli
def test_policy_test_says_of_a_call_that_run_denied_that_it_was(two_runs):
    """Of a warm CLI, too: `test_quiet_is_the_text_only_on_the_warm_transport_too`."""
    assert "[write_file b.txt] denied" in two_runs.first.stderr
    assert not (two_runs.work / "b.txt").exists()
    _, allowed, denied, end = two_runs.judged.stdout.splitlines()
    assert allowed.split()[:3] == ["allowed", "success", "list_directory"]
    assert denied.split()[:3] == ["denied", "denied", "write_file"]
    assert "nobody to ask" in denied
    assert end == "1 allowed, 1 denied; `chat`, or `decide` in Python, would ask about 1 of them"


@pytest.mark.gemini_cli
def test_quiet_is_the_text_only_on_the_warm_transport_too(fake_gemini, env, work):
    """… also of a run whose call was denied, which `policy test` finds in its session."""
    fake_gemini.calls(("list_directory", {"dir_path": "."}), thoughts=["I look."])
    fake_gemini.call("write_file", file_path="a.txt", content="a").say("Four", " files.")
    done = command("run", "--via", "acp", "--quiet", "How many?", env=env, cwd=work)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Four files.\n", "")
    assert list(work.iterdir()) == []
    judged = command("policy", "test", "latest", env=env, cwd=work).stdout
    assert judged.splitlines()[-1].startswith("1 allowed, 1 denied; ")
    assert re.search(r"^denied +denied +write_file", judged, re.M)


def test_a_run_on_the_api_prints_no_session_id(fake_gemini, env, work):
    """There is no session that could be resumed by it."""
    for _ in range(2):
        fake_gemini.say("Four.")
    done = command("run", "--via", "api", "How many?", env=env, cwd=work)
    assert (done.stdout, "success · " in done.stderr) == ("Four.\n", True)
    assert "session" not in done.stderr
    with Terminal("run", "Go", "--via", "api", env=env, cwd=work) as terminal:
        assert terminal.ends_with() == 0
    assert "done" in terminal.text
    assert "session" not in terminal.text


def test_a_program_that_is_no_gemini_says_its_error_once(work):
    env = {"GEMINI_API_KEY": "k" * 20}
    done = command("run", "Hi", "--cli", "/bin/ls", env=env, cwd=work)
    assert done.returncode == Exit.CUT_SHORT
    assert done.stderr.count("without a result") == 1
    assert "check that --cli PATH is the Gemini CLI" in done.stderr
    with Terminal("run", "Hi", "--cli", "/bin/ls", env=env, cwd=work) as terminal:
        assert terminal.ends_with() == Exit.CUT_SHORT
    assert terminal.text.count("without a result") == 1


@pytest.mark.parametrize("verb", ["run", "chat"])
def test_a_home_that_is_not_there_is_refused_and_not_made(verb, fake_gemini, env, work):
    done = command(verb, *["Hi"] * (verb == "run"), "--home", "hoem", env=env, cwd=work)
    assert done.returncode == Exit.USAGE
    assert "there is no folder hoem" in done.stderr
    assert "mkdir hoem" in done.stderr
    assert (list(work.iterdir()), fake_gemini.requests) == ([], [])
    assert "there is no folder" in command("run", "Hi", "--home", __file__, cwd=work).stderr


def test_a_run_takes_its_options_from_a_file_and_flags_go_before_it(fake_gemini, env, work):
    fake_gemini.say("a").say("b")
    file = work / "options.toml"
    file.write_text('model = "pro"\nsystemPrompt = "Be brief."\n[env]\nA = "1"\n')
    assert command("config", "validate", file).returncode == 0
    run = ["run", "Hi", "-q", "--via", "api", "--options", file]
    assert command(*run, env=env, cwd=work).stdout == "a\n"
    assert command(*run, "--model", "gemini-2.5-flash", env=env, cwd=work).stdout == "b\n"
    first, second = fake_gemini.requests
    assert (first.model, first.system) == ("gemini-3.1-pro-preview", "Be brief.")
    assert (second.model, second.system) == ("gemini-2.5-flash", "Be brief.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"modle": "pro"}', "did you mean 'model'"),
        ('{"max_turns": 0}', "greater than 0"),
        ('{"allowedTools": ["Read"]}', "write 'read_file' instead"),
        ('["pro"]', "write an object"),
        ("{", "Expecting"),
        ('{"home": "hoem"}', "there is no folder hoem"),
    ],
)
def test_a_file_of_options_that_is_wrong_starts_nothing(fake_gemini, env, work, text, problem):
    file = work / "options.json"
    file.write_text(text)
    done = command("run", "Hi", "--via", "api", "--options", file, env=env, cwd=work)
    assert (done.returncode, fake_gemini.requests) == (Exit.USAGE, [])
    assert problem in done.stderr
    assert list(work.iterdir()) == [file]


@pytest.mark.parametrize("how", ["stdin", "dash", "file"])
def test_where_a_prompt_may_come_from(how, fake_gemini, env, work):
    fake_gemini.say("Yes.")
    prompt = "Is it so?\nReally: “so”?"
    (work / "task.md").write_text(prompt, encoding="utf-8")
    arguments = {"stdin": (), "dash": ("-",), "file": ("--file", "task.md")}[how]
    stdin = "" if how == "file" else prompt
    assert command("run", *API, *arguments, "-q", stdin=stdin, env=env, cwd=work).stdout == "Yes.\n"
    assert fake_gemini.requests[0].prompt == prompt


RESULT = {"type": "result", "status": "success"}


def test_json_is_utf8_on_any_code_page(stand_in, work):
    cli = stand_in(INIT, said("Grüße ✓"), RESULT).executable
    wide = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = command("run", "--cli", cli, "--json", "Hi", env=wide, cwd=work)
    assert any(
        isinstance(event, Text) and event.text == "Grüße ✓"
        for event in map(events.decode, done.stdout.splitlines())
    )


def test_plain_text_survives_a_narrow_code_page(stand_in, work):
    cli = stand_in(INIT, said("Grüße ✓"), RESULT).executable
    narrow = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = command("run", "--cli", cli, "Hi", env=narrow, cwd=work)
    assert (done.returncode, done.stdout) == (0, "Gr??e ?\n")


# A chat begins a prompt with what was undone; the simulated model must not do that again.
POEM = "(I have undone your last changes to: q.txt)\n\nWrite a poem to poem.txt"


@pytest.mark.gemini_cli
def test_offline_needs_nothing_says_so_and_can_write_when_it_may(cli, work):
    """`geminorum run --offline --json "…" | python -c "…decode with geminorum.events…"`."""
    reader = (
        "import sys; from geminorum import events\n"
        "for line in sys.stdin.buffer: assert events.encode(events.decode(line)) == line.rstrip()\n"
        "print('read')"
    )
    pipe = (
        f'"{sys.executable}" -m geminorum run --offline --json "$POEM" --approval auto_edit'
        f' | "{sys.executable}" -c "$R"'
    )
    done = subprocess.run(
        ["bash", "-c", pipe],
        env=environment({**cli, "R": reader, "POEM": POEM}),
        cwd=work,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "read\n"
    assert done.stderr == "offline: a simulated model answers; nothing is sent, nothing is billed\n"
    assert "A pipe holds so much" in (work / "poem.txt").read_text()


def test_offline_works_without_the_cli_on_the_api_transport(work, tmp_path):
    env = {"GEMINI_CLI_PATH": str(tmp_path / "nothing")}
    done = command("run", "--offline", "--via", "api", "Hello", env=env, cwd=work)
    assert done.returncode == 0, done.stderr
    assert "You said: *Hello*" in done.stdout


@pytest.mark.parametrize(
    ("tools", "told", "untold"),
    [
        ([], ["leave `--via api` out"], ["auto_edit"]),
        (["list_directory", "write_file"], ["list the files", "auto_edit"], ["--via api"]),
        # The CLI does not declare write_file while it may not be used.
        (["list_directory"], ["list the files", "auto_edit"], ["--via api"]),
        (["read_file"], ["allow the first"], ["auto_edit", "list the files", "--via api"]),
    ],
)
def test_offline_suggests_only_what_can_work(tools, told, untold):
    declared = [{"functionDeclarations": [{"name": name} for name in tools]}] if tools else []
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], "tools": declared}
    answer = "".join(_answer(Request("flash", "streamGenerateContent", "", {}, body, 0.0)).chunks)
    assert all(words in answer for words in told), answer
    assert not any(words in answer for words in untold), answer


@pytest.mark.gemini_cli
def test_offline_shows_that_a_write_is_refused_unless_it_is_allowed(cli, work):
    done = command("run", "--offline", POEM, env=cli, cwd=work)
    assert "[write_file poem.txt] denied" in done.stderr
    assert "wrote" not in done.stderr
    assert "`write_file` was refused" in done.stdout
    assert "--approval auto_edit" in done.stdout
    assert list(work.iterdir()) == []


def test_the_api_transport(fake_gemini, env, work):
    fake_gemini.say("Straight ", "from the API.")
    done = command(
        "run", "--via", "api", "-q", "Hi", "--model", "gemini-2.5-pro", env=env, cwd=work
    )
    assert (done.returncode, done.stdout) == (0, "Straight from the API.\n")
    assert fake_gemini.requests[0].model == "gemini-2.5-pro"


@pytest.mark.parametrize(
    ("failure", "hint"),
    [("400 INVALID_ARGUMENT", "→ the message is the API's own"), ("404 NOT_FOUND", "--model")],
)
def test_a_failed_run_prints_what_it_has_and_why(failure, hint, stand_in, work):
    """As the CLI told of these: of a model that is not there with its flag."""
    told = recording("0.61.0", f"err{failure[:3]}")
    *begin, end = told["stdout"].splitlines()
    first = said("First I look.")
    cli = stand_in(*begin, first, end, exit=told["exit"], stderr=told["stderr"]).executable
    done = command("run", "Hi", "--model", "gemini-2.5-flash", "--cli", cli, cwd=work)
    assert done.returncode == Exit.FAILED, done.stderr
    assert done.stdout == "First I look.\n"
    assert f"fake {failure}" in done.stderr
    assert hint in done.stderr


def test_a_limit_has_its_own_code(fake_gemini, env, work):
    fake_gemini.hang()
    done = command("run", *API, "Hi", "--timeout", "3", env=env, cwd=work)
    assert done.returncode == Exit.LIMIT
    assert "timed out" in done.stderr
    assert "raise --timeout" in done.stderr


def test_a_quota_says_try_later(fake_gemini, env, work):
    """A minute's quota; what the API asks to wait is more than the command would."""
    fake_gemini.fail(429, retry_delay=90).always()
    done = command("run", "Hi", "--via", "api", env=env, cwd=work)
    assert done.returncode == Exit.TRY_LATER, done.stderr


def test_what_a_transport_cannot_do_is_wrong_usage(env, work):
    done = command("run", "Hi", "--via", "api", "--resume", "abc", env=env, cwd=work)
    assert done.returncode == Exit.USAGE
    assert "has no resume" in done.stderr
    assert "another transport may: --via cli or --via acp\n" in done.stderr


def test_a_session_that_is_not_there(stand_in, work):
    reason = 'Error resuming session: Invalid session identifier "abc".'
    lost = str(stand_in(exit=42, stderr=reason).executable)
    done = command("run", "Hi", "--cli", lost, "--resume", "abc", env={}, cwd=work)
    assert done.returncode == Exit.NOT_FOUND
    assert "--resume" in done.stderr


def test_a_reader_that_leaves_early_ends_the_run(stand_in, work):
    """`geminorum run --json … | head -3`: quietly, and the agent ends too."""
    cli = stand_in(INIT, *[said(f"Line {n}.\n") for n in range(3000)], hang=True).executable
    pipe = (
        f'"{sys.executable}" -m geminorum run --json Hi --cli "{cli}" | head -3; '
        "echo ${PIPESTATUS[0]}"
    )
    done = subprocess.run(
        ["bash", "-c", pipe],
        env=environment({}),
        cwd=work,
        capture_output=True,
        text=True,
        check=True,
    )
    first, _, _, code = done.stdout.splitlines()
    assert isinstance(events.decode(first), Init)
    assert (int(code), done.stderr) == (Exit.CLOSED_PIPE, "")


def test_ctrl_c_stops_the_agent_and_prints_what_there_is(stand_in, work):
    """test_examples.py presses it while the real CLI works, test_command_batch.py sends SIGTERM."""
    cli = stand_in(INIT, said("Half of "), hang=True, grandchildren=("tool",)).executable
    child = subprocess.Popen(
        [*COMMAND, "run", "Hi", "--cli", str(cli)],
        env=environment({}),
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.read(8) == b"Half of "
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (Exit.CANCELLED, b"\n")
    assert b"interrupted" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_agent_too(number, code, stand_in, work):
    """Nothing is left running: the fixture that watches every test would find it."""
    transport = stand_in(INIT, said("Half of "), hang=True, grandchildren=("tool",))
    child = subprocess.Popen(
        [*COMMAND, "run", "Hi", "--cli", str(transport.executable)],
        env=environment({}),
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.read(8) == b"Half of "
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == code
    assert b"Traceback" not in err


@pytest.mark.parametrize("presses", [1, 2])
def test_a_second_ctrl_c_does_not_wait(presses, stand_in, work):
    """A CLI that ignores the request to end has its grace, and is told of; or is killed at once."""
    transport = stand_in(INIT, hang=True, ignore_term=True)
    child = subprocess.Popen(
        [*COMMAND, "run", "Hi", "--json", "--cli", str(transport.executable)],
        env=environment(),
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert b"init" in child.stdout.readline()
    for _ in range(presses):
        child.send_signal(signal.SIGINT)
        time.sleep(0.5)
    out, err = child.communicate(timeout=60)
    assert child.returncode == Exit.CANCELLED
    assert (b'"type":"done"' in out) is (presses == 1)
    assert b"Traceback" not in err


def test_a_terminal_shows_markdown_tools_diffs_and_the_cost(fake_gemini, env, work):
    (work / "a.txt").write_text("one\ntwo\n")
    fake_gemini.calls(
        ("write_file", {"file_path": "a.txt", "content": "one\nthree\n"}), thoughts=["I plan."]
    )
    fake_gemini.say("# Done\n\nIt is **bold**.", tokens=Tokens(prompt=1000, output=10))
    arguments = ("run", "Go", "--approval", "auto_edit", "--model", "gemini-2.5-flash")
    with Terminal(*arguments, env=env, cwd=work) as terminal:
        assert terminal.ends_with() == 0
    text = terminal.text
    # The diff is against the file as it was, not against nothing.
    assert "✓ write_file a.txt\n  @@ -1,2 +1,2 @@\n   one\n  -two\n  +three\n" in text
    assert "It is bold." in text
    assert "I plan." in text
    assert "✓ done · gemini-2.5-flash · " in text
    assert " out · $0.00" in text
    assert "  wrote a.txt\n" in text
    assert "Ctrl-C stops" in text


def test_a_narrow_terminal_is_never_overrun(fake_gemini, env, work):
    fake_gemini.say(prose(300))
    with Terminal("run", "Go", *API, env=env, cwd=work, columns=40) as terminal:
        assert terminal.ends_with() == 0
    # A carriage return or an erased line begins anew; what stands on each is what counts.
    drawn = re.split(r"[\r\n]+|\x1b\[2K", terminal.raw)
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in drawn]
    assert "\n".join(lines).count("\n") > 8
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("extra", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_terminals_without_colour(extra, fake_gemini, env, work):
    fake_gemini.say("**Plain** words.")
    with Terminal("run", "Go", *API, env={**env, **extra}, cwd=work) as terminal:
        assert terminal.ends_with() == 0
    assert "words." in terminal.text
    assert not re.search(r"\x1b\[[0-9;]*[349][0-9][m;]", terminal.raw)


def test_an_agent_cannot_move_the_cursor(fake_gemini, env, work):
    fake_gemini.say("safe \x1b[2J\x1b]0;owned\x07 words")
    with Terminal("run", "Go", "--via", "api", env=env, cwd=work) as terminal:
        assert terminal.ends_with() == 0
    assert "\x1b[2J" not in terminal.raw
    assert "\x1b]0;owned" not in terminal.raw
    assert r"safe \u001b[2J\u001b]0;owned\u0007 words" in terminal.text


def test_ctrl_c_on_a_terminal(stand_in, work):
    cli = stand_in(INIT, said("Half of an answer"), hang=True).executable
    with Terminal("run", "Hi", "--cli", cli, cwd=work) as terminal:
        terminal.wait_for("Half of an answer")
        terminal.send("\x03")
        assert terminal.ends_with() == Exit.CANCELLED
    assert "■ stopped" in terminal.text
    assert terminal.text.rindex("Half of an answer") < terminal.text.rindex("■ stopped")
    assert "Traceback" not in terminal.text


def test_no_prompt_at_a_terminal_is_wrong_usage(env, work):
    with Terminal("run", env=env, cwd=work) as terminal:
        assert terminal.ends_with() == Exit.USAGE
    assert "there is no prompt" in terminal.text


def test_a_network_that_is_not_there_is_shown_while_it_is_tried(work):
    nobody = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": "http://no-such-host.invalid"}
    done = command("run", *API, "--network-timeout", "2", "Hi", env=nobody, cwd=work)
    assert done.returncode == Exit.TRY_LATER
    assert "! cannot reach http://no-such-host.invalid: " in done.stderr
    assert "trying again" in done.stderr
    with Terminal("run", *API, "Hi", env=nobody, cwd=work) as screen:
        screen.wait_for("cannot reach")
