"""The user's rules and the caller's to one list in which the stricter word on a call counts.

The CLI takes the first rule that fits a call. So for every rule of the user's and every rule of the
caller's there is one on the calls that fit both, with the stricter decision, in the order of both:
the first of these that fits is made of the two that each side would have had the call decided by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias

from geminorum.permissions import KNOWN_TOOLS
from geminorum.runtime import typed
from geminorum.wire.policy.toml_reader import PolicyFile, in_javascript, is_accepted, table_of

Rule: TypeAlias = dict[str, Any]
Decision: TypeAlias = Literal["allow", "ask_user", "deny"]

_STRICTNESS: tuple[Decision, ...] = ("allow", "ask_user", "deny")
_CONDITIONS = ("commandPrefix", "commandRegex", "argsPattern")
_OLDER_SPELLINGS = {"allow_redirection": "allowRedirection", "deny_message": "denyMessage"}
_NOT_IN_PLAN_MODE = ["default", "autoEdit", "yolo"]
_HIGHEST, _LOWEST = 999, 951
"""Above every rule that the CLI derives from its settings, the highest of which has 900; 950 marks
what somebody allowed for always, which an administrator may switch off."""
_ALWAYS_ALLOWED = 950
_SPEC = re.compile(r"([A-Za-z0-9_-]+)\((.*)\)", re.S)
_TOOL_NAME = re.compile(r"[\w*-]+")


class UserPolicy(NamedTuple):
    """What the user says, by policy files and by settings; the weightiest rule first."""

    rules: tuple[Rule, ...] = ()
    checkers: tuple[dict[str, Any], ...] = ()

    def word_on(self, tool: str, *, interactive: bool) -> Decision | None:
        """The decision on every call of a tool, whatever its arguments; None: there is none."""
        for rule in self.rules:
            applies = rule.get("interactive", interactive) is interactive
            if applies and _covers(_full_name(rule), tool) and not _is_conditional(rule):
                return rule["decision"]  # type: ignore[no-any-return]
        return None


def user_policy(texts: Iterable[str], settings: Mapping[str, Any]) -> UserPolicy:
    """From the texts of policy files, and from settings; ValueError for a file that is broken.

    Empty where nothing limits the agent: what settings allow ranks below the caller's rules.
    """
    files = [table_of(text) for text in texts]
    for file in files:
        typed.convert(file, PolicyFile)
    rules = [single for file in files for rule in file.get("rule", ()) for single in _singles(rule)]
    if _switches_always_allowed_off(settings):
        rules = [rule for rule in rules if rule["priority"] != _ALWAYS_ALLOWED]
    derived = list(_from_settings(settings))
    if not rules and not any(rule["decision"] != "allow" for rule in derived):
        derived = []
    checkers = [checker for file in files for checker in file.get("safety_checker", ())]
    # Sorted as the CLI does it: files before settings where the priority is the same.
    weighed = sorted([*rules, *derived], key=lambda rule: -rule["priority"])
    return UserPolicy(tuple(weighed), tuple(checkers))


def stricter(users: Sequence[Rule], ours: Iterable[Rule]) -> list[Rule]:
    """One list, in which the stricter of both decides; ValueError where two conditions are too
    long to be said as one."""
    singles = sorted(
        (single for rule in ours for single in _singles(rule)), key=lambda rule: -rule["priority"]
    )
    pairs = product([*users, None], [*singles, None])
    rules = [both for pair in pairs if (both := _both(*pair)) is not None]
    span = _HIGHEST - _LOWEST
    # Of two with the same priority, the CLI takes the first.
    return [
        {**rule, "priority": _HIGHEST - span * place // len(rules)}
        for place, rule in enumerate(rules)
    ]


def _singles(rule: Mapping[str, Any]) -> Iterator[Rule]:
    plain = {_OLDER_SPELLINGS.get(key, key): value for key, value in rule.items()}
    names = plain["toolName"] if isinstance(plain["toolName"], list) else [plain["toolName"]]
    return ({**plain, "toolName": name} for name in names)


def _is_conditional(rule: Rule) -> bool:
    return any(key in rule for key in (*_CONDITIONS, "modes", "subagent", "toolAnnotations"))


def _both(user: Rule | None, our: Rule | None) -> Rule | None:
    """The rule on what fits both; None where nothing does."""
    if user is None or our is None:
        return user or our
    if user["decision"] == "allow" and _is_ambiguous(_full_name(user), _full_name(our)):
        return None
    parts = (_shared_name, _shared_modes, _shared_arguments, _shared_rest, _shared_redirection)
    found: Rule = {"decision": max(user["decision"], our["decision"], key=_STRICTNESS.index)}
    for part in parts:
        shared = part(user, our)
        if shared is None:
            return None
        found |= shared
    denial = next((rule.get("denyMessage") for rule in (user, our) if "denyMessage" in rule), None)
    return {**found, **({"denyMessage": denial} if denial else {}), "priority": 0}


def _shared_name(one: Rule, other: Rule) -> Rule | None:
    """The narrower of two names; servers of tools are part of the name."""
    for wide, narrow in ((one, other), (other, one)):
        if _covers(_full_name(wide), _full_name(narrow)):
            return {key: narrow[key] for key in ("toolName", "mcpName") if key in narrow}
    return None


def _full_name(rule: Rule) -> str:
    server, tool = rule.get("mcpName"), str(rule["toolName"])
    if server is None:
        return _SECOND_NAMES.get(tool, tool)
    return "mcp_*" if server == tool == "*" else f"mcp_{server}_{tool}"


_SECOND_NAMES = {"search_file_content": "grep_search"}


def _covers(wide: str, narrow: str) -> bool:
    if wide == "invoke_agent":
        return narrow == wide or _is_agent(narrow)
    return narrow.startswith(wide[:-1]) if is_wildcard(wide) else wide == narrow


def is_wildcard(name: str) -> bool:
    """Does the CLI take it for more than one tool? Any other `*` is a letter of a name, to it."""
    return name == "*" or (name.startswith("mcp_") and name.endswith("_*")) or name == "mcp_*"


def _is_ambiguous(wide: str, narrow: str) -> bool:
    """`mcp_a_*` means the tools of server `a`, and `mcp_a_b_c` may be one of server `a_b`."""
    if wide == "mcp_*" or not (wide.startswith("mcp_") and wide.endswith("_*")):
        return False
    return "_" in narrow.removeprefix(wide[:-1]).rstrip("_*")


def _is_agent(name: str) -> bool:
    """A rule may name an agent, and then means the calls of `invoke_agent` with it."""
    tools = KNOWN_TOOLS - {"codebase_investigator", "cli_help"}
    return name not in tools and not name.startswith(("mcp_", "discovered_tool_", "*"))


def _shared_modes(one: Rule, other: Rule) -> Rule | None:
    given = [rule["modes"] for rule in (one, other) if rule.get("modes")]
    if not given:
        return {}
    modes = [mode for mode in given[0] if all(mode in others for others in given)]
    return {"modes": modes} if modes else None


def _shared_arguments(one: Rule, other: Rule) -> Rule:
    conditional = [rule for rule in (one, other) if any(key in rule for key in _CONDITIONS)]
    if len(conditional) < 2:
        return {key: rule[key] for rule in conditional for key in _CONDITIONS if key in rule}
    pattern = "^" + "".join(rf"(?=[\s\S]*(?:{_pattern(rule)}))" for rule in conditional)
    if not is_accepted(pattern):
        raise ValueError(f"the CLI cannot be given {_pattern(one)!r} beside {_pattern(other)!r}")
    return {"argsPattern": pattern}


def _pattern(rule: Rule) -> str:
    """What the CLI looks for in the arguments, in JavaScript's dialect."""
    if "commandRegex" in rule:
        return f'"command":"{rule["commandRegex"]}'
    if "commandPrefix" not in rule:
        return str(rule["argsPattern"])
    given = rule["commandPrefix"]
    prefixes = [given] if isinstance(given, str) else given
    return "|".join(_prefix_pattern(prefix) for prefix in prefixes)


