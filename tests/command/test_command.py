"""The command as a whole: help, version, completion, wrong usage, exit codes, odd terminals."""

import asyncio
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from command_home import A, SavedHome
from command_line import COMMAND, Terminal, environment
from command_line import geminorum_command as command
from geminorum import Options, errors
from geminorum.apps.command import main
from geminorum.apps.command.app import COMMANDS
from geminorum.apps.command.exits import Exit, exit_for
from geminorum.apps.command.failures import command_hint, run_guarded
from geminorum.apps.command.flags.declare import takes_options
from geminorum.apps.command.flags.options import _whole_id, options_from
from geminorum.apps.command.flags.quick_run import run_values
from geminorum.apps.command.flags.table import OPTIONS_FLAGS, RUN_FLAGS, Via
from geminorum.apps.command.render.help import _help
from geminorum.hints import advice


def test_help_lists_every_command_and_loads_none():
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert f"  {name}" in done.stdout
    code = (
        "import sys; from geminorum.apps.command import main; main(['--help'])\n"
        "print(*[name for name in sys.modules if 'apps.command' in name], file=sys.stderr)\n"
        "print(*{'rich', 'asyncio', 'msgspec', 'pydantic'} & set(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    ).stderr.split()
    assert not {f"geminorum.apps.command.{row.module}" for row in COMMANDS.values()} & set(loaded)
    assert not {"rich", "asyncio", "msgspec", "pydantic"} & set(loaded)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", ["80", "40"])
def test_every_command_has_a_page_that_fits(name, columns):
    done = command(name, "--help", env={"COLUMNS": columns})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage  geminorum {name}")
    # A name that is wider than the page stands alone on its line, and is never cut off.
    wide = [line for line in done.stdout.split("\n") if len(line) > int(columns)]
    assert all(" " not in line.strip().replace(" / ", "").replace(", ", "")[20:] for line in wide)
    assert "…" not in done.stdout.replace("[OPTIONS]", "")


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["sessions", "delete"], "geminorum sessions delete [OPTIONS] SESSION..."),
        (["skills", "validate"], "geminorum skills validate [OPTIONS] PATH..."),
        (["run"], "geminorum run [OPTIONS] [PROMPT]"),
    ],
)
def test_a_usage_line_has_no_braces(words, usage, capsys, own_handlers):
    assert main([*words, "--help"]) == Exit.OK
    assert capsys.readouterr().out.splitlines()[0] == f"Usage  {usage}"


def test_a_default_ends_with_one_full_stop():
    assert _help("Says. [default: An answer.]") == "Says. Default: An answer."
    assert _help("Says. [default: flash]") == "Says. Default: flash."


def test_chat_explains_the_transports_in_the_order_of_the_choice(monkeypatch, capsys, own_handlers):
    monkeypatch.setenv("COLUMNS", "96")
    assert main(["chat", "--help"]) == Exit.OK
    page = capsys.readouterr().out
    assert "<cli|acp|api>" in page
    assert "One CLI process per turn, a warm CLI, or the API" in " ".join(page.split())


def test_no_arguments_show_the_help():
    done = command()
    assert done.returncode == Exit.USAGE
    assert "geminorum COMMAND" in done.stdout


def test_the_version_names_the_cli(real_transport):
    done = command("--version", env={"GEMINI_CLI_PATH": str(real_transport.executable)})
    assert done.returncode == 0
    first, second, third = done.stdout.splitlines()
    assert first.startswith("geminorum ")
    assert second.startswith("Gemini CLI 0.")
    assert third.startswith("Python 3.")


