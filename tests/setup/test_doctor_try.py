"""`geminorum doctor --try`: which rows of docs/versions.md hold on the installed CLI."""

import json
from pathlib import Path

import pytest

from command_line import Terminal
from command_line import geminorum_command as command
from geminorum import Cli, doctor
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.setup.doctor_try import verdict_on
from geminorum.doctor import probes
from geminorum.doctor.probes import ROWS, SESSION_ID
from geminorum.doctor.trying import seconds_for_probes
from geminorum.install import PINNED_CLI

PAGE = Path(__file__).resolve().parents[2] / "docs/versions.md"
PATIENCE = 300
"""Seconds; the rows hold on a busy machine too."""


def test_every_row_is_one_of_the_page():
    page = PAGE.read_text()
    assert [row for row in ROWS if f"\n| {row} |" not in page] == []


@pytest.mark.gemini_cli
def test_all_rows_hold_on_the_tested_cli_and_nothing_of_the_user_is_touched(
    real_transport, private_home, tmp_path
):
    env = {"GEMINI_CLI_PATH": str(real_transport.executable)}
    done = command("doctor", "--try", "--json", "--timeout", str(PATIENCE), env=env, cwd=tmp_path)
    cli, *rows = map(json.loads, done.stdout.splitlines())
    assert cli["detail"].startswith(PINNED_CLI)
    assert [row["name"] for row in rows] == list(ROWS)
    assert [row for row in rows if row["level"] != "ok"] == []
    assert done.returncode == Exit.OK
    assert list(private_home.iterdir()) == list(tmp_path.iterdir()) == []


# The real CLI, but for one flag that it no longer knows.
WITHOUT_A_FLAG = """#!/bin/sh
for word; do
  shift
  case "$word" in --session-id=*) ;; *) set -- "$@" "$word" ;; esac
done
exec {command} "$@"
"""


@pytest.mark.gemini_cli
def test_a_row_that_no_longer_holds_is_named_and_only_that_one(real_cli, tmp_path, monkeypatch):
    """Of the probe that needs the flag, and of one of ours that holds: all are tried above."""
    some = [probe for probe in probes.PROBES if SESSION_ID in probe.rows]
    some.append(probes.Probe(("what always holds",), note_that_it_holds))
    monkeypatch.setattr(probes, "PROBES", some)
    monkeypatch.setattr(probes, "ROWS", [row for probe in some for row in probe.rows])
    program = tmp_path / "gemini"
    program.write_text(WITHOUT_A_FLAG.format(command=" ".join(f"'{word}'" for word in real_cli)))
    program.chmod(0o755)
    told: list[doctor.Check] = []
    checks = doctor.try_cli(via=Cli(executable=program), timeout=PATIENCE, on_check=told.append)
    (failed,) = [check for check in checks if check.level != "ok"]
    assert (failed.name, failed.level) == (SESSION_ID, "fail")
    assert failed.detail.startswith("does not hold: the session: ")
    assert [check.name for check in checks] == ["cli", SESSION_ID, "what always holds"]
    assert sorted(told, key=checks.index) == checks


async def note_that_it_holds(bench: probes.Bench) -> None:
    with bench.row("what always holds"):
        assert bench.made() == []


def path_to(cli: Cli) -> dict[str, str]:
    return {"GEMINI_CLI_PATH": str(cli.executable)}


def test_a_program_that_fails_holds_nothing(stand_in, tmp_path):
    env = path_to(stand_in(exit=1, stderr="Unknown arguments", read_stdin=False))
    done = command("doctor", "--try", "--timeout", str(PATIENCE), env=env, cwd=tmp_path)
    assert done.returncode == Exit.FAILED
    assert done.stderr.startswith("trying the Gemini CLI offline")
    cli, *rest = done.stdout.splitlines()
    assert "of an unknown version" in cli
    *rows, empty, verdict, fix = rest
    assert [row[0] for row in rows] == ["✗"] * len(ROWS)
    assert (empty, verdict) == ("", f"of {len(ROWS)} rows that were tried, {len(ROWS)} do not hold")
    assert fix.startswith("    → geminorum setup")


def test_a_program_that_hangs_holds_nothing(tmp_path):
    # Not the stand-in: several at once would disturb each other's notes, and end.
    program = tmp_path / "gemini"
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(0o755)
    cli, *rows = doctor.try_cli(via=Cli(executable=program), timeout=3)
    assert cli.level == "ok"
    assert {(row.level, row.code) for row in rows} == {("fail", "TIMEOUT")}
    assert rows[0].detail == "did not finish within 3 seconds"
    assert rows[0].fix.startswith("geminorum doctor --try --timeout 9")


def test_rows_that_ran_out_of_time_are_counted_apart():
    cli, good = doctor.Check("cli", "ok", ""), doctor.Check("a row", "ok", "works")
    late = doctor.Check("a row", "fail", "did not finish", code="TIMEOUT")
    bad, refused = doctor.Check("a row", "fail", "differs"), doctor.Check("a row", "warn", "no")
    assert verdict_on(cli, *[good] * 13, late, late) == (
        "of 15 rows that were tried, 13 hold, 2 did not finish"
    )
    assert verdict_on(cli, good, bad, late, refused) == (
        "of 4 rows that were tried, 1 holds, 2 do not hold, 1 did not finish"
    )
    assert verdict_on(cli, bad) == "of 1 row that was tried, 1 does not hold"
    assert verdict_on(cli, good, good) == "all 2 rows that were tried hold on this CLI"


@pytest.mark.parametrize("timeout", [0.5, 3, 20, 300])
def test_the_time_for_all_includes_finding_the_cli_and_ending_what_hangs(timeout):
    assert 0 < seconds_for_probes(timeout, already=0) < timeout
    later = seconds_for_probes(timeout, already=timeout / 4)
    assert 0 < later <= seconds_for_probes(timeout, already=0) - timeout / 4
    assert seconds_for_probes(timeout, already=timeout * 2) == 0


def test_a_terminal_shows_progress_and_the_rows(stand_in, tmp_path):
    env = path_to(stand_in(exit=1, read_stdin=False))
    with Terminal("doctor", "--try", "--timeout", PATIENCE, env=env, cwd=tmp_path) as screen:
        assert screen.ends_with() == Exit.FAILED
    assert "Trying the Gemini CLI offline" in screen.text
    assert "✗ session_id" in screen.text


def test_without_a_cli_nothing_is_tried(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "GEMINI_CLI_PATH": "", "HOME": str(tmp_path)}
    done = command("doctor", "--try", env=env, cwd=tmp_path)
    assert done.returncode == Exit.SETUP
    assert "nothing was tried" in done.stdout
    assert "geminorum setup" in done.stdout


@pytest.mark.parametrize("other", ["--live", "--fix"])
def test_it_goes_with_no_other_flag(other):
    done = command("doctor", "--try", other)
    assert done.returncode == Exit.USAGE
    assert "--try goes with neither --live nor --fix" in done.stderr


def test_a_folder_that_cannot_be_made_is_no_exception(stand_in, monkeypatch, tmp_path):
    """Each row says why it was not tried."""
    cli = stand_in(exit=1, read_stdin=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    _, *rows = doctor.try_cli(via=cli, timeout=PATIENCE)
    assert {row.level for row in rows} == {"fail"}
    assert "none" in rows[0].detail
