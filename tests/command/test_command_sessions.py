"""`geminorum sessions`: what was saved, found, read, followed, exported, forked and deleted."""

import json
import subprocess

import pytest
from rich.cells import cell_len

from command_home import A, B, C, SavedHome
from command_line import COMMAND, Terminal, environment
from command_line import geminorum_command as command
from geminorum import Options, events, sessions, sync
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.sessions.views import snippets
from geminorum.events import UserMessage


@pytest.fixture
def saved(tmp_path) -> SavedHome:
    home = SavedHome(tmp_path / "home", tmp_path / "work")
    home.save(A, "Remember the number seven", "Noted: seven.", day=1)
    home.save(B, "What is a pipe?", "A pipe joins two programs.", day=2)
    home.save(C, "Elsewhere", "Yes.", day=3, cwd=tmp_path / "other")
    return home


def rows(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


# ---- list


def test_the_list_is_of_this_folder_the_newest_first(saved):
    done = command("sessions", "list", env=saved.env, cwd=saved.cwd)
    assert (done.returncode, rows(done.stdout)) == (0, [B, A])
    assert "What is a pipe?" in done.stdout


def test_a_session_in_which_nobody_spoke_is_not_listed(saved):
    saved.save("d" * 8, day=4)
    broken = saved.save("e" * 8, day=5)
    broken.write_text("no record")
    done = command("sessions", "list", env=saved.env, cwd=saved.cwd)
    assert sorted(rows(done.stdout)) == [str(broken), A, B], "what is broken is still told"
    # A screen names it without its folder, and so it can be typed.
    done = command("sessions", "delete", broken.name, "--yes", env=saved.env, cwd=saved.cwd)
    assert (done.returncode, broken.exists()) == (0, False), done.stderr


def test_the_list_of_all_folders_names_them(saved):
    done = command("sessions", "list", "--all", env=saved.env, cwd=saved.cwd)
    assert rows(done.stdout) == [C, B, A]
    assert str(saved.cwd.parent / "other") in done.stdout


def test_a_list_can_be_of_another_folder_since_a_day_and_short(saved):
    other = command("sessions", "list", "--cwd", saved.cwd.parent / "other", env=saved.env)
    assert rows(other.stdout) == [C]
    late = command("sessions", "list", "-a", "--since", "2026-01-02", env=saved.env)
    assert rows(late.stdout) == [C, B]
    short = command("sessions", "list", "-a", "-n", "1", env=saved.env)
    assert C in short.stdout
    assert "2 more; geminorum sessions list --all --limit 3" in short.stdout


def test_a_list_in_json_is_one_session_a_line(saved):
    done = command("sessions", "list", "--all", "--json", env=saved.env)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["id"] for one in told] == [C, B, A]
    assert told[2]["title"] == "Remember the number seven"


