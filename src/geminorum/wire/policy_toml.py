"""Permissions to a policy file of the CLI, and to the tools that nobody can use then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from geminorum.permissions import TOOL_GROUPS, Policy, rule_of

if TYPE_CHECKING:
    from geminorum.options import Options

# Highest first; within the CLI's own order of files, ours is the user's tier, which beats even
# its yolo mode. A capability that is denied stays denied whatever else is allowed.
_PLAN_TOOLS, _DISALLOWED, _CAPABILITY_DENIED = 999, 998, 997
_RULES, _ALLOWED, _NOTHING_ELSE, _BESIDE_WHITELIST, _CAPABILITY = 990, 980, 970, 960, 500

_SHELL, _ANYTHING = "run_shell_command", "."
# Below whatever else has been said about the shell, and not where a mode decides for itself.
_ASK_ABOUT_SHELL: dict[str, Any] = {
    "toolName": _SHELL,
    "decision": "ask_user",
    "priority": 1,
    "modes": ["default", "autoEdit"],
    "argsPattern": _ANYTHING,
}

_DECISIONS = {"allow": "allow", "ask": "ask_user", "deny": "deny"}


def policy_toml(options: Options, *, plan_tools: bool = False, always_ask: bool = False) -> str:
    """The policy file; empty where there is nothing to say.

    `always_ask`: a question is put for every shell command that may not run unasked.
    """
    import tomli_w

    rules = [*_rules(options)]
    if not plan_tools:
        rules.append(_plan_rule(options))
    if always_ask:
        rules = [*map(_without_exceptions, rules), _ASK_ABOUT_SHELL]
    return tomli_w.dumps({"rule": rules}) if rules else ""


def _without_exceptions(rule: dict[str, Any]) -> dict[str, Any]:
    """The CLI runs commands that it knows for safe (`cat`, `grep` …) where a rule says ask; but
    not where the rule looks at the arguments, whatever it looks for in them."""
    tools = rule["toolName"]
    shell = tools == _SHELL or (isinstance(tools, list) and _SHELL in tools)
    if not shell or rule["decision"] != "ask_user" or "commandPrefix" in rule:
        return rule
    return {**rule, "argsPattern": _ANYTHING}


def is_refused(options: Options, tool: str) -> bool:
    """Is the tool refused whatever its arguments? The CLI hides such a one from the model."""
    policy = options.policy or Policy()
    rules = [rule.tool for rule in policy.rules if rule.decision != "allow"]
    if tool in {*rules, *options.disallowed_tools}:
        return True
    if options.allowed_tools is not None:
        return tool not in {rule_of(spec)[0] for spec in options.allowed_tools}
    groups = [TOOL_GROUPS[name] for name in TOOL_GROUPS if getattr(policy, name) != "allow"]
    return any(tool in group for group in groups)


def is_denied(options: Options, tool: str) -> bool:
    """The same where there is somebody to be asked: only what is denied outright is hidden."""
    policy = options.policy or Policy()
    rules = [rule.tool for rule in policy.rules if rule.decision == "deny" and not rule.command]
    if tool in {*rules, *options.disallowed_tools}:
        return True
    if options.allowed_tools is not None:
        return tool not in {rule_of(spec)[0] for spec in options.allowed_tools}
    groups = [TOOL_GROUPS[name] for name in TOOL_GROUPS if getattr(policy, name) == "deny"]
    return any(tool in group for group in groups)


def _plan_rule(options: Options) -> dict[str, Any]:
    # Headless, these two let a model approve its own plan, and go on in yolo mode.
    entering = [] if options.approval == "plan" else ["enter_plan_mode"]
    return _rule([*entering, "exit_plan_mode"], "deny", _PLAN_TOOLS)


def _rules(options: Options) -> Iterable[dict[str, Any]]:
    policy = options.policy
    for spec in options.disallowed_tools:
        yield _from_spec(spec, "deny", _DISALLOWED)
    if policy is not None:
        yield from _capabilities(policy)
        for rule in policy.rules:
            # Nothing runs that a whitelist leaves out, whatever a rule allows.
            beside = rule.decision == "allow" and options.allowed_tools is not None
            priority = _BESIDE_WHITELIST if beside else _RULES
            yield _rule(rule.tool, _DECISIONS[rule.decision], priority, rule.command)
    if options.allowed_tools is not None:
        for spec in options.allowed_tools:
            yield _from_spec(spec, "allow", _ALLOWED)
        yield _rule("*", "deny", _NOTHING_ELSE)


def _capabilities(policy: Policy) -> Iterable[dict[str, Any]]:
    for name, tools in TOOL_GROUPS.items():
        level = getattr(policy, name)
        priority = _CAPABILITY_DENIED if level == "deny" else _CAPABILITY
        yield _rule(list(tools), _DECISIONS[level], priority)


def _from_spec(spec: str, decision: str, priority: int) -> dict[str, Any]:
    tool, command = rule_of(spec)
    return _rule(tool, decision, priority, command)


def _rule(
    tool: str | Sequence[str], decision: str, priority: int, command: str | None = None
) -> dict[str, Any]:
    rule: dict[str, Any] = {"toolName": tool, "decision": decision, "priority": priority}
    if command is not None:
        rule["commandPrefix"] = command
    return rule