def test_the_version_says_when_there_is_no_cli(tmp_path):
    done = command("--version", env={"GEMINI_CLI_PATH": str(tmp_path / "nothing")})
    assert done.returncode == 0
    assert "Gemini CLI not found" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], ["no command 'rnu'", "geminorum run", "geminorum --help"]),
        (["xyzzy"], ["no command 'xyzzy'", "geminorum --help"]),
        (["run", "--modle", "x", "hi"], ["--modle", "--model", "geminorum run --help"]),
        (["--vresion"], ["--vresion", "--version"]),
        (["run", "hi", "--approval", "sometimes"], ["--approval", "auto_edit"]),
        (["run", "hi", "--timeout", "soon"], ["--timeout"]),
        (["run", "hi", "--timeout", "-1"], ["timeout", "greater than 0"]),
        (["run", "hi", "--json", "--quiet"], ["--json --quiet", "leave one"]),
        (["run", "hi", "--env", "NAME"], ["--env", "NAME=VALUE"]),
        (["run", "hi", "--policy", "file_write=often"], ["file_write", "allow"]),
        (["run", "--file", "."], ["--file", "is a folder"]),
        (["run", "--file", "nothing.md"], ["no file nothing.md"]),
        (["run", "hi", "--file", "a.md"], ["--file", "leave one of them out"]),
        (["run", ""], ["error  the prompt is empty", "geminorum run"]),
        (["run", "hi", "--yolo", "--approval", "plan"], ["exclude each other"]),
        (
            ["run", "hi", "--model", ""],
            ["model is empty", "→ leave it out for what"],
        ),
        (["run", "hi", "--session-id", "123"], ["session_id='123'", "geminorum run --help"]),
        (["run", "hi", "--cwd", "no/such"], ["is not a folder", "mkdir -p"]),
    ],
)
def test_wrong_usage_is_a_message_and_code_2(arguments, words, real_transport):
    done = command(*arguments, env={"GEMINI_CLI_PATH": str(real_transport.executable)})
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert done.stderr.startswith("error  ")
    assert "Traceback" not in done.stderr
    assert "\n  → " in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_warning_is_one_plain_line(stand_in):
    init = {"type": "init", "session_id": "s1", "model": "m"}
    cli = stand_in(init, {"type": "result", "status": "success"}).executable
    done = command("run", "-q", "hi", "--deny-tool", "wirte_file", "--cli", cli)
    assert done.returncode == 0
    assert done.stderr == (
        "warning  the CLI has no tool 'wirte_file' of its own; did you mean 'write_file'?\n"
    )


def test_a_prompt_file_that_is_not_text(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    done = command("run", "--file", tmp_path / "a.bin")
    assert done.returncode == Exit.USAGE
    assert "cannot read" in done.stderr


def test_without_a_cli_it_says_what_to_install(tmp_path):
    done = command("run", "hi", env={"GEMINI_CLI_PATH": str(tmp_path / "nothing")})
    assert (done.returncode, done.stdout) == (Exit.SETUP, "")
    assert "→ " in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_a_code_page_without_our_letters(encoding):
    """A Windows code page lacks arrows and quotes: they are replaced, and nothing breaks."""
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    assert command("--help", env=env).returncode == 0
    done = command("run", "--file", ".", env=env)
    assert done.returncode == Exit.USAGE
    assert "  -> geminorum run --help" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]])
