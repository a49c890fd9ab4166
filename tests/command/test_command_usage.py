"""`geminorum usage` and `geminorum cost`: what was consumed, in a table, in bars, line by line."""

import json
from datetime import date, datetime

import pytest

from command_home import A, B, SavedHome
from command_line import Terminal
from command_line import geminorum_command as command
from geminorum import usage
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.moments import moment_of, size_of, when
from geminorum.apps.command.render.tables import (
    Bar,
    Column,
    Sheet,
    bars,
    plain,
    shown_columns,
    table,
)

NOW = datetime(2026, 11, 16, 12, 30).astimezone()


@pytest.fixture
def saved(tmp_path) -> SavedHome:
    home = SavedHome(tmp_path / "home", tmp_path / "work")
    home.save(A, "One", "Yes.", day=1, tokens=10_000)
    home.save(B, "Two", "Yes.", day=2, model="gemini-2.5-pro", tokens=20_000)
    return home


@pytest.mark.parametrize("by", ["day", "model", "project", "session"])
def test_usage_in_json_is_the_report(saved, by):
    done = command("usage", "--by", by, "--tz", "UTC", "--json", env=saved.env)
    whole = usage.report(home=saved.home, by=by, tz="UTC")
    assert (done.returncode, json.loads(done.stdout)) == (0, whole.to_dict())


def test_usage_is_a_table_in_a_pipe_without_bars(saved):
    done = command("usage", "--tz", "UTC", env=saved.env)
    head, first, second, total, note = done.stdout.splitlines()
    assert head.split() == [
        *("day", "requests", "input", "cached", "output", "thoughts", "tokens", "cost")
    ]
    assert first.split() == ["2026-01-01", "1", "10,000", "0", "100", "0", "10,100", "$0.0032"]
    assert second.split()[-2:] == ["20,100", "$0.0260"]
    assert total.split() == ["total", "2", "30,000", "0", "200", "0", "30,200", "$0.0292"]
    assert "not counted: the CLI's routing requests" in note


def test_usage_can_be_of_a_time_and_of_a_folder(saved, tmp_path):
    late = command("usage", "--since", "2026-01-02", "--tz", "UTC", env=saved.env)
    assert "2026-01-02" in late.stdout
    assert "2026-01-01" not in late.stdout
    early = command("usage", "--until", "2026-01-02", "--tz", "UTC", env=saved.env)
    assert "2026-01-01" in early.stdout
    assert "2026-01-02" not in early.stdout
    nothing = command("usage", "--cwd", tmp_path, env=saved.env)
    assert "nothing was used" in nothing.stdout


def test_a_model_without_a_price_is_told_of_and_not_free(saved):
    saved.save("cccc", "Three", "Yes.", day=3, model="secret-1", tokens=500)
    done = command("usage", "--by", "model", env=saved.env)
    assert "no price for secret-1: 600 tokens" in done.stdout
    assert "unknown" in done.stdout
    assert "$0.0292 + ?" in done.stdout


@pytest.mark.parametrize("columns", [80, 40])
def test_usage_on_a_terminal_has_bars_and_fits(saved, columns):
    with Terminal("usage", "--by", "model", env=saved.env, columns=columns) as screen:
        assert screen.ends_with() == 0
    lines = screen.text.splitlines()
    assert max(map(len, lines)) <= columns
    pro, flash = (next(x for x in lines if model in x and "█" in x) for model in ("pro", "2.5-f"))
    assert pro.count("█") > flash.count("█") > 0
    with Terminal("usage", "--no-chart", env=saved.env) as screen:
        assert screen.ends_with() == 0
    assert "█" not in screen.text


def test_bars_are_drawn_with_plain_letters_on_a_narrow_code_page(saved):
    narrow = {**saved.env, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    with Terminal("usage", env=narrow) as screen:
        assert screen.ends_with() == 0
    assert "#####" in screen.text
    assert "█" not in screen.text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--since", "soon"], "2026-11-01"),
        (["--since", "999999999w"], "2026-11-01"),
        (["--until", "0001-01-01"], "2026-11-01"),
        (["--by", "colour"], "day"),
        (["--tz", "Mars/Olympus"], "Europe/Berlin"),
        (["--since", "2026-02-01", "--until", "2026-01-01"], "swap"),
        (["--sinse", "7d"], "--since"),
    ],
)
def test_wrong_usage_says_what_to_write(saved, arguments, word):
    done = command("usage", *arguments, env=saved.env)
    assert done.returncode == Exit.USAGE
    assert word in done.stderr
    assert "Traceback" not in done.stderr