def _prefix_pattern(prefix: str) -> str:
    # A prefix ends where a word does.
    return rf'"command":"{in_javascript(prefix)}(?:[\s"]|\\")'


def _shared_rest(one: Rule, other: Rule) -> Rule | None:
    """Conditions that are values: both have to hold, so that two values exclude each other."""
    shared: Rule = {}
    for key in ("subagent", "interactive"):
        values = [rule[key] for rule in (one, other) if rule.get(key) is not None]
        if values and values[0] != values[-1]:
            return None
        shared |= {key: values[0]} if values else {}
    hints, others = one.get("toolAnnotations", {}), other.get("toolAnnotations", {})
    if any(others.get(key, value) != value for key, value in hints.items()):
        return None
    return {**shared, "toolAnnotations": {**hints, **others}} if hints or others else shared


def _shared_redirection(one: Rule, other: Rule) -> Rule:
    both = all(rule.get("allowRedirection") for rule in (one, other))
    return {"allowRedirection": True} if both else {}


def _switches_always_allowed_off(settings: Mapping[str, Any]) -> bool:
    return _at(settings, "security").get("disableAlwaysAllow") is True


def _from_settings(settings: Mapping[str, Any]) -> Iterator[Rule]:
    """The rules that the CLI derives from its settings, with the priorities that it gives them."""
    tools, mcp = _at(settings, "tools"), _at(settings, "mcp")
    for server in _names(mcp, "excluded"):
        yield _server_rule(server, "deny", 900)
    for tool in _names(tools, "exclude"):
        yield {"toolName": tool, "decision": "deny", "priority": 400}
    for tool in _names(tools, "confirmationRequired"):
        yield {"toolName": tool, "decision": "ask_user", "priority": 350}
    allowed, core = _specs(tools, "allowed"), _specs(tools, "core")
    yield from _listed(allowed, 300)
    if any(_SPEC.fullmatch(spec) for spec in allowed):
        yield {"toolName": "run_shell_command", "decision": "deny", "priority": 290}
    for rule in _listed(core, 250):
        yield {**rule, "modes": _NOT_IN_PLAN_MODE}
    if isinstance(tools.get("core"), list):
        everything = {"toolName": "*", "decision": "deny", "priority": 240}
        yield {**everything, "modes": _NOT_IN_PLAN_MODE}
    for server, entry in _at(settings, "mcpServers").items():
        if isinstance(entry, dict) and entry.get("trust"):
            yield {**_server_rule(server, "allow", 200), "modes": _NOT_IN_PLAN_MODE}
    for server in _names(mcp, "allowed"):
        yield {**_server_rule(server, "allow", 100), "modes": _NOT_IN_PLAN_MODE}


def _server_rule(server: str, decision: Decision, priority: int) -> Rule:
    return {"toolName": "*", "mcpName": server, "decision": decision, "priority": priority}


def _listed(specs: Iterable[str], priority: int) -> Iterator[Rule]:
    for spec in specs:
        match = _SPEC.fullmatch(spec)
        rule = {"toolName": match[1] if match else spec, "decision": "allow", "priority": priority}
        is_command = match is not None and match[1] == "run_shell_command"
        yield {**rule, "commandPrefix": match[2]} if match and is_command else rule


def _specs(data: Mapping[str, Any], key: str) -> list[str]:
    values = data.get(key)
    given = values if isinstance(values, list) else []
    shells = {"ShellTool": "run_shell_command"}
    return [shells.get(value, value) for value in given if isinstance(value, str)]


def _names(data: Mapping[str, Any], key: str) -> list[str]:
    # The CLI takes what is no name for one, too: no call ever has it.
    return [value for value in _specs(data, key) if _TOOL_NAME.fullmatch(value)]


def _at(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
