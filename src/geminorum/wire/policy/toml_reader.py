"""Reads a policy file of the CLI: its rules, and the mistakes for which the CLI would drop it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from geminorum.runtime import typed

_QUANTIFIERS = frozenset("*+?{")
_LONGEST_PATTERN = 2048
_MOST_STEPS = 100
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_MOST_STEPS}}}"""
)


class FileRule(msgspec.Struct, rename="camel"):
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


class PolicyFile(msgspec.Struct):
    rule: list[FileRule] = []
    safety_checker: list[_Checker] = []


def read_policy(text: str) -> PolicyFile:
    """The rules; ValueError for broken TOML and wrong types."""
    return typed.convert(table_of(text), PolicyFile)


def table_of(text: str) -> dict[str, Any]:
    """What TOML says; ValueError where it is broken."""
    # Python takes time that grows with the square of a key's length.
    if _LONG_KEY.search(text):
        raise ValueError(f"a key of more than {_MOST_STEPS} parts")
    import tomllib  # Not on top: most runs have no policy to read.

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def policy_problems(text: str) -> list[str]:
    """Why the CLI would drop the file as a whole; an empty list where it would not."""
    try:
        rules = enumerate(read_policy(text).rule, start=1)
    except ValueError as error:
        return [str(error)]
    return [f"rule {number}: {why}" for number, rule in rules for why in _rule_problems(rule)]


def in_python(pattern: str) -> str:
    """JavaScript's dialect, which names its groups otherwise."""
    return re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern)


def in_javascript(text: str) -> str:
    """A pattern for this text where the CLI looks for it: in JSON."""
    quoted = msgspec.json.encode(text).decode()[1:-1]
    return re.sub(r'[-\[\]{}()*+?.,\\^$|#\s"]', r"\\\g<0>", quoted)


def _rule_problems(rule: FileRule) -> Iterator[str]:
    by_command = [part for part in (rule.command_prefix, rule.command_regex) if part is not None]
    if by_command and rule.tool_name != "run_shell_command":
        yield 'commandPrefix and commandRegex need toolName = "run_shell_command"'
    if len(by_command) + (rule.args_pattern is not None) > 1:
        yield "commandPrefix, commandRegex and argsPattern exclude each other"
    if "" in ([rule.tool_name] if isinstance(rule.tool_name, str) else rule.tool_name):
        yield 'toolName is empty; "*" stands for every tool'
    for pattern in (rule.args_pattern, rule.command_regex):
        yield from _pattern_problems(pattern or "")


def is_accepted(pattern: str) -> bool:
    """Does the CLI take the pattern? It refuses those that might run forever."""
    return len(pattern) <= _LONGEST_PATTERN and not _has_nested_quantifiers(pattern)


def _has_nested_quantifiers(pattern: str) -> bool:
    """Does `\\([^)]*[*+?{].*\\)[*+?{]` fit, as the CLI asks? That one takes cubic time."""
    is_in_group = is_quantified = False
    for place, sign in enumerate(pattern, start=1):
        if sign == ")":
            if is_quantified and pattern[place : place + 1] in _QUANTIFIERS:
                return True
            is_in_group = False
        elif sign == "\n":
            is_quantified = False
        is_in_group = is_in_group or sign == "("
        is_quantified = is_quantified or (is_in_group and sign in _QUANTIFIERS)
    return False


@lru_cache(512)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for Python, which wonders in a warning about some that JavaScript does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern)


def _pattern_problems(pattern: str) -> Iterator[str]:
    if not is_accepted(pattern):
        yield f"the pattern {pattern[:80]!r} has nested quantifiers, or is too long"
        return
    try:
        compiled(in_python(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        yield f"the pattern {pattern[:80]!r} is broken: {error}"