# ---- cost


def test_a_cost_is_one_line(saved):
    done = command("cost", "aaaa", env=saved.env)
    assert (done.returncode, done.stdout) == (0, "10,100 tokens, $0.00325 at list prices\n")


def test_a_cost_is_explained_with_its_arithmetic(saved):
    saved.save("agent", "Sub", "Yes.", parent=A, tokens=1000)
    done = command("cost", "--explain", A, env=saved.env)
    assert done.stdout.splitlines() == [
        "# the session",
        "gemini-2.5-flash",
        "  10,000 input    * $0.3/M = $0.003",
        "     100 output   * $2.5/M = $0.00025",
        "# subagent agent",
        "gemini-2.5-flash",
        "  1,000 input    * $0.3/M = $0.0003",
        "    100 output   * $2.5/M = $0.00025",
        "11,200 tokens, $0.0038 at list prices",
    ]


def test_a_cost_in_json_has_its_parts(saved):
    told = json.loads(command("cost", A, "--json", env=saved.env).stdout)
    assert (told["session_id"], told["usd"], told["tokens"]) == (A, "0.00325", 10_100)
    assert told["parts"][0]["cost"]["exact"] is True


def test_a_cost_that_cannot_be_known_is_not_zero(saved):
    saved.save("cccc", "Three", "Yes.", day=3, model="secret-1", tokens=500)
    done = command("cost", "cccc", "--explain", env=saved.env)
    assert "cost unknown: there is no price for 'secret-1'" in done.stdout
    assert "$0" not in done.stdout
    assert json.loads(command("cost", "cccc", "--json", env=saved.env).stdout)["usd"] is None


def test_without_a_session_the_latest_is_meant(saved):
    done = command("cost", env=saved.env, cwd=saved.cwd)
    assert done.stdout.startswith("20,100 tokens")
    assert command("cost", "zzz", env=saved.env).returncode == Exit.NOT_FOUND


# ---- the parts


def test_moments_are_read_as_people_write_them():
    midnight = NOW.replace(hour=0, minute=0)
    assert moment_of("today", NOW) == midnight
    assert (NOW - moment_of("90m", NOW)).total_seconds() == 5400
    assert (NOW - moment_of("2w", NOW)).days == 14
    assert moment_of("2026-11-01", NOW).date() == date(2026, 11, 1)
    assert (midnight - moment_of("yesterday", NOW)).days == 1
    assert moment_of(None) is None


def test_moments_are_told_as_short_as_can_be():
    at = int(NOW.timestamp() * 1000)
    assert when(at, NOW) == "12:30"
    assert when(at - 86_400_000 * 2, NOW) == "2026-11-14"
    assert when(0, NOW) == when(10**18, NOW) == "unknown"
    assert [size_of(n) for n in (0, 999, 1500, 2_000_000, 3 * 10**9)] == [
        *("0 B", "999 B", "2 kB", "2 MB", "3.0 GB")
    ]


def test_a_little_is_not_nothing_in_a_bar():
    lines = bars([Bar("a", 1000, "much"), Bar("b", 1, "little"), Bar("c", 0, "none")], 40)
    assert [len(line) for line in lines] == [38, 40, 38]
    assert "▏" in lines[1]
    assert set(lines[2]) <= set("c none")
    assert bars([Bar("a", 0, "")], 40) == bars([], 40) == []


def test_a_narrow_table_leaves_out_what_matters_least():
    columns = [Column("id"), Column("x", spare=2), Column("y", spare=1), Column("z", elastic=True)]
    sheet = Sheet(columns, [["a" * 8, "b" * 8, "c" * 8, "d" * 80]])
    assert shown_columns(sheet, 80) == [0, 1, 2, 3]
    assert shown_columns(sheet, 41) == [0, 2, 3]
    assert shown_columns(sheet, 30) == [0, 3]
    assert shown_columns(sheet, 5) == [0, 3]
    assert [column.width for column in table(sheet, 41).columns] == [8, 8, 21]


def test_a_cell_is_one_line_without_commands_to_the_terminal():
    sheet = Sheet([Column("a"), Column("b")], [["x\ny\x1b[2J", "z"]], notes=["end"])
    assert plain(sheet) == "a             b\nx y\\u001b[2J  z\nend\n"
