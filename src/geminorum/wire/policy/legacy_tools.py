"""Permissions to the flags and settings of CLIs before 0.35, which cannot use a policy file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from geminorum.permissions import TOOL_GROUPS, Level, Policy, Rule, rule_of

if TYPE_CHECKING:
    from geminorum.options import Options

_SKILLS = "activate_skill"
_PLAN_TOOLS = ("enter_plan_mode", "exit_plan_mode")
_SEARCH = ("grep_search", "search_file_content")
"""One tool: the second name is the older one."""
_NOBODY = "geminorum-lets-nobody-in"


class LegacyTools(msgspec.Struct, frozen=True):
    """What older CLIs are told: refused, offered, and run without a question."""

    exclude: tuple[str, ...] = ()
    core: tuple[str, ...] | None = None
    """The only tools there are; None: all."""
    unasked: tuple[str, ...] = ()

    @property
    def flags(self) -> list[str]:
        if self.core is None:
            return [f"--allowed-tools={spec}" for spec in self.unasked]
        # `tools.core` is silent about agents and MCP servers. Agents are offered unless
        # something is allowed by name; servers unless another one is.
        unasked = self.unasked or (_NOBODY,)
        allowed = [f"--allowed-tools={spec}" for spec in unasked]
        return [*allowed, f"--allowed-mcp-server-names={_NOBODY}"]

    def over(self, tools: Mapping[str, Any]) -> dict[str, Any]:
        """The setting `tools` with these in it; what the user excludes stays excluded."""
        theirs = tools.get("exclude")
        kept = theirs if isinstance(theirs, list) else []
        settings = {**tools, "exclude": list(dict.fromkeys([*kept, *self.exclude]))}
        if self.core is not None:
            settings |= {"core": list(self.core), "discoveryCommand": ""}
        return settings


def legacy_tools(
    options: Options, *, plan_tools: bool = False, pre_approved: Sequence[str] = ()
) -> LegacyTools:
    """The same permissions for older CLIs. "ask" is a refusal: they cannot ask."""
    decisions = _decisions(options)
    allowed = tuple(tool for tool, level in decisions.items() if level == "allow")
    refused = [tool for tool, level in decisions.items() if level != "allow"]
    if options.allowed_tools is not None and _SKILLS not in allowed:
        refused.append(_SKILLS)  # Offered again after `tools.core` was obeyed.
    plan = () if plan_tools else _PLAN_TOOLS
    return LegacyTools(
        exclude=(*_under_all_names(refused), *plan),
        core=None if options.allowed_tools is None else allowed,
        unasked=(*allowed, *pre_approved),
    )


def unsayable(options: Options, pre_approved: Sequence[str] = ()) -> list[str]:
    """What these versions have no words for; each would be silently weaker.

    They know lists of single commands, but `git status ; PATH=. ; git status` is `git status` to
    them, and runs what the folder brings.
    """
    rules = [*_policy(options).rules, *_as_rules(options)]
    commands = [rule for rule in rules if rule.command is not None]
    problems = {
        "plan mode": options.approval == "plan",
        "rules on MCP tools, on agents and with `*`": any(_is_foreign(rule.tool) for rule in rules),
        "single shell commands": commands or any(rule_of(spec)[1] for spec in pre_approved),
    }
    return [name for name, is_wanted in problems.items() if is_wanted]


def _policy(options: Options) -> Policy:
    policy = options.policy
    return policy if isinstance(policy, Policy) else Policy()


def _rules(options: Options) -> list[Rule]:
    """The policy's rules; a whitelist leaves no room for those that allow something."""
    rules = _policy(options).rules
    whitelist = options.allowed_tools is not None
    return [rule for rule in rules if not (whitelist and rule.decision == "allow")]


def _as_rules(options: Options) -> Iterable[Rule]:
    for decision, specs in (
        ("deny", options.disallowed_tools),
        ("allow", options.allowed_tools or ()),
    ):
        for spec in specs:
            tool, command = rule_of(spec)
            yield Rule(tool, decision, command)  # type: ignore[arg-type]


def _is_foreign(tool: str) -> bool:
    # Newer versions have one tool for all agents, these have one for each.
    return "*" in tool or tool == "invoke_agent" or tool.startswith(("mcp_", "discovered_tool_"))


def _decisions(options: Options) -> dict[str, Level]:
    """The word on each whole tool; what is said later outranks what was said before."""
    said: dict[str, Level] = {}
    whole = [rule for rule in _as_rules(options) if rule.command is None]
    if options.policy is not None and options.allowed_tools is None:
        said |= _capabilities(options.policy)
    said |= {rule.tool: "allow" for rule in whole if rule.decision == "allow"}
    # Of two rules on one tool, the first counts.
    rules = [rule for rule in reversed(_rules(options)) if rule.command is None]
    said |= {rule.tool: rule.decision for rule in rules}
    capabilities = _capabilities(_policy(options)).items()
    said |= {tool: level for tool, level in capabilities if level == "deny"}
    return said | {rule.tool: "deny" for rule in whole if rule.decision == "deny"}


def _capabilities(policy: Policy) -> dict[str, Level]:
    said: dict[str, Level] = {}
    for name, tools in TOOL_GROUPS.items():
        said |= dict.fromkeys(tools, getattr(policy, name))
    if policy.file_write != "allow":
        said["save_memory"] = policy.file_write  # Notes for later runs: a file too.
    return said


def _under_all_names(tools: Iterable[str]) -> tuple[str, ...]:
    names = [name for tool in tools for name in (_SEARCH if tool in _SEARCH else (tool,))]
    return tuple(dict.fromkeys(names))
