"""What a policy says to a tool call before it runs: options or a policy file in, verdicts out.

```python
rules = Rules.of(Options(policy=Policy(shell_execute="deny")))   # or Rules.read("safe.toml")
rules.verdict("run_shell_command", {"command": "ls"}).decision   # "deny"
```
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminorum.errors import ConfigError
from geminorum.options import Approval, Options
from geminorum.permissions import Level
from geminorum.wire.policy_file import FileRule, in_python, policy_problems, read_policy
from geminorum.wire.policy_toml import policy_toml
from geminorum.wire.shell_line import shell_line

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


class Verdict(msgspec.Struct, frozen=True):
    """What would happen to a call. "ask" means refused where there is nobody to be asked."""

    decision: Level
    because: str
    """The rule, or the habit of the CLI, that decided."""


def toml_of(options: Options) -> str:
    """The policy file that a run with these options gives to the CLI."""
    return policy_toml(options)


class Rules:
    """The rules of a policy, the weightiest first, as the CLI goes through them.

    Not looked at: what the CLI holds dangerous (`rm -rf`) or harmless (`ls`) by itself, its
    protection of build files, and the policies of extensions and of the machine.
    """

    def __init__(self, rules: Iterable[FileRule], approval: Approval | None = None) -> None:
        self._approval = approval
        self._rules = sorted(rules, key=lambda rule: -rule.priority)

    @classmethod
    def of(cls, options: Options) -> Rules:
        """What a run with these options would be held to."""
        return cls(read_policy(toml_of(options)).rule, options.approval)

    @classmethod
    def read(cls, path: str | os.PathLike[str], approval: Approval | None = None) -> Rules:
        """The rules of a policy file; ConfigError where the CLI would drop it as a whole."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            hint = "name a policy file in TOML; `geminorum policy show` prints one"
            raise ConfigError(f"cannot read {os.fspath(path)!r}: {why}", hint=hint) from error
        if problems := policy_problems(text):
            hint = "mend it: the CLI would drop the whole file and run without it"
            raise ConfigError(f"{os.fspath(path)}: {problems[0]}", hint=hint)
        return cls(read_policy(text).rule, approval)

    def __len__(self) -> int:
        return len(self._rules)

    def verdict(self, tool: str, input: Mapping[str, Any] | None = None) -> Verdict:
        """What would happen to a call of this tool with this input."""
        arguments = dict(input or {})
        found = self._of_call(tool, arguments)
        command = arguments.get("command")
        if tool != _SHELL or not isinstance(command, str) or found.decision == "deny":
            return found
        return _strictest([found, *self._of_commands(command, arguments, found)])

    def _of_commands(
        self, command: str, arguments: Mapping[str, Any], whole: Verdict
    ) -> Sequence[Verdict]:
        """Each command in a line has to be allowed by itself."""
        line = shell_line(command)
        if line is None:
            lenient = self._approval == "yolo"
            return [] if lenient else [Verdict("ask", "the command cannot be taken apart")]
        parts = [part for part in line.commands if part != command.strip()]
        found = [self._of_call(_SHELL, {**arguments, "command": part}) for part in parts]
        if line.redirects and self._approval not in ("auto_edit", "yolo"):
            found.append(Verdict("ask", "it redirects to or from a file"))
        return found

    def _of_call(self, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        told = _stable(arguments)
        for rule in self._rules:
            if self._fits(rule, tool, told):
                return Verdict(_LEVELS[rule.decision], _described(rule))
        return self._habit(tool)

    def _fits(self, rule: FileRule, tool: str, told: str) -> bool:
        mode = _MODES.get(self._approval, self._approval)
        if (rule.modes and mode not in rule.modes) or rule.subagent or rule.tool_annotations:
            return False
        names = [rule.tool_name] if isinstance(rule.tool_name, str) else rule.tool_name
        if not any(_is_meant(name, tool, rule.mcp_name) for name in names):
            return False
        patterns = _patterns(rule)
        return not patterns or any(re.search(pattern, told) for pattern in patterns)

    def _habit(self, tool: str) -> Verdict:
        if self._approval == "yolo":
            return Verdict("allow", "no rule, and yolo allows the rest")
        unasked = _UNASKED["default"]
        if self._approval == "auto_edit":
            unasked |= _UNASKED["auto_edit"]
        if tool in unasked:
            return Verdict("allow", "no rule; the CLI allows it by itself")
        return Verdict("ask", "no rule; the CLI would ask")


def _is_meant(name: str, tool: str, server: str | None) -> bool:
    if server is not None:
        start = "mcp_" if server == "*" else f"mcp_{server}_"
        return tool.startswith(start) and (name == "*" or tool in (name, f"{start}{name}"))
    if name.endswith("*"):
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
    names = rule.tool_name if isinstance(rule.tool_name, str) else ", ".join(rule.tool_name)
    narrowed = rule.command_prefix or rule.command_regex or rule.args_pattern
    what = f"{names} ({narrowed})" if narrowed else names
    return f"rule {rule.priority:g} on {what}"


def _strictest(verdicts: Sequence[Verdict]) -> Verdict:
    return max(verdicts, key=lambda one: _STRICTNESS.index(one.decision))
