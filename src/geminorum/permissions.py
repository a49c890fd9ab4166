"""What an agent may do without asking: capabilities, single tools, commands, MCP servers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.errors import InvalidOptions
from geminorum.hints import python_only
from geminorum.runtime import typed
from geminorum.runtime.lazy import difflib
from geminorum.spelling import snake_case

Level: TypeAlias = Literal["allow", "ask", "deny"]

TOOL_GROUPS: Mapping[str, tuple[str, ...]] = {
    "file_write": ("replace", "write_file"),
    "shell_execute": ("run_shell_command",),
    "network_access": ("google_web_search", "web_fetch"),
}
"""The CLI's tools for each capability of a Policy."""

KNOWN_TOOLS = frozenset(
    {
        *("read_file", "list_directory", "glob", "grep_search", "search_file_content"),
        *("replace", "write_file", "run_shell_command", "web_fetch", "google_web_search"),
        *("list_background_processes", "read_background_output", "write_todos", "update_topic"),
        *("invoke_agent", "activate_skill", "read_many_files", "save_memory", "ask_user"),
        *("enter_plan_mode", "exit_plan_mode", "complete_task", "get_internal_docs"),
        *("read_mcp_resource", "list_mcp_resources", "codebase_investigator", "cli_help"),
    }
)
_CLAUDES_NAMES = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "replace",
    "MultiEdit": "replace",
    "Bash": "run_shell_command",
    "Glob": "glob",
    "Grep": "grep_search",
    "LS": "list_directory",
    "WebFetch": "web_fetch",
    "WebSearch": "google_web_search",
    "TodoWrite": "write_todos",
    "Task": "invoke_agent",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\*?|\*")
_OWN_FAMILIES = ("mcp_", "discovered_tool_", "tracker_")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision for one tool. It overrides a capability that is "ask" or "allow"; a denied
    capability stays denied.
    """

    tool: str
    """A tool name; `mcp_server_*` matches every tool of an MCP server."""
    decision: Level
    command: str | None = None
    """For the shell: applies only to commands that start with this text. An allow rule matches one
    such command, alone on its line. A deny rule guides an agent but does not stop one that works
    around it (`git -C . push`): to be safe, deny the shell."""

    def __post_init__(self) -> None:
        check_tool(self.tool)
        warn_of_stranger(self.tool, stacklevel=3)
        if self.decision not in ("allow", "ask", "deny"):
            raise InvalidOptions(f"decision must be allow, ask or deny, not {self.decision!r}")
        if self.command is not None and self.tool != "run_shell_command":
            raise InvalidOptions(f"command goes with run_shell_command, not with {self.tool!r}")
        if self.command is not None and not self.command.strip():
            raise InvalidOptions("command is empty", hint="leave it out to mean every command")
        if self.command is not None and not _is_writable(self.command):
            raise InvalidOptions(f"{self.command!r} cannot be written to a policy file in UTF-8")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Half an emoji.
        return False
    return True


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent may do without asking. "ask" means refused when there is nobody to ask."""

    file_write: Level = "ask"
    shell_execute: Level = "ask"
    network_access: Level = "ask"
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name in TOOL_GROUPS:
            if getattr(self, name) not in ("allow", "ask", "deny"):
                value = getattr(self, name)
                raise InvalidOptions(f"{name} must be allow, ask or deny, not {value!r}")
        rules: Any = self.rules
        if not (isinstance(rules, tuple) and all(isinstance(rule, Rule) for rule in rules)):
            raise InvalidOptions(
                f"rules={rules!r}", hint=python_only("rules=(Rule('read_file', 'deny'),)")
            )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Builds a Policy from plain data, camelCase or snake_case."""
        plain = {snake_case(key): value for key, value in data.items()}
        try:
            return typed.convert(plain, cls)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # Half an emoji.
            hint = "each level is allow, ask or deny; a rule has a tool, a decision, a command"
            raise InvalidOptions(f"policy={dict(data)!r}: {error}", hint=hint) from error


def check_tool(name: str) -> None:
    """Raises if this cannot be a tool name."""
    if not _NAME.fullmatch(name):
        raise InvalidOptions(f"{name!r} is not the name of a tool", hint="for example 'read_file'")


def warn_of_stranger(name: str, stacklevel: int) -> None:
    """Warns about a tool name that the CLI does not know: a rule for it would never apply."""
    if name == "*" or name in KNOWN_TOOLS or name.startswith(_OWN_FAMILIES):
        return
    claudes = [_CLAUDES_NAMES[name]] if name in _CLAUDES_NAMES else []
    near = claudes or difflib.get_close_matches(name, KNOWN_TOOLS, n=1)
    advice = f"; did you mean {near[0]!r}?" if near else ""
    warnings.warn(f"the CLI has no tool {name!r} of its own{advice}", stacklevel=stacklevel + 1)


def check_listed(specs: Iterable[str], own: Collection[str], stacklevel: int) -> None:
    """Refuses Claude's names in a list of tools, which would allow or deny nothing, and warns of
    other names that the CLI does not know; `own` are the caller's functions."""
    for spec in specs:
        if spec in own:
            continue
        name = rule_of(spec)[0]
        if name in _CLAUDES_NAMES:
            ours = _CLAUDES_NAMES[name]
            text = f"{name!r} is Claude's name for a tool; the Gemini CLI calls it {ours!r}"
            raise InvalidOptions(text, hint=f"write {ours!r} instead")
        warn_of_stranger(name, stacklevel + 1)


def rule_of(spec: str) -> tuple[str, str | None]:
    """Splits `run_shell_command(git status)` into a tool and, for the shell, a command."""
    match = re.fullmatch(r"(\w+)\((.+)\)", spec, re.S)
    tool, command = (match[1], match[2]) if match else (spec, None)
    if command is not None:
        Rule(tool, "allow", command)
    else:
        check_tool(tool)
    return tool, command
