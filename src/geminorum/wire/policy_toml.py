"""Permissions to a policy file of the CLI, and to the tools that nobody can use then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from geminorum.permissions import KNOWN_TOOLS, TOOL_GROUPS, Level, Policy, rule_of

if TYPE_CHECKING:
    from geminorum.options import Options

# Highest first; within the CLI's own order of files, ours is the user's tier, which beats even
# its yolo mode. A capability that is denied stays denied whatever else is allowed.
_PLAN_TOOLS, _DISALLOWED, _CAPABILITY_DENIED = 999, 998, 997
_RULES, _ALLOWED, _NOTHING_ELSE, _BESIDE_WHITELIST, _CAPABILITY = 990, 980, 970, 960, 500
_ASKED_BY_MODE = 1

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


_FAMILIES = ("mcp_*", "discovered_tool_*")
_EDITS, _OTHERS = ("replace", "write_file", "web_fetch"), ("activate_skill", *_FAMILIES)
_ASKED_IN_MODE: dict[str | None, tuple[str, ...]] = {
    None: (*_EDITS, "run_shell_command", *_OTHERS),
    "default": (*_EDITS, "run_shell_command", *_OTHERS),
    "auto_edit": ("run_shell_command", *_OTHERS),
}
"""What the CLI asks about where somebody sits before it."""
_SECOND_NAMES = {"grep_search": "search_file_content"}


def asked_tools(options: Options) -> tuple[str, ...]:
    """The tools that somebody is asked about, where there is somebody. Each as a whole: a word on
    single commands is for the CLI to read, not for us."""
    if options.approval == "plan":
        return ()  # What a plan may not do, nobody can allow.
    policy = options.policy or Policy()
    names = [rule.tool for rule in policy.rules if rule.decision == "ask"]
    if options.allowed_tools is None:
        names += _asked_by_level(options)
    else:
        listed = {rule_of(spec)[0] for spec in options.allowed_tools}
        names = [name for name in names if name in listed]
    never = {*_refused_altogether(options), *unasked_tools(options)}
    seen = [name for name in dict.fromkeys(names) if name not in never and _has_a_hook(name)]
    return (*seen, *(_SECOND_NAMES[name] for name in seen if name in _SECOND_NAMES))


def _asked_by_level(options: Options) -> list[str]:
    by_mode = _ASKED_IN_MODE.get(options.approval, ())
    if options.policy is None:
        return [*by_mode]
    spoken_of = {tool for tools in TOOL_GROUPS.values() for tool in tools}
    others = [tool for tool in by_mode if tool not in spoken_of]
    return [*_groups(options.policy, "ask"), *others]


def unasked_tools(options: Options) -> tuple[str, ...]:
    """What a rule allows as a whole, and nobody is asked about although its family would be."""
    rules = options.policy.rules if options.policy is not None else ()
    asked = {rule.tool for rule in rules if rule.decision == "ask"}
    allowed = [rule.tool for rule in rules if rule.decision == "allow" and rule.command is None]
    return tuple(tool for tool in allowed if tool not in asked)


def _refused_altogether(options: Options) -> set[str]:
    policy = options.policy or Policy()
    denied = [rule.tool for rule in policy.rules if rule.decision == "deny" and not rule.command]
    whole = [spec for spec in options.disallowed_tools if rule_of(spec)[1] is None]
    return {*denied, *whole, *_groups(policy, "deny")}


def _groups(policy: Policy, level: Level) -> list[str]:
    names = [name for name in TOOL_GROUPS if getattr(policy, name) == level]
    return [tool for name in names for tool in TOOL_GROUPS[name]]


def _has_a_hook(tool: str) -> bool:
    """An agent's name can stand in a policy, but its call is one of `invoke_agent`: what nobody
    can be asked about stays refused."""
    if tool == "*" or tool.startswith(("mcp_", "discovered_tool_")):
        return True
    return tool in KNOWN_TOOLS and tool not in ("codebase_investigator", "cli_help")


def policy_toml(
    options: Options,
    *,
    plan_tools: bool = False,
    always_ask: bool = False,
    asked: Sequence[str] = (),
    unasked: Sequence[str] = (),
) -> str:
    """The policy file; empty where there is nothing to say.

    `always_ask`: a question is put for every shell command that may not run unasked. `asked` is let
    through to whoever is asked, who has the last word; `unasked` are tools of the caller's own.
    """
    import tomli_w

    rules = [_answerable(rule, asked) for rule in _rules(options)]
    rules += [_let_through(_rule(tool, "allow", _ASKED_BY_MODE)) for tool in asked]
    rules += [_rule(tool, "allow", _ALLOWED) for tool in unasked]
    if not plan_tools:
        rules.append(_plan_rule(options))
    if always_ask:
        rules = [*map(_without_exceptions, rules), _ASK_ABOUT_SHELL]
    return tomli_w.dumps({"rule": rules}) if rules else ""


def _answerable(rule: dict[str, Any], asked: Sequence[str]) -> dict[str, Any]:
    """A rule that says "ask" says "allow" where somebody is asked before it is read."""
    named = rule["toolName"] if isinstance(rule["toolName"], list) else [rule["toolName"]]
    if rule["decision"] != "ask_user" or not set(named) & set(asked):
        return rule
    return _let_through({**rule, "decision": "allow"})


def _let_through(rule: dict[str, Any]) -> dict[str, Any]:
    """Without the CLI's own doubts about a command: it would ask once more, and nobody hears it."""
    if rule["toolName"] not in ("*", "run_shell_command", ["run_shell_command"]):
        return rule
    any_arguments = {} if "commandPrefix" in rule else {"argsPattern": "."}
    return {**rule, **any_arguments, "allowRedirection": True}


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