def test_no_sessions_are_no_error_and_say_what_to_type(tmp_path):
    done = command("sessions", "list", env={"GEMINI_CLI_HOME": str(tmp_path)}, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "--all" in done.stderr


@pytest.mark.parametrize("columns", [80, 40])
def test_a_listing_fits_the_terminal(saved, columns):
    saved.save("d" * 8, "A question that is much longer than any terminal " * 4, "Yes.", day=4)
    with Terminal("sessions", "list", "-a", env=saved.env, columns=columns) as screen:
        assert screen.ends_with() == 0
    lines = screen.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" in screen.text
    assert "dddddddd" in screen.text
    assert "\x1b[" in screen.raw


def test_colours_stay_away_where_nobody_wants_them(saved):
    with Terminal("sessions", "list", "-a", env={**saved.env, "NO_COLOR": "1"}) as screen:
        assert screen.ends_with() == 0
    assert "aaaaaaaa" in screen.text
    assert "\x1b[3" not in screen.raw
    with Terminal("sessions", "list", "-a", env={**saved.env, "TERM": "dumb"}) as screen:
        assert screen.ends_with() == 0
    assert "\x1b[" not in screen.raw


def test_a_title_cannot_take_over_the_terminal(saved):
    saved.save(C, "\x1b]0;stolen\x07\x1b[2J[red]ha", "\x1b[31mno", day=9)
    for arguments in (["list", "-a"], ["show", C], ["search", "-a", "ha"]):
        with Terminal("sessions", *arguments, env={**saved.env, "NO_COLOR": "1"}) as screen:
            assert screen.ends_with() == 0
        assert "\x1b]0" not in screen.raw
        assert "\x1b[2J" not in screen.raw
        assert "\x1b[31m" not in screen.raw
        assert "[red]ha" in screen.text


def test_a_reader_who_leaves_is_no_error(saved):
    for number in range(300):
        saved.save(f"{number:08}-0000-4000-8000-000000000000", "Hi " * 30, "Yes.")
    line = " ".join([*COMMAND, "sessions", "list", "-a", "-n", "999", "|", "head", "-1"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        env=environment(saved.env),
    )
    assert done.stdout.startswith("id")
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, Exit.CLOSED_PIPE)


def test_a_code_page_without_the_letters_is_no_error(saved):
    saved.save(C, "日本語 ✓", "はい", day=9)
    narrow = {**saved.env, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    for arguments in (["list", "-a"], ["show", C], ["search", "-a", "語"]):
        done = command("sessions", *arguments, env=narrow)
        assert (done.returncode, done.stderr) == (0, "")


# ---- show, search


def test_a_session_is_shown_as_markdown_in_a_pipe(saved):
    done = command("sessions", "show", "aaaa", env=saved.env)
    assert done.returncode == 0
    assert done.stdout == sessions.export(sessions.load("aaaa", home=saved.home), "markdown")


def test_a_session_in_json_is_its_events(saved):
    done = command("sessions", "show", A, "--json", env=saved.env)
    told = [events.decode(line) for line in done.stdout.splitlines()]
    assert told == list(sessions.load(A, home=saved.home).events())


def test_a_session_on_a_terminal_has_its_words_and_tools(saved):
    call = ("run_shell_command", {"command": "ls -la"})
    saved.save("looking", "Look around", "I **looked**.", calls=(call,))
    with Terminal("sessions", "show", "looking", env=saved.env, columns=60) as screen:
        assert screen.ends_with() == 0
    for words in ("> Look around", "I looked.", "run_shell_command ls -la", "tokens"):
        assert words in screen.text


def test_latest_is_the_newest_of_this_folder(saved):
    done = command("sessions", "show", "latest", env=saved.env, cwd=saved.cwd)
    assert "A pipe joins two programs." in done.stdout


def test_a_file_can_be_named_wherever_it_lies(saved, tmp_path):
    path = saved.save(A, "In a file", "Yes.")
    moved = path.rename(tmp_path / "mine.jsonl")
    assert "In a file" in command("sessions", "show", moved).stdout
    assert "In a file" in command("sessions", "show", "mine.jsonl", cwd=tmp_path).stdout
    moved.rename(tmp_path / "mine.txt")
    assert "In a file" in command("sessions", "show", "mine.txt", cwd=tmp_path).stdout


@pytest.mark.parametrize("verb", ["show", "tail", "export", "fork"])
def test_a_session_that_is_not_there_says_what_to_type(saved, verb):
    done = command("sessions", verb, "zzz", env=saved.env)
    assert done.returncode == Exit.NOT_FOUND
    assert "no session 'zzz'" in done.stderr
    assert "geminorum sessions list --all" in done.stderr


def test_an_id_that_fits_several_names_them(saved):
    saved.save("aaaaffff-0000-4000-8000-000000000000", "Another", "Yes.")
    done = command("sessions", "show", "aaaa", env=saved.env)
    assert done.returncode == Exit.USAGE
    assert A in done.stderr
    assert "aaaaffff" in done.stderr
    assert "write more of the id" in done.stderr


def test_no_latest_in_a_folder_without_sessions(saved, tmp_path):
    done = command("sessions", "show", "latest", env=saved.env, cwd=tmp_path)
    assert done.returncode == Exit.NOT_FOUND
    assert "--all" in done.stderr


def test_a_search_shows_the_words_around_the_find(saved):
    done = command("sessions", "search", "JOINS", env=saved.env, cwd=saved.cwd)
    assert done.returncode == 0
    assert B in done.stdout
    assert "gemini: A pipe joins two programs." in done.stdout
    assert A not in done.stdout


def test_a_find_is_a_line_on_a_narrow_screen_and_whole_in_a_pipe(saved):
    saved.save(A, "Tell me " + "at length " * 9, "before " * 9 + "a needle" + " behind" * 9)
    with Terminal("sessions", "search", "needle", env=saved.env, cwd=saved.cwd, columns=40) as seen:
        assert seen.ends_with() == 0
    heading, find = seen.text.strip().split("\n")
    assert heading.startswith(f"{A[:8]}  ")
    assert heading.endswith("…")
    assert find.strip().startswith("gemini: …")
    assert find.endswith("…")
    assert "a needle behind" in find
    assert max(len(heading), len(find)) <= 40
    done = command("sessions", "search", "needle", env=saved.env, cwd=saved.cwd)
    assert done.stdout.startswith(A)
    assert done.stdout.count("before ") >= 5


@pytest.mark.parametrize(
    ("said", "wanted", "shown"),
    [
        ("It talks of a pipe.", "PIPE", "It talks of a pipe."),
        ("before and behind, a needle", "needle", "…nd behind, a needle"),
        ("needle " + "and behind " * 9, "needle", "needle and behind a…"),
        ("使" * 40 + "管道" + "語" * 40, "管道", "…使使使使管道語語語…"),
        ("ß" * 60 + " a needle", "needle", "…ßßßßßßßßßß a needle"),
    ],
    ids=["whole", "before", "behind", "wide letters", "letters that fold to two"],
)
def test_a_find_has_the_words_around_it_that_there_is_room_for(said, wanted, shown):
    (line,) = snippets([UserMessage(said)], wanted, 28)
    assert line.plain == f"  you: {shown}"
    assert cell_len(line.plain) <= 28


def test_a_search_that_finds_nothing_says_where_to_look(saved):
    done = command("sessions", "search", "Elsewhere", env=saved.env, cwd=saved.cwd)
    assert (done.returncode, done.stdout) == (0, "")
    assert "--all" in done.stderr
    assert C in command("sessions", "search", "-a", "Elsewhere", "--json", env=saved.env).stdout


# ---- tail


def test_a_tail_follows_and_ends_with_ctrl_c(saved):
    (path,) = saved.home.rglob(f"session-*-{A[:8]}.jsonl")
    with Terminal("sessions", "tail", A, env=saved.env) as screen:
        screen.wait_for("Noted: seven.")
        more = {"id": "m9", "type": "user", "content": [{"text": "And now eight"}]}
        with path.open("a") as file:
            file.write(json.dumps(more) + "\n")
        screen.wait_for("And now eight")
        screen.send("\x03")
        assert screen.ends_with() == 0
    assert "Traceback" not in screen.text


def test_a_tail_in_json_is_events(saved):
    child = subprocess.Popen(
        [*COMMAND, "sessions", "tail", A, "--json"],
        stdout=subprocess.PIPE,
        env=environment(saved.env),
    )
    assert child.stdout is not None
    told = [events.decode(child.stdout.readline()) for _ in range(2)]
    child.terminate()
    child.communicate()
    assert [event.type for event in told] == ["user_message", "text"]


# ---- export


@pytest.mark.parametrize("format", ["markdown", "html", "jsonl", "claude", "sharegpt"])
def test_a_session_is_exported_in_every_format(saved, format, tmp_path):
    whole = sessions.export(sessions.load(A, home=saved.home), format)
    done = command("sessions", "export", A, "--format", format, env=saved.env)
    assert (done.returncode, done.stdout) == (0, whole)
    file = tmp_path / "out"
    done = command("sessions", "export", A, "-f", format, "-o", file, env=saved.env)
    assert (done.returncode, done.stdout, file.read_text()) == (0, "", whole)


def test_an_export_does_not_write_over_a_file_by_itself(saved, tmp_path):
    file = tmp_path / "mine"
    file.write_text("precious")
    done = command("sessions", "export", A, "-o", file, env=saved.env)
    assert (done.returncode, file.read_text()) == (Exit.USAGE, "precious")
    assert "--force" in done.stderr
    assert command("sessions", "export", A, "-o", file, "--force", env=saved.env).returncode == 0
    assert "seven" in file.read_text()
    done = command("sessions", "export", A, "-o", tmp_path / "no" / "where", env=saved.env)
    assert done.returncode == Exit.USAGE


# ---- fork, delete


def test_a_fork_tells_its_id_alone_on_stdout(saved):
    done = command("sessions", "fork", A, env=saved.env)
    assert done.returncode == 0
    copy = sessions.load(done.stdout.strip(), home=saved.home)
    assert [*map(str, (m.id for m in copy.messages))]
    assert f"--resume {copy.id}" in done.stderr
    named = command("sessions", "fork", A, "--id", "mine", "--json", env=saved.env)
    assert json.loads(named.stdout)["id"] == "mine"


def test_lists_mark_a_fork_with_what_it_was_forked_from(saved):
    copy = command("sessions", "fork", A, env=saved.env).stdout.strip()
    done = command("sessions", "list", env=saved.env, cwd=saved.cwd)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines[copy].endswith(f"(fork of {A[:8]}) Remember the number seven")
    assert "fork" not in lines[A]
    found = command("sessions", "search", "seven", env=saved.env, cwd=saved.cwd).stdout
    assert found.count(f"(fork of {A[:8]})") == 1
    listed = command("sessions", "list", "--json", env=saved.env, cwd=saved.cwd).stdout
    assert json.loads(listed.splitlines()[0])["forked_from"] == A


def test_nothing_is_deleted_without_a_word(saved):
    done = command("sessions", "delete", A, env=saved.env)
    assert done.returncode == Exit.USAGE
    assert "--yes" in done.stderr
    assert sessions.find(session_id=A, home=saved.home)


def test_a_person_is_asked_before_each_deletion(saved):
    with Terminal("sessions", "delete", A, B, env=saved.env) as screen:
        screen.wait_for("Remember the number seven?")
        screen.send("n\r")
        screen.wait_for("What is a pipe??")
        screen.send("y\r")
        assert screen.ends_with() == 0
    assert sessions.find(session_id=A, home=saved.home)
    assert not sessions.find(session_id=B, home=saved.home)


def test_several_are_deleted_at_once_or_none(saved):
    for missing in ("zzz", "no/where.jsonl"):
        done = command("sessions", "delete", A, missing, "--yes", env=saved.env)
        assert done.returncode == Exit.NOT_FOUND
    assert sessions.find(session_id=A, home=saved.home)
    file = saved.save(B, "By its file", "Yes.")
    done = command("sessions", "delete", A, file, "--yes", env=saved.env)
    assert done.returncode == 0, done.stderr
    assert f"removed {file}" in done.stdout
    assert not file.exists()
    assert not sessions.find(session_id=A, home=saved.home)


# ---- the real CLI


@pytest.mark.gemini_cli
def test_a_session_of_the_real_cli_is_listed_shown_forked_and_costs_what_its_run_did(
    real_transport, fake_gemini, tmp_path
):
    fake_gemini.call("list_directory", dir_path=".").say("Nothing here.")
    options = Options(env=fake_gemini.env, home=fake_gemini.home, cwd=tmp_path, model="flash")
    run = sync.ask("Look around", options, via=real_transport)
    env = fake_gemini.env
    listed = command("sessions", "list", "--json", env=env, cwd=tmp_path)
    assert [json.loads(line)["id"] for line in listed.stdout.splitlines()] == [run.session_id]
    shown = command("sessions", "show", "latest", env=env, cwd=tmp_path)
    assert "list_directory" in shown.stdout
    told = json.loads(command("cost", "--json", env=env, cwd=tmp_path).stdout)
    assert run.cost is not None
    assert told["usd"] == f"{run.cost.usd}"
    copy = command("sessions", "fork", "latest", env=env, cwd=tmp_path).stdout.strip()
    # test_sessions.py goes on with a fork on the real CLI.
    assert copy != run.session_id
    of_copy = command("sessions", "show", copy, env=env, cwd=tmp_path)
    assert "list_directory" in of_copy.stdout
    assert "Nothing here." in of_copy.stdout
