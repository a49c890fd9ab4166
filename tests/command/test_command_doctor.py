"""`geminorum doctor` and `geminorum setup`: is everything in place, and how to get it there."""

import json
import os
from pathlib import Path

import pytest

from command_line import Terminal
from command_line import geminorum_command as command
from geminorum import Options, doctor
from geminorum.apps.command.exits import Exit
from geminorum.doctor import Check, remedy_for
from geminorum.errors import ConfigError
from geminorum.install import PINNED_CLI

NO_CLI = {"PATH": "/usr/bin:/bin", "GEMINI_CLI_PATH": ""}


@pytest.fixture
def quick(tmp_path) -> dict[str, str]:
    """A program that says its version at once, where the CLI is not the question."""
    program = tmp_path / "quick" / "gemini"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {PINNED_CLI}\n")
    program.chmod(0o755)
    home = str(tmp_path / "home")
    return {"GEMINI_CLI_PATH": str(program), "GEMINI_API_KEY": "k", "GEMINI_CLI_HOME": home}


def test_the_checks_in_json_are_those_of_the_library(quick, tmp_path, monkeypatch):
    done = command("doctor", "--json", env=quick, cwd=tmp_path)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for name, value in quick.items():
        monkeypatch.setenv(name, value)
    assert [one["name"] for one in told] == [check.name for check in doctor.check(Options())]
    assert {one["level"] for one in told} == {"ok"}


