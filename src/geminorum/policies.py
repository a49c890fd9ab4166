"""Checks tool calls against a policy before they run: options or a policy file in, verdicts out.

```python
rules = Rules.of(Options(policy=Policy(shell_execute="deny")))   # or Rules.read("safe.toml")
rules.verdict("run_shell_command", {"command": "ls"}).decision   # "deny"
```
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminorum.errors import ConfigError
from geminorum.options import Approval, Options
from geminorum.permissions import Level, check_listed
from geminorum.system.regular_file import read_text
from geminorum.wire.policy.build_files import is_build_file
from geminorum.wire.policy.dangerous import is_dangerous
from geminorum.wire.policy.shell_line import is_readable, shell_line
from geminorum.wire.policy.toml_reader import (
    FileRule,
    compiled,
    in_python,
    policy_problems,
    read_policy,
)
from geminorum.wire.policy.toml_writer import Steering, approval_mode, policy_toml
from geminorum.wire.policy.user_rules import is_wildcard

_SHELL = "run_shell_command"
_LEVELS: dict[str, Level] = {"allow": "allow", "ask_user": "ask", "deny": "deny"}
_STRICTNESS: tuple[Level, ...] = ("allow", "ask", "deny")
_MODES = {None: "default", "auto_edit": "autoEdit"}
_UNASKED: Mapping[str, frozenset[str]] = {
    "default": frozenset(
        {
            *("glob", "grep_search", "list_directory", "read_file", "google_web_search"),
            *("codebase_investigator", "cli_help", "get_internal_docs", "update_topic"),
            *("complete_task", "read_mcp_resource", "list_mcp_resources", "invoke_agent"),
        }
    ),
    "auto_edit": frozenset({"write_file", "replace", "web_fetch"}),
}
"""What the CLI does by itself where no rule has a word on it."""
_MOST_TEXT = 64 * 1024 * 1024
"""Characters to be held against each rule: a command may stand in another, and that in a third."""


class Verdict(msgspec.Struct, frozen=True):
    """What would happen to a tool call. "ask" means refused when there is nobody to ask."""

    decision: Level
    because: str
    """The rule, or the CLI's default, that decided."""


def check_tools(options: Options) -> None:
    """Raises InvalidOptions if a run on the CLI would refuse a name in `allowed_tools` or
    `disallowed_tools`, and warns of names that the CLI does not know.
    """
    listed = (*(options.allowed_tools or ()), *options.disallowed_tools)
    check_listed(listed, own=(), stacklevel=2)


def toml_of(options: Options) -> str:
    """Returns the policy file that a run with these options passes to the CLI."""
    return policy_toml(options, steering=Steering())