def test_a_reader_that_goes_away_is_no_error(arguments):
    """`geminorum --help | head -1` with the pipe closed before the first write."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (Exit.CLOSED_PIPE, b"")


@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        ("--help >/dev/full", Exit.UNWRITABLE, "error  the output cannot be written"),
        (">/dev/full", Exit.UNWRITABLE, "error  the output cannot be written"),
        ("run -q --offline --via api Hi >/dev/full", Exit.UNWRITABLE, "error  the output"),
        ("run -q --offline --via api Hi <&- >&-", Exit.OK, ""),
        ("rnu 2>&- >&-", Exit.USAGE, ""),
    ],
)
def test_an_output_that_cannot_be_written(redirected, code, told, tmp_path):
    """A full disk is told in one line; a stream that was closed on purpose is not missed."""
    line = f'"{sys.executable}" -m geminorum {redirected}'
    done = subprocess.run(
        ["bash", "-c", line], env=environment(), cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.decode().startswith(told)
    assert done.stderr.count(b"\n") == (2 if told else 0)


def test_a_folder_that_is_gone(tmp_path):
    line = f'mkdir x; cd x; rmdir ../x; "{sys.executable}" -m geminorum sessions list'
    done = subprocess.run(
        ["bash", "-c", line], env=environment(), cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == Exit.UNWRITABLE
    assert done.stderr.decode().startswith("error  the current folder no longer exists\n  → cd ")


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_only_where_it_is_wanted(env, coloured):
    with Terminal("--help", env=env) as terminal:
        assert terminal.ends_with() == 0
    assert ("\x1b[" in terminal.raw) is coloured
    with Terminal("rnu", env=env) as terminal:
        assert terminal.ends_with() == Exit.USAGE
    assert ("\x1b[" in terminal.raw) is coloured


def test_completion_in_the_shell():
    shown = command(
        "--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    )
    assert shown.returncode == 0, shown.stderr
    assert "_GEMINORUM_COMPLETE=complete_bash" in shown.stdout
    asked = {
        "_GEMINORUM_COMPLETE": "complete_bash",
        "COMP_WORDS": "geminorum se",
        "COMP_CWORD": "1",
    }
    assert command(env=asked).stdout.split() == ["sessions", "setup"]
    flags = {**asked, "COMP_WORDS": "geminorum run --max", "COMP_CWORD": "2"}
    assert command(env=flags).stdout.split() == ["--max-turns", "--max-budget-usd"]


def test_ctrl_c_while_everything_ends_is_no_mistake(capsys):
    def pressed_again():
        raise asyncio.CancelledError

    assert run_guarded(pressed_again) == Exit.CANCELLED
    assert capsys.readouterr().err == "error  stopped\n"


def test_a_mistake_of_ours_is_told_as_one():
    code = (
        "from geminorum.apps.command import failures\n"
        "import sys\n"
        "def broken(): raise RuntimeError('boom')\n"
        "sys.exit(failures.run_guarded(broken))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == Exit.BUG
    assert "boom" in done.stderr
    assert "GEMINORUM_DEBUG=1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (errors.RunFailed("x"), 1),
        (errors.ApiError("x"), 1),
        (errors.InvalidOptions("x"), 2),
        (errors.InvalidPrompt("x"), 2),
        (errors.Unsupported("x"), 2),
        (errors.CliNotFound("x"), 3),
        (errors.AuthError("x"), 3),
        (errors.ConfigError("x"), 3),
        (errors.TurnLimit("x"), 4),
        (errors.BudgetExceeded("x"), 4),
        (errors.RunTimeout("x"), 4),
        (errors.Stalled("x"), 5),
        (errors.MissingResult("x"), 5),
        (errors.ProtocolError("x"), 5),
        (errors.SessionLost("x"), 6),
        (errors.SessionUnreadable("x"), 6),
        (errors.QuotaError("x"), 75),
        (errors.NetworkError("x"), 75),
        (errors.SessionBusy("x"), 75),
        (errors.Interrupted("x"), 130),
    ],
)
def test_exit_codes_are_stable(error, code):
    assert exit_for(error) == code


def test_the_page_on_the_command_has_the_table_of_exit_codes():
    page = (Path(__file__).parents[2] / "docs" / "command.md").read_text()
    for code in Exit:
        assert f"| {code.value} |" in page


def test_every_option_has_a_flag():
    """The command can say what `Options` can."""
    assert set(OPTIONS_FLAGS) == set(Options.__struct_fields__)


def test_flags_mean_what_options_mean(tmp_path):
    policy, schema = tmp_path / "p.toml", tmp_path / "s.json"
    policy.write_text('file_write = "allow"\n[[rules]]\ntool = "read_file"\ndecision = "deny"\n')
    schema.write_text('{"type": "object"}')
    nothing = dict.fromkeys(Options.__struct_fields__)
    assert options_from(nothing) == Options()
    given = {
        **nothing,
        "policy": str(policy),
        "env": ["A=1=2"],
        "output_schema": schema,
        "allowed_tools": ["read_file"],
        "literal": False,
        "max_turns": 3,
    }
    options = options_from(given)
    assert (options.policy.file_write, options.policy.rules[0].tool) == ("allow", "read_file")
    assert (options.env, options.output_schema) == ({"A": "1=2"}, {"type": "object"})
    assert (options.allowed_tools, options.literal, options.max_turns) == (("read_file",), False, 3)


@pytest.fixture
def resumed(tmp_path):
    """What `--resume` means to a command, in a home with sessions in it."""
    saved = SavedHome(tmp_path / "home", tmp_path / "work")
    for id in (A, f"abc{A[3:]}", NUMBER):
        saved.save(id, "Hi", "Hello.")

    @takes_options
    def asked(via: Via = Via.CLI, *, options: Options) -> str | None:
        return options.resume

    app = typer.Typer()
    app.command()(asked)

    def resume(name: str, *more: str) -> str | None:
        words = ["--resume", name, "--home", str(saved.home), *more]
        return typer.main.get_command(app).main(words, standalone_mode=False)

    return resume


NUMBER = "12345678-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("typed", "meant"),
    # The short id of the last but one is a number, which `Options` would refuse.
    [("latest", "latest"), (A, A), (A[:8], A), (NUMBER[:8], NUMBER), ("nobody", "nobody")],
)
def test_the_beginning_of_an_id_is_enough_to_resume(typed, meant, resumed):
    assert resumed(typed) == meant


def test_a_beginning_that_several_ids_have_is_not_resumed(resumed):
    with pytest.raises(errors.InvalidOptions, match=f"may be any of {A}, abc"):
        resumed("a")


def test_the_api_is_left_to_refuse_a_session_itself(resumed):
    assert resumed("a", "--via", "api") == "a"


def test_a_home_of_the_agents_own_is_looked_through_too(tmp_path, resumed):
    fields = dict.fromkeys(Options.__struct_fields__)
    env = [f"GEMINI_CLI_HOME={tmp_path / 'home'}"]
    assert _whole_id({**fields, "env": env, "resume": "aaaa"}) == A


ERRORS = [kind for kind in vars(errors).values() if getattr(kind, "default_hint", None)]


@pytest.mark.parametrize("kind", ERRORS)
def test_hints_speak_the_language_of_the_command(kind):
    """A person can type each of them: no Python, and no flag that is not there."""
    hint = command_hint(kind.default_hint)
    assert hint is not None, kind.default_hint
    for flag in re.findall(r"--[a-z-]+", hint or ""):
        assert f"{flag} " in _page_of_run()


@cache
def _page_of_run() -> str:
    return command("run", "--help", env={"COLUMNS": "120"}).stdout


def test_a_hint_that_only_python_can_follow_is_replaced():
    assert command_hint(advice("pass {Api.history=…}")) is None
    elsewhere = advice("resume it there, with {Options.cwd=folder}", folder="/a b")
    assert elsewhere == "resume it there, with Options(cwd='/a b')"
    assert command_hint(elsewhere) == "resume it there, with --cwd '/a b'"
    done = command("run", "Hi", "--via", "api", "--resume", "abc")
    assert "has no resume" in done.stderr
    assert "another transport may: --via cli" in done.stderr


def run_parameters(words: list[str]) -> dict[str, Any]:
    """As Typer reads them."""
    from geminorum.apps.command.run.command import app

    return dict(typer.main.get_command(app).make_context("run", [*words]).params)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Hi",
        "-",
        "Hi -m flash -q",
        "--quiet Hi --model=flash --cwd /tmp -a auto_edit",
        "--json --via acp Hi --effort high --timeout 5 --max-turns 3 --max-budget-usd 0.5",
        "Hi --env A=1 --env=B=2=3 --allow-tool read_file --deny-tool a --deny-tool b",
        "Hi --no-literal --trust-workspace --yolo --replace-system-prompt",
        "Hi --literal --no-trust-workspace --include-directory a --include-directory=b",
        "-f a.txt --options o.toml --cli /bin/gemini --start-timeout 1 --stall-timeout 2.5",
        "Hi -r latest --session-id x --home h --policy file_write=allow --output-schema s.json",
        "Hi --offline --system-prompt Be_brief --network-timeout .5 -C . --approval plan",
    ],
)
def test_a_plain_line_is_read_as_typer_reads_it(line: str) -> None:
    words = line.split()
    read = run_values(words)
    assert read is not None
    assert normal(read) == normal(run_parameters(words))


def normal(values: dict[str, Any]) -> dict[str, Any]:
    """Without the difference between a flag that is missing and one that is given no times."""
    return {name: None if value in ([], ()) else value for name, value in values.items()}


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "Hi -h",
        "Hi there",
        "-- Hi",
        "Hi -mflash",
        "Hi -m=flash",
        "-qf a.txt",
        "Hi --model",
        "Hi --model=",
        "Hi --model -q",
        "Hi --modell flash",
        "Hi --quiet=yes",
        "Hi --quiet --quiet",
        "Hi -m flash --model pro",
        "Hi --literal --no-literal",
        "Hi --via telnet",
        "Hi --effort HIGH",
        "Hi --max-turns many",
        "Hi --max-turns 1_000",
        "Hi --timeout inf",
        "Hi --timeout 1e3",
        "Hi --timeout ٣",
        "Hi --timeout .",
    ],
)
def test_what_has_rules_of_its_own_is_left_to_typer(line: str) -> None:
    assert run_values(line.split()) is None


def test_completion_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GEMINORUM_COMPLETE", "complete_bash")
    assert run_values(["Hi"]) is None


def test_every_flag_of_run_can_be_read_without_typer() -> None:
    untyped = run_values([])
    assert untyped is not None
    for name, flag in {**RUN_FLAGS, **OPTIONS_FLAGS}.items():
        spelling = flag.names[0].partition("/")[0]
        lines = [[spelling], *([spelling, text] for text in ("5", "acp", "low", "plan"))]
        assert any((run_values(line) or untyped)[name] != untyped[name] for line in lines), name


def test_a_run_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    """Typer, rich and pydantic take longer to load than all else that precedes the agent."""
    code = (
        "import sys; from geminorum.apps.command import main\n"
        f"code = main(['run', 'Hi', '--cli', {str(tmp_path / 'missing')!r}])\n"
        "print(code, *{'typer', 'rich', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.split() == [str(Exit.SETUP.value)]


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "profiled"])
def test_what_is_to_run_at_the_end_of_the_process_runs(watched: bool) -> None:
    """Only the memory is left as it is; and who profiles the command gets to the end of it."""
    code = (
        "import atexit, sys, threading; from geminorum.apps.command import main\n"
        "atexit.register(print, 'registered')\n"
        "end = threading.main_thread().join\n"
        "threading.Thread(target=lambda: end() or print('thread')).start()\n"
        f"sys.setprofile((lambda *_: None) if {watched} else None)\n"
        "sys.argv = ['geminorum', 'config', 'nothing']\n"
        "code = main()\n"
        "sys.setprofile(None)\n"
        "print('returned')\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == Exit.USAGE
    returned = ["returned"] if watched else []
    assert done.stdout.split() == [*returned, "thread", "registered"]
