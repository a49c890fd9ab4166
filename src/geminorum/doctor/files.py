"""Can the CLI read its settings and policies? Bad settings stop it; bad policies it skips."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from geminorum.auth import is_read_by_cli, read_settings, system_settings
from geminorum.doctor.finding import Finding, check_of, fail, ok, set_aside, to_utf8, warn, worst
from geminorum.environment import home_of
from geminorum.options import Options
from geminorum.system.regular_file import read_text
from geminorum.wire.policy.toml_reader import policy_problems


@check_of("settings")
def settings_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Are the user's, the folder's and the machine's settings files valid?"""
    files = _settings_files(options, env)
    there = [str(file) for file in files if file.exists()]
    users, *others = files
    problems = [*_users_problems(users), *(found for file in others for found in _problems(file))]
    return worst([*problems, *_skipped(env)], ok(", ".join(there) or "none, which is fine"))


def _settings_files(options: Options, env: Mapping[str, str]) -> list[Path]:
    # The folder's file is read even where the folder is not trusted; only its content is dropped.
    folder = Path(options.cwd or ".").expanduser().absolute()
    homes = dict.fromkeys((home_of(options, env), folder))
    machine = [path for path in system_settings(env) if is_read_by_cli(path)]
    return [*(home / ".gemini" / "settings.json" for home in homes), *machine]


def _users_problems(file: Path) -> Iterator[Finding]:
    """The user's file is read by us: more leniently where it is empty, more strictly otherwise."""
    try:
        if file.is_file() and not read_text(file).strip():
            fix = f"echo '{{}}' > {shlex.quote(str(file))}"
            yield warn(f"{file} is empty: plain `gemini` would stop at it", fix)
        else:
            yield from _problems(file)
    except UnicodeDecodeError as error:
        yield fail(f"{file} is not UTF-8: {error}", to_utf8(file), "CONFIG")


def _problems(file: Path) -> Iterator[Finding]:
    try:
        read_settings(file)
    except UnicodeDecodeError:
        return  # The CLI puts a mark in place of such a letter, and reads on.
    except (OSError, ValueError) as error:
        yield fail(f"{file} cannot be read: {error}", set_aside(file), "CONFIG")


def _skipped(env: Mapping[str, str]) -> Iterator[Finding]:
    for path in system_settings(env):
        if path.exists() and not is_read_by_cli(path):
            what = f"{path} is passed over: others than root could have changed it"
            fix = "sudo chown root {0} && sudo chmod go-w {0}".format(shlex.quote(str(path)))
            yield warn(what, fix)


# ---- policies


@check_of("policies")
def policies_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Would the CLI drop one of the user's policy files? geminorum's runs stop in that case."""
    files = sorted(_policy_files(home_of(options, env) / ".gemini" / "policies"))
    problems = [
        fail(f"{file}: {problem}", set_aside(file), "CONFIG")
        for file in files
        for problem in _policy_problems(file)
    ]
    return worst(problems, ok(", ".join(map(str, files)) or "none, which is fine"))


def _policy_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    # As the CLI: neither links nor names in capitals.
    return [file for file in folder.glob("*.toml") if file.is_file() and not file.is_symlink()]


def _policy_problems(file: Path) -> list[str]:
    try:
        return policy_problems(read_text(file))
    except (OSError, ValueError) as error:
        return [str(error)]