class Rules:
    """A policy's rules by descending priority, evaluated like a headless CLI 0.61 does.

    The policies of the user, of extensions and of the machine are not included.
    """

    def __init__(
        self,
        rules: Iterable[FileRule],
        approval: Approval | None = None,
        cwd: str | os.PathLike[str] = ".",
    ) -> None:
        self._approval, self._cwd = approval, Path(cwd).absolute()
        self._rules = sorted(rules, key=lambda rule: -rule.priority)

    @classmethod
    def of(cls, options: Options) -> Rules:
        """The rules that apply to a run with these options."""
        rules = read_policy(toml_of(options)).rule
        return cls(rules, approval_mode(options), options.cwd or ".")

    @classmethod
    def read(cls, path: str | os.PathLike[str], approval: Approval | None = None) -> Rules:
        """Reads a policy file. Raises ConfigError if the CLI would drop the whole file."""
        try:
            text = read_text(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            hint = "name a policy file in TOML; `geminorum policy show` prints one"
            raise ConfigError(f"cannot read {os.fspath(path)!r}: {why}", hint=hint) from error
        if problems := policy_problems(text):
            hint = "fix it: the CLI would drop the whole file and run without it"
            raise ConfigError(f"{os.fspath(path)}: {problems[0]}", hint=hint)
        return cls(read_policy(text).rule, approval)

    def __len__(self) -> int:
        return len(self._rules)

    def verdict(self, tool: str, input: Mapping[str, Any] | None = None) -> Verdict:
        """Returns what would happen to a call of this tool with this input."""
        try:
            return self._verdict(tool, dict(input or {}))
        except RecursionError:
            return Verdict("ask", "its input is nested too deeply to be read")

    def _verdict(self, tool: str, arguments: dict[str, Any]) -> Verdict:
        rule = self._first(tool, arguments)
        found = self._word(rule, tool)
        if found.decision == "deny":
            return found
        command = arguments.get("command")
        if tool == _SHELL and isinstance(command, str):
            return _strictest([found, *self._doubts(rule, command, arguments)])
        if found.decision == "allow" and is_build_file(tool, arguments):
            return Verdict("deny", "the CLI lets no tool write a build file")
        return found

    def _doubts(
        self, rule: FileRule | None, command: str, arguments: Mapping[str, Any]
    ) -> Iterator[Verdict]:
        """What the CLI has to say against a command that a rule allows."""
        if not is_readable(command):
            # The CLI reads somewhat longer ones; whether they run depends on what stands in them.
            yield Verdict("ask", "the command is too long to be read")
            return
        if self._approval != "yolo" and not (rule and _patterns(rule)):
            if not self._is_inside(arguments.get("dir_path")):
                yield Verdict("ask", "its folder lies outside of cwd")
            if is_dangerous(command):
                yield Verdict("ask", "the CLI considers the command dangerous")
        line = shell_line(command)
        if line is None:
            lenient = self._approval == "yolo" and not (rule and _patterns(rule))
            if not lenient:
                yield Verdict("ask", "the command cannot be read")
            return
        # Each command in a line has to be allowed by itself.
        parts = [part for part in dict.fromkeys(line.commands) if part != command.strip()]
        if len(parts) * len(_stable(arguments)) > _MOST_TEXT:
            yield Verdict("ask", "the command has too many parts to be read")
            return
        for part in parts:
            yield self._word(self._first(_SHELL, {**arguments, "command": part}), _SHELL)
        if line.redirects and not self._may_redirect(rule):
            yield Verdict("ask", "it redirects to or from a file")

    def _may_redirect(self, rule: FileRule | None) -> bool:
        allowed = rule is not None and bool(rule.allow_redirection)
        return allowed or self._approval in ("auto_edit", "yolo")

    def _is_inside(self, folder: object) -> bool:
        if not isinstance(folder, str):
            return True
        return Path(os.path.normpath(self._cwd / folder)).is_relative_to(self._cwd)

    def _first(self, tool: str, arguments: Mapping[str, Any]) -> FileRule | None:
        """The rule that decides."""
        text = _stable(arguments)
        return next((rule for rule in self._rules if self._fits(rule, tool, text)), None)

    def _word(self, rule: FileRule | None, tool: str) -> Verdict:
        if rule is None:
            return self._habit(tool)
        return Verdict(_LEVELS[rule.decision], _described(rule))

    def _fits(self, rule: FileRule, tool: str, told: str) -> bool:
        mode = _MODES.get(self._approval, self._approval)
        if (rule.modes and mode not in rule.modes) or rule.subagent or rule.tool_annotations:
            return False
        if rule.interactive or not any(
            _is_meant(name, tool, rule.mcp_name) for name in _names(rule)
        ):
            return False
        patterns = _patterns(rule)
        return not patterns or any(compiled(pattern).search(told) for pattern in patterns)

    def _habit(self, tool: str) -> Verdict:
        if self._approval == "yolo":
            return Verdict("allow", "no rule, and yolo allows the rest")
        unasked = _UNASKED["default"]
        if self._approval == "auto_edit":
            unasked |= _UNASKED["auto_edit"]
        if tool in unasked:
            return Verdict("allow", "no rule; the CLI allows it by itself")
        if self._approval == "plan":
            return Verdict("deny", "no rule; a plan may only be written to its own file")
        return Verdict("ask", "no rule; the CLI would ask")


def _names(rule: FileRule) -> list[str]:
    return [rule.tool_name] if isinstance(rule.tool_name, str) else rule.tool_name


def _is_meant(name: str, tool: str, server: str | None) -> bool:
    if server is not None:
        start = "mcp_" if server == "*" else f"mcp_{server}_"
        return tool.startswith(start) and (name == "*" or tool in (name, f"{start}{name}"))
    if is_wildcard(name):
        return tool.startswith(name[:-1])
    return name == tool


def _patterns(rule: FileRule) -> list[str]:
    if rule.command_prefix is not None:
        given = rule.command_prefix
        prefixes = [given] if isinstance(given, str) else given
        # A prefix ends where a word does: "git status" is not the beginning of "git statusx".
        return [
            re.escape(f'"command":{_json(prefix)[:-1]}') + r'(?:[\s"]|\\")' for prefix in prefixes
        ]
    if rule.command_regex is not None:
        return [f'"command":"{in_python(rule.command_regex)}']
    return [in_python(rule.args_pattern)] if rule.args_pattern else []


def _stable(arguments: Mapping[str, Any]) -> str:
    """The arguments as the CLI writes them for its patterns: sorted, each between NULs."""
    pairs = (f"\0{_json(key)}:{_json(arguments[key])}\0" for key in sorted(arguments))
    return "{" + ",".join(pairs) + "}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def _described(rule: FileRule) -> str:
    names = ", ".join(_names(rule))
    narrowed = rule.command_prefix or rule.command_regex or rule.args_pattern
    what = f"{names} ({narrowed})" if narrowed else names
    return f"rule {rule.priority:g} on {what}"


def _strictest(verdicts: Sequence[Verdict]) -> Verdict:
    return max(verdicts, key=lambda one: _STRICTNESS.index(one.decision))
