"""Can the CLI read its settings and policies? It stops at the ones, and passes over the others."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from geminorum.auth import is_read_by_cli, read_settings, system_settings
from geminorum.doctor.finding import Finding, check_of, fail, ok, set_aside, to_utf8, warn, worst
from geminorum.options import Options
from geminorum.surroundings import home_of


@check_of("settings")
def settings_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Are the user's, the folder's and the machine's settings files whole?"""
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
        if file.is_file() and not file.read_text(encoding="utf-8").strip():
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


class _Rule(msgspec.Struct, rename="camel"):
    """What the CLI wants of a rule; keys that it does not know it leaves alone."""

    tool_name: str | list[str]
    decision: Literal["allow", "deny", "ask_user"]
    # JavaScript has one kind of number: 1.0 is whole enough.
    priority: Annotated[float, msgspec.Meta(ge=0, le=999, multiple_of=1)]
    subagent: str | None = None
    mcp_name: str | None = None
    args_pattern: str | None = None
    command_prefix: str | list[str] | None = None
    command_regex: str | None = None
    modes: list[Literal["default", "autoEdit", "yolo", "plan"]] | None = None
    interactive: bool | None = None
    tool_annotations: dict[str, Any] | None = None
    allow_redirection: bool | None = None
    deny_message: str | None = None


class _Checker(msgspec.Struct, rename="camel"):
    tool_name: str | list[str]
    checker: dict[str, Any]
    priority: Annotated[float, msgspec.Meta(multiple_of=1)] = 0


class _PolicyFile(msgspec.Struct):
    rule: list[_Rule] = []
    safety_checker: list[_Checker] = []


_NESTED_QUANTIFIERS = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")
_LONGEST_PATTERN = 2048


@check_of("policies")
def policies_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Would the CLI drop one of the user's policy files? Our runs stop where it does."""
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
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        policy = msgspec.convert(data, _PolicyFile)
    except (OSError, ValueError) as error:  # broken TOML and wrong types are ValueErrors both
        return [str(error)]
    rules = enumerate(policy.rule, start=1)
    return [f"rule {number}: {why}" for number, rule in rules for why in _rule_problems(rule)]


def _rule_problems(rule: _Rule) -> Iterator[str]:
    by_command = [part for part in (rule.command_prefix, rule.command_regex) if part is not None]
    if by_command and rule.tool_name != "run_shell_command":
        yield 'commandPrefix and commandRegex need toolName = "run_shell_command"'
    if len(by_command) + (rule.args_pattern is not None) > 1:
        yield "commandPrefix, commandRegex and argsPattern exclude each other"
    if "" in ([rule.tool_name] if isinstance(rule.tool_name, str) else rule.tool_name):
        yield 'toolName is empty; "*" stands for every tool'
    for pattern in (rule.args_pattern, rule.command_regex):
        yield from _pattern_problems(pattern or "")


def _pattern_problems(pattern: str) -> Iterator[str]:
    if len(pattern) > _LONGEST_PATTERN or _NESTED_QUANTIFIERS.search(pattern):
        yield f"the pattern {pattern[:80]!r} has nested quantifiers, or is too long"
    try:
        # JavaScript's dialect, which names its groups otherwise.
        re.compile(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern))
    except re.error as error:
        yield f"the pattern {pattern[:80]!r} is broken: {error}"