def test_what_is_missing_is_code_3_and_says_what_to_type(tmp_path):
    env = {**NO_CLI, "GEMINI_CLI_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = command("doctor", env=env, cwd=tmp_path)
    assert done.returncode == Exit.SETUP
    assert "geminorum setup" in done.stdout
    assert "export GEMINI_API_KEY=" in done.stdout
    assert "problems to fix before a run can work" in done.stdout


def test_a_folder_that_is_not_there_is_a_finding(tmp_path):
    done = command("doctor", "--cwd", tmp_path / "none", "--json")
    found = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert found["cwd"]["level"] == "fail"
    assert found["cwd"]["fix"].startswith("mkdir -p")


@pytest.mark.parametrize("columns", [80, 40])
def test_findings_fit_the_terminal_and_commands_stay_whole(tmp_path, columns):
    env = {**NO_CLI, "GEMINI_CLI_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with Terminal("doctor", env=env, columns=columns, cwd=tmp_path) as screen:
        assert screen.ends_with() == Exit.SETUP
    wide = [line for line in screen.text.splitlines() if len(line) > columns]
    # A path in one piece can be copied, as can a command.
    assert all(line.startswith("    →") or " " not in line.strip() for line in wide)
    assert "    → export GEMINI_API_KEY=…  # a key from https://aistudio" in screen.text
    assert "✗" in screen.text


def test_a_narrow_code_page_gets_plain_marks(tmp_path):
    narrow = {**NO_CLI, "HOME": str(tmp_path), "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = command("doctor", env=narrow)
    assert "x cli" in done.stdout
    assert "-> geminorum setup" in done.stdout


@pytest.mark.gemini_cli
def test_a_healthy_machine_is_all_well_and_the_live_probe_asks_the_model(
    real_cli, fake_gemini, tmp_path
):
    """test_doctor.py asks the real CLI for its version, too."""
    fake_gemini.say("hello")
    cli = tmp_path / "gemini"
    tell = f'[ "$1" = --version ] && exec echo {PINNED_CLI}'
    words = " ".join(f"'{word}'" for word in real_cli)  # With the Node that is to run it.
    cli.write_text(f'#!/bin/sh\n{tell}\nexec {words} "$@"\n')
    cli.chmod(0o755)
    env = {"GEMINI_CLI_PATH": str(cli), **fake_gemini.env}
    done = command("doctor", "--live", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert PINNED_CLI in done.stdout
    assert "live" in done.stdout
    assert done.stdout.endswith("all is well\n")
    assert len(fake_gemini.requests) == 1


# ---- mending


def chosen_by_nothing(home: Path, settings: str | None) -> dict[str, str]:
    """A key in ~/.gemini/.env, which the CLI reads too late: no login is chosen by then."""
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini/.env").write_text("GEMINI_API_KEY=k\n")
    if settings is not None:
        (home / ".gemini/settings.json").write_text(settings)
    return {"GEMINI_CLI_HOME": str(home), "HOME": str(home)}


def test_a_fix_asks_first_and_adds_only_what_is_missing(quick, tmp_path):
    home = tmp_path / "mine"
    env = {**quick, **chosen_by_nothing(home, '{"ui": {"theme": "Ayu"}}')}
    del env["GEMINI_API_KEY"]
    settings = home / ".gemini/settings.json"
    with Terminal("doctor", "--fix", env=env, cwd=tmp_path) as screen:
        screen.wait_for("selectedType")
        screen.wait_for("[y/N]")
        screen.send("n\r")
        assert screen.ends_with() == Exit.SETUP
    assert json.loads(settings.read_text()) == {"ui": {"theme": "Ayu"}}
    with Terminal("doctor", "--fix", env=env, cwd=tmp_path) as screen:
        screen.wait_for("[y/N]")
        screen.send("y\r")
        assert screen.ends_with() == 0
    assert json.loads(settings.read_text()) == {
        "ui": {"theme": "Ayu"},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    assert "all is well" in screen.text


def test_a_fix_without_a_question_needs_yes(quick, tmp_path):
    home = tmp_path / "mine"
    env = {**quick, **chosen_by_nothing(home, None)}
    del env["GEMINI_API_KEY"]
    done = command("doctor", "--fix", env=env, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "--yes" in done.stderr
    assert not (home / ".gemini/settings.json").exists()
    done = command("doctor", "--fix", "--yes", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"wrote {home}/.gemini/settings.json" in done.stderr
    done = command("doctor", "--fix", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "nothing to fix\n"), "so nobody has to be asked"


def test_settings_with_comments_are_left_alone(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{\n// mine\n"a": 1}')
    check = Check("auth", "fail", "…", f'put into {file}: {{"b": {{"c": 1}}}}', "AUTH")
    remedy = remedy_for(check)
    assert remedy is not None
    with pytest.raises(ConfigError, match="left as it is") as caught:
        remedy.apply()
    assert '{"b": {"c": 1}}' in (caught.value.hint or "")
    assert file.read_text() == '{\n// mine\n"a": 1}'


def test_settings_of_another_shape_are_left_alone(tmp_path):
    file = tmp_path / "settings.json"
    for text in ("[]", '{"b": 3}'):
        file.write_text(text)
        check = Check("auth", "fail", "…", f'put into {file}: {{"b": {{"c": 1}}}}', "AUTH")
        with pytest.raises(ConfigError):
            remedy_for(check).apply()
        assert file.read_text() == text


def test_only_what_is_harmless_has_a_remedy():
    assert remedy_for(Check("cli", "ok", "fine")) is None
    assert remedy_for(Check("auth", "fail", "…", "export GEMINI_API_KEY=…", "AUTH")) is None
    assert remedy_for(Check("settings", "fail", "…", "mv a a.broken", "CONFIG")) is None
    assert remedy_for(Check("cli", "fail", "…", "geminorum setup", "CLI_NOT_FOUND")) is not None


# ---- setup


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("…")
    done = command("setup", "--into", tmp_path)
    assert done.returncode == Exit.SETUP
    assert "holds other files" in done.stderr
    assert "--into" in done.stderr


def npm_that(folder: Path, script: str) -> dict[str, str]:
    """A Node on PATH whose npm is a script of ours: the real one needs a registry."""
    node = folder / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo v24.0.0 && exit\nshift\n{script}\n')
    node.chmod(0o755)
    npm = folder / "lib/node_modules/npm/bin/npm-cli.js"
    npm.parent.mkdir(parents=True)
    npm.write_text("")
    return {"PATH": f"{node.parent}{os.pathsep}/usr/bin:/bin"}


INSTALLS = """
while [ "$1" != --prefix ]; do shift; done
v=$(sed 's/.*gemini-cli": "\\([0-9.]*\\)".*/\\1/' "$2/package.json")
mkdir -p "$2/node_modules/@google/gemini-cli/bundle" "$2/node_modules/.bin"
cd "$2/node_modules"
printf '{"name": "@google/gemini-cli", "version": "%s", "bin": {"gemini": "bundle/gemini.js"}}' \
  "$v" > @google/gemini-cli/package.json
echo "" > @google/gemini-cli/bundle/gemini.js
ln -s ../@google/gemini-cli/bundle/gemini.js .bin/gemini
"""


def test_setup_installs_the_pinned_version_and_tells_where(tmp_path):
    env = npm_that(tmp_path / "node", INSTALLS)
    done = command("setup", "--into", tmp_path / "cli", "--json", env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["version"] == PINNED_CLI
    assert Path(told["path"]).exists()
    package = tmp_path / "cli/node_modules/@google/gemini-cli/package.json"
    assert json.loads(package.read_text())["version"] == PINNED_CLI
    assert "hash" not in done.stderr


def test_setup_shows_a_bar_on_a_terminal(tmp_path):
    env = npm_that(tmp_path / "node", f"sleep 1\n{INSTALLS}")
    with Terminal("setup", "--into", tmp_path / "cli", env=env) as screen:
        assert screen.ends_with() == 0
    assert f"Gemini CLI {PINNED_CLI}" in screen.text
    assert "━" in screen.text
    assert f"GEMINI_CLI_PATH={tmp_path}/cli" in screen.text


def test_setup_that_fails_says_why_and_what_to_type(tmp_path):
    env = npm_that(tmp_path / "node", "echo npm error code ETARGET; exit 1")
    done = command("setup", "--into", tmp_path / "cli", "--version", "9.9.9", env=env)
    assert done.returncode == Exit.SETUP
    assert "ETARGET" in done.stderr
    assert "Gemini CLI 9.9.9: geminorum ships no hash for this version" in done.stderr
    assert "npm view" in done.stderr
    assert not (tmp_path / "cli").exists()


def test_the_doctor_installs_a_missing_cli(tmp_path):
    env = npm_that(tmp_path / "node", INSTALLS)
    env |= {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "GEMINI_API_KEY": "k"}
    done = command("doctor", "--fix", "--yes", env=env, cwd=tmp_path)
    assert "installed at" in done.stderr
    assert (tmp_path / "data/geminorum/gemini-cli/node_modules/.bin/gemini").exists()
