"""Is there a Gemini CLI, a Node to run it, and is it new enough?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from geminorum.detect import (
    INSTALL_NODE,
    MINIMUM_NODE,
    MINIMUM_VERSION,
    CliProgram,
    Version,
    cli_path,
    find_cli,
    find_node,
    version_text,
)
from geminorum.doctor.finding import Finding, check_of, fail, ok
from geminorum.errors import CliTooOld, SetupError
from geminorum.hints import advice
from geminorum.install import PINNED_CLI
from geminorum.options import Options
from geminorum.system.owned_folder import OwnedFolder
from geminorum.wire.launch.argv import missing_flags

Executable = str | os.PathLike[str] | None

_INSTALL = advice("{install|python -m geminorum.install}")
_INSTALL_INSTEAD = advice(
    "{install|python -m geminorum.install}  # and leave {Cli.executable|executable=} out"
)
_INSTALL_NODE = 'pip install "geminorum[node]"'
_UPDATE = "npm install -g @google/gemini-cli@latest"
_VERSION_TIMEOUT_SECONDS = 30.0
"""Seconds for `--version`, which takes one or two."""


@check_of("cli")
def cli_check(
    executable: Executable = None,
    env: Mapping[str, str] | None = None,
    timeout: float = _VERSION_TIMEOUT_SECONDS,
) -> Finding:
    """Is the CLI there, with a Node, and does `gemini --version` succeed? All three at once."""
    env = os.environ if env is None else env
    steps = (found_check(executable, env), node_check(executable, env))
    for step in (*steps, version_check(executable, env, timeout=timeout)):
        if step.level == "fail":
            return fail(step.detail, step.fix, step.code)
    return ok(f"{step.detail} at {cli_path(executable, env)}")


@check_of("cli")
def found_check(executable: Executable, env: Mapping[str, str]) -> Finding:
    """Is the CLI installed, and where?"""
    try:
        return ok(f"found at {cli_path(executable, env)}")
    except SetupError as error:
        fix = _INSTALL if executable is None else _INSTALL_INSTEAD
        return fail(error.message, fix, error.code)


@check_of("node")
def node_check(executable: Executable, env: Mapping[str, str]) -> Finding:
    """Which Node would run it? One next to the CLI counts too."""
    try:
        program = find_cli(executable, env)
    except SetupError as error:
        if error.hint == INSTALL_NODE:
            return fail(error.message, _INSTALL_NODE, error.code)
        node = find_node(env)
    else:
        if program.node is None:
            return ok(f"{program.path} is no script for Node")
        node = program.node
    if node is None:
        what = f"no Node {MINIMUM_NODE} or newer, which the CLI runs on"
        return fail(what, _INSTALL_NODE, "CLI_NOT_FOUND")
    return ok(f"{version_text(node.version)} at {node.path}")


@check_of("cli version")
def version_check(
    executable: Executable,
    env: Mapping[str, str],
    options: Options | None = None,
    *,
    timeout: float = _VERSION_TIMEOUT_SECONDS,
) -> Finding:
    """Does it start, and is it new enough for geminorum and for the options?"""
    try:
        program = find_cli(executable, env)
    except CliTooOld as error:
        return fail(error.message, _UPDATE, error.code)
    except SetupError as error:
        return fail(f"cannot be asked: {error.message}", _fix_of(error), error.code)
    return _judged(program, _answer(program, env, timeout), options or Options())


def _fix_of(error: SetupError) -> str:
    if chmod := re.search(r"`(chmod [^`]+)`", error.hint or ""):
        return chmod[1]
    return _INSTALL_NODE if error.hint == INSTALL_NODE else _INSTALL


def _judged(program: CliProgram, answer: tuple[int | None, str], options: Options) -> Finding:
    exit_code, told = answer
    if exit_code != 0:
        why = "did not answer" if exit_code is None else f"exited with {exit_code}: {told[-300:]}"
        return fail(f"`{program.path} --version` {why}", _INSTALL, "CLI_NOT_FOUND")
    version = program.version or _version_in(told)
    if version is None:
        return ok(f"unknown: `--version` said {told[:80]!r}")
    if version < MINIMUM_VERSION:
        oldest = version_text(MINIMUM_VERSION)
        return fail(f"{version_text(version)}; {oldest} is the oldest", _UPDATE, "CLI_TOO_OLD")
    if missing := missing_flags(options, version):
        what = f"{version_text(version)} is too old for {', '.join(missing)}"
        return fail(what, _UPDATE, "UNSUPPORTED")
    return ok(_with_note(version))


def _version_in(text: str) -> Version | None:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _with_note(version: Version) -> str:
    text = version_text(version)
    return text if text == PINNED_CLI else f"{text}; geminorum is tested with {PINNED_CLI}"


def _answer(program: CliProgram, env: Mapping[str, str], timeout: float) -> tuple[int | None, str]:
    """The exit code of `--version` and what it said; None where it was too slow."""
    # A home of its own: broken settings are another check's business, and would fail this one.
    with OwnedFolder("geminorum-kept-doctor-") as home:
        quiet = {"GEMINI_CLI_HOME": str(home), "GEMINI_CLI_SYSTEM_SETTINGS_PATH": f"{home}/none"}
        quiet |= {"GEMINI_CLI_SYSTEM_DEFAULTS_PATH": f"{home}/none"}
        quiet |= {"GEMINI_CLI_NO_RELAUNCH": "true", "NO_COLOR": "1"}
        # A list and no shell: the CLI that a run would start.
        child = subprocess.Popen(  # nosec B603
            [*program.command, "--version"],
            cwd=home,
            env={**env, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _end(child)
    return child.returncode, output.decode(errors="replace").strip()


def _end(child: subprocess.Popen[bytes]) -> None:
    # The group, since a wrapper script may leave a child of its own behind.
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout:
        child.stdout.close()
